"""What becomes of schedules: pure functions from a row, the time and what became of its runs to the next row.

Nothing here reads a clock or knows a store. Whoever looks at a row calls :func:`step`, and exchanges the row for what
it returns (``Store.swap``); if somebody else was first, it looks again.
"""

from __future__ import annotations

from mainspring.scheduling.asking import Refusal, backfill, trigger
from mainspring.scheduling.jobs import TEMPLATE, held_by, is_between_two, one_of_two, some_of
from mainspring.scheduling.plan import Definition, Open, Plan, Record, decode, encode, record_of
from mainspring.scheduling.settling import Seen
from mainspring.scheduling.steps import News, Step, answered, had, look_of, put_off, rejected, step
from mainspring.scheduling.storing import disabled, enabled, first, orphaned, revised

__all__ = [
    "TEMPLATE",
    "Definition",
    "News",
    "Open",
    "Plan",
    "Record",
    "Refusal",
    "Seen",
    "Step",
    "answered",
    "backfill",
    "decode",
    "disabled",
    "enabled",
    "encode",
    "first",
    "had",
    "held_by",
    "is_between_two",
    "look_of",
    "one_of_two",
    "orphaned",
    "put_off",
    "record_of",
    "rejected",
    "revised",
    "some_of",
    "step",
    "trigger",
]
