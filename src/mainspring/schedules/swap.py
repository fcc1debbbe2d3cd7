"""Read and write the stored state of schedules: compare-and-set of one row, its runs and its jobs.

Used by the scheduler, by the sync of declared schedules, and by operators' changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from mainspring.codec.failures import brief
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptRow, JobBatch, JobRow
from mainspring.schedules import plan as planning
from mainspring.schedules.plan import Definition, LastSuccess, SchedulePlan, ScheduleStep, SeenRun, Successes
from mainspring.schedules.plan.settle import ENDED_RUNS
from mainspring.schedules.plan.state import EndedRun, OpenRun
from mainspring.schedules.records import ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult
from mainspring.states import FINAL
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
    return await store.swap_schedule(swap, JobBatch(id=step.jobs[0].id, jobs=step.jobs, limits=step.limits))


async def find_runs(
    store: Store, jobs: Sequence[bytes], starts: Collection[bytes] = ()
) -> Mapping[bytes, SeenRun | None]:
    """The current state of these jobs; None for jobs that were deleted. For the jobs in ``starts``, also the moment of
    the first claim."""
    seen: dict[bytes, SeenRun | None] = dict.fromkeys(jobs)
    for start in range(0, len(jobs), _PAGE):
        ids = tuple(jobs[start : start + _PAGE])
        cursor: str | None = None
        while True:
            found = await store.find(Query(ids=ids), limit=_PAGE, cursor=cursor)
            for row in found.jobs:
                seen[row.id] = _seen_run(row, await _first_start(store, row) if row.id in starts else None)
            cursor = found.cursor
            if cursor is None:
                break
    return seen


def jobs_to_find(plan: SchedulePlan, *, ended: bool) -> list[bytes]:
    """The jobs that a step of the schedule looks at; with ``ended``, also those that a retry by hand may have ended
    again."""
    return [run.job for run in plan.open] + [each.run.job for each in plan.ended if ended]


def unseen_starts(plan: SchedulePlan) -> list[bytes]:
    """The jobs of the starts that no scheduler has seen yet: their first claim matters."""
    return [job for start in plan.starts for job in start.jobs]


async def load_successes(store: Store, names: Sequence[str]) -> Successes:
    """The last success of each of these schedules, as their rows have it. Rows of a newer version are left out."""
    found: dict[str, LastSuccess | None] = {}
    for row in await store.schedules(names) if names else []:
        with suppress(ValueError):
            found[row.name] = planning.decode(row.doc).success
    return found


async def load_new_successes(store: Store, plan: SchedulePlan | None, definition: Definition) -> Successes:
    """The last success of each dependency that the definition adds to the plan: it does not count for the schedule."""
    known = () if plan is None else plan.used
    return await load_successes(store, [name for name in definition.depends_on if name not in known])


async def mark_needed(store: Store, name: str, plan: SchedulePlan) -> SchedulePlan:
    """The plan of a schedule that another one depends on from now on. It knows its last ended runs: a retry by hand may
    end them again, and its success counts."""
    open_jobs = {run.job for run in plan.open}
    ended = {
        run.job: run for run in await store.schedule_runs(name, plan.definition.history)
        if run.job is not None and run.job not in open_jobs
    }  # fmt: skip
    jobs = [*ended][:ENDED_RUNS]
    seen = await find_runs(store, jobs)
    return replace(
        plan, needed=True, ended=tuple(_ended_run(ended[id], job) for id in reversed(jobs) if (job := seen[id])),
    )  # fmt: skip


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


def _ended_run(run: ScheduleRun, job: SeenRun) -> EndedRun:
    """The record of a run that has ended. A retry of it may be under way: the end of that epoch is still to come."""
    record, epoch = planning.decode_run(run), job.epoch if job.state in FINAL else job.epoch - 1
    return EndedRun(OpenRun(run.at, run.job or b"", record.made, record.what), epoch)


async def _first_start(store: Store, row: JobRow) -> int | None:
    """When the job was claimed first; None if it never was, or if its workers handed it back before it began."""
    if row.started is None:
        return None
    moments = [each.started for each in await store.attempts(row.id) if not _was_handed_back(each)]
    return min([*moments, row.started]) if row.attempt else min(moments, default=None)


def _was_handed_back(attempt: AttemptRow) -> bool:
    """Whether the worker handed the job back before its body began: it had claimed the job ahead of a free slot."""
    return attempt.outcome is Outcome.INTERRUPTED and attempt.ran == 0


def _seen_run(row: JobRow, first_started: int | None) -> SeenRun:
    try:
        error = brief(row.error)
    except ValueError:
        error = "this version cannot read the error of the job"
    return SeenRun(
        state=row.state, reason=row.reason, started=row.started, ended=row.finished, ran=row.ran, error=error,
        attempt=row.attempt, epoch=row.epoch, first_started=first_started,
    )  # fmt: skip
