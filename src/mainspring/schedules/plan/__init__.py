"""What becomes of schedules: pure functions from a row, the time and what became of its runs to the next row.

Nothing here reads a clock or knows a store. Whoever looks at a row calls :func:`step`, and exchanges the row for what
it returns (``Store.swap``); if somebody else was first, it looks again.
"""

from __future__ import annotations

from mainspring.schedules.plan.change import disabled, enabled, first, orphaned, revised
from mainspring.schedules.plan.manual_runs import TriggerRefusal, backfill, trigger
from mainspring.schedules.plan.run_job import TEMPLATE, held_by, is_between_two, one_of_two, some_of
from mainspring.schedules.plan.settle import SeenRun
from mainspring.schedules.plan.state import (
    Definition,
    OccurrenceRecord,
    OpenRun,
    SchedulePlan,
    decode,
    encode,
    record_of,
)
from mainspring.schedules.plan.steps import ScheduleNews, ScheduleStep, answered, had, look_of, put_off, rejected, step

__all__ = [
    "TEMPLATE",
    "Definition",
    "OccurrenceRecord",
    "OpenRun",
    "ScheduleNews",
    "SchedulePlan",
    "ScheduleStep",
    "SeenRun",
    "TriggerRefusal",
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
