"""Read and write the stored state of schedules: compare-and-set of one row, its runs and its jobs.

Used by the scheduler, by the sync of declared schedules, and by operators' changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mainspring.codec.failures import brief
from mainspring.jobs.query import Query
from mainspring.jobs.records import Batch, JobRow
from mainspring.schedules import plan as planning
from mainspring.schedules.plan import SchedulePlan, ScheduleStep, SeenRun
from mainspring.schedules.records import ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult
from mainspring.stores.base import Store

_PAGE = 500


async def swap_row(store: Store, row: ScheduleRow, step: ScheduleStep) -> SwapResult:
    """Replace the row that was read by the plan of ``step``, with its runs and its jobs, if the row did not change."""
    swap = ScheduleSwap(
        name=row.name, rev=row.rev, doc=planning.encode(step.plan), look=step.look, runs=step.runs,
        keep=step.plan.definition.history,
    )  # fmt: skip
    if not step.jobs:
        return await store.swap_schedule(swap)
    return await store.swap_schedule(
        swap, Batch(id=step.jobs[0].id, jobs=step.jobs, limits=step.limits, forced=step.forced)
    )


async def find_runs(store: Store, jobs: Sequence[bytes]) -> Mapping[bytes, SeenRun | None]:
    """The current state of these jobs; None for jobs that were deleted."""
    seen: dict[bytes, SeenRun | None] = dict.fromkeys(jobs)
    for start in range(0, len(jobs), _PAGE):
        ids = tuple(jobs[start : start + _PAGE])
        cursor: str | None = None
        while True:
            found = await store.find(Query(ids=ids), limit=_PAGE, cursor=cursor)
            seen |= {row.id: _seen_run(row) for row in found.jobs}
            cursor = found.cursor
            if cursor is None:
                break
    return seen


async def remember_forgotten(store: Store, name: str, plan: SchedulePlan, history: int) -> SchedulePlan:
    """The plan, before its ``history`` grows: it then also knows until when its records were deleted before."""
    if history <= plan.definition.history:
        return plan
    return replace(plan, forgotten=known_from(plan, await store.schedule_runs(name, plan.definition.history)))


def known_from(plan: SchedulePlan, runs: Sequence[ScheduleRun]) -> int:
    """The moment from which all occurrences have a record. ``runs`` are all records that are stored."""
    if len(runs) < plan.definition.history:
        return plan.forgotten
    return max(plan.forgotten, runs[-1].at)


def _seen_run(row: JobRow) -> SeenRun:
    try:
        error = brief(row.error)
    except ValueError:
        error = "this version cannot read the error of the job"
    return SeenRun(state=row.state, reason=row.reason, started=row.started, ended=row.finished, error=error)
