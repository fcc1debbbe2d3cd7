"""Rules as the JSON that stores keep.

Each kind names itself. Fields that this version does not know are left out when it reads, so newer versions may
add some; a kind that it does not know is refused, for it could not tell when that is due.
"""

from __future__ import annotations

import msgspec

from mainspring.errors import InvalidOption
from mainspring.schedules.rules.occurrences import Rule, RuleWindow


def encode(rule: Rule | RuleWindow) -> bytes:
    """As JSON.

    >>> from mainspring.schedules.rules import Cron
    >>> encode(Cron("0 3 * * *", "Europe/Kyiv"))
    b'{"kind":"cron","expression":"0 3 * * *","tz":"Europe/Kyiv"}'
    """
    return msgspec.json.encode(rule)


def decode(data: bytes | str) -> Rule:
    """The rule that was stored, anchored or not."""
    try:
        found: Rule = msgspec.json.decode(data, type=Rule)
    except msgspec.DecodeError as error:
        hint = "A newer version may have stored it: upgrade this process."
        raise InvalidOption("rule", data, f"cannot be read: {error}", hint=hint) from None
    return found
