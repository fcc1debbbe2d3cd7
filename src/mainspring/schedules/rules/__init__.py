"""The rules that say when a schedule is due: cron, every, at and after. Pure values: no clock, no store, no thread.

>>> from datetime import UTC, datetime
>>> from mainspring.common.clock import from_datetime, to_datetime
>>> nightly = rule(cron="0 3 * * *", tz="Europe/Kyiv")
>>> text(nightly)
'at 03:00 every day (Europe/Kyiv)'
>>> [str(to_datetime(moment)) for moment in upcoming(nightly, from_datetime(datetime(2030, 1, 1, tzinfo=UTC)), 2)]
['2030-01-01 01:00:00+00:00', '2030-01-02 01:00:00+00:00']

All moments are microseconds since 1970-01-01 UTC.
"""

from __future__ import annotations

from mainspring.schedules.rules.constants import (
    DAILY,
    EVERY_5_MINUTES,
    EVERY_10_MINUTES,
    EVERY_15_MINUTES,
    EVERY_30_MINUTES,
    EVERY_MINUTE,
    EVERY_SECOND,
    HOURLY,
    MONTHLY,
    QUARTERLY,
    WEEKDAYS,
    WEEKLY,
    YEARLY,
)
from mainspring.schedules.rules.cron import Cron
from mainspring.schedules.rules.declare import check_jitter, make_rule
from mainspring.schedules.rules.encode import decode, encode
from mainspring.schedules.rules.every import Every
from mainspring.schedules.rules.hashing import jitter_delay
from mainspring.schedules.rules.occurrences import (
    MissedOccurrences,
    Rule,
    RuleWindow,
    find_missed,
    make_window,
    next_occurrences,
)
from mainspring.schedules.rules.once import Once
from mainspring.schedules.rules.text import describe
from mainspring.schedules.rules.zones import check_zone

__all__ = [
    "DAILY",
    "EVERY_5_MINUTES",
    "EVERY_10_MINUTES",
    "EVERY_15_MINUTES",
    "EVERY_30_MINUTES",
    "EVERY_MINUTE",
    "EVERY_SECOND",
    "HOURLY",
    "MONTHLY",
    "QUARTERLY",
    "WEEKDAYS",
    "WEEKLY",
    "YEARLY",
    "Cron",
    "Every",
    "MissedOccurrences",
    "Once",
    "Rule",
    "RuleWindow",
    "check_jitter",
    "check_zone",
    "decode",
    "describe",
    "encode",
    "find_missed",
    "jitter_delay",
    "make_rule",
    "make_window",
    "next_occurrences",
]
