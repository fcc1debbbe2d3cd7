"""The decisions about schedules, as pure functions: from a row, the time and the states of its runs to the next row.

No function here reads a clock or calls a store. The scheduler calls :func:`step` for each row that is due, and swaps
the row for the result with ``Store.swap_schedule``. If another process changed the row first, the store refuses the
swap, and the scheduler reads the row again.
"""

from __future__ import annotations

from mainspring.schedules.plan.change import disable, enable, is_over, mark_orphaned, new_plan, record_passed, revise
from mainspring.schedules.plan.dependencies import Successes, find_unmet, needs_successes
from mainspring.schedules.plan.fire import expiry_of_waiting
from mainspring.schedules.plan.manual_runs import TriggerRefusal, backfill, trigger
from mainspring.schedules.plan.run_job import TEMPLATE, block_limit, describe_full_bucket, group_limit, is_block_limit
from mainspring.schedules.plan.settle import SeenRun
from mainspring.schedules.plan.state import (
    Definition,
    LastSuccess,
    OccurrenceRecord,
    OpenRun,
    SchedulePlan,
    decode,
    decode_run,
    encode,
)
from mainspring.schedules.plan.steps import (
    ScheduleNews,
    ScheduleStep,
    next_look,
    postpone,
    reject_jobs,
    skip_taken_keys,
    step,
    take_in,
    use_existing_job,
)

__all__ = [
    "TEMPLATE",
    "Definition",
    "LastSuccess",
    "OccurrenceRecord",
    "OpenRun",
    "ScheduleNews",
    "SchedulePlan",
    "ScheduleStep",
    "SeenRun",
    "Successes",
    "TriggerRefusal",
    "backfill",
    "block_limit",
    "decode",
    "decode_run",
    "describe_full_bucket",
    "disable",
    "enable",
    "encode",
    "expiry_of_waiting",
    "find_unmet",
    "group_limit",
    "is_block_limit",
    "is_over",
    "mark_orphaned",
    "needs_successes",
    "new_plan",
    "next_look",
    "postpone",
    "record_passed",
    "reject_jobs",
    "revise",
    "skip_taken_keys",
    "step",
    "take_in",
    "trigger",
    "use_existing_job",
]
