"""Rules as JSON, as stores keep them.

The field ``kind`` names the kind of the rule. Unknown fields are ignored, so a newer version may add fields. An unknown
kind is refused, because this version cannot tell when such a rule is due.
"""

from __future__ import annotations

import msgspec

from mainspring.errors import InvalidOption
from mainspring.schedules.rules.occurrences import Rule, RuleWindow


def encode(rule: Rule | RuleWindow) -> bytes:
    """Encode a rule as JSON.

    >>> from mainspring.schedules.rules import Cron
    >>> encode(Cron("0 3 * * *", "Europe/Kyiv"))
    b'{"kind":"cron","expression":"0 3 * * *","tz":"Europe/Kyiv"}'
    """
    return msgspec.json.encode(rule)


def decode(data: bytes | str) -> Rule:
    """Decode a stored rule, anchored or not."""
    try:
        found: Rule = msgspec.json.decode(data, type=Rule)
    except msgspec.DecodeError as error:
        hint = "A newer version of Mainspring may have stored it: upgrade this process."
        raise InvalidOption("rule", data, f"cannot be read: {error}", hint=hint) from None
    return found
