"""What the ends of runs come to: failures in a row, auto-disable, and when the next one may begin."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from mainspring.schedules.plan.state import Definition, LastOutcome, OccurrenceRecord, OpenRun, SchedulePlan, run_of
from mainspring.schedules.records import ScheduleRun
from mainspring.states import FINAL, Reason, State

LONGEST = 6 * 3_600_000_000
"""A schedule that failures disabled is tried again after this time at the latest."""


class SeenRun(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a run as it was found."""

    state: State
    reason: Reason | None = None
    started: int | None = None
    ended: int | None = None
    error: str = ""


def settle(
    plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None]
) -> tuple[SchedulePlan, list[ScheduleRun]]:
    """Take in the runs that have ended, in the order of their ends. ``seen`` has None for a job that is gone, and
    nothing for one that nobody looked for."""
    ended = [(run, seen[run.job]) for run in plan.open if run.job in seen and _is_over(seen[run.job])]
    ended.sort(key=lambda pair: _end(pair[1], now))
    runs = []
    for run, job in ended:
        plan = _ended(plan, run, job, now)
        runs.append(_settled(run, job, now))
    if ended and plan.definition.mode == "continuous" and plan.enabled:
        plan = replace(plan, due=after_pause(plan, now))
    return plan, runs


def come_back(plan: SchedulePlan, now: int) -> SchedulePlan:
    """On trial again, if failures have disabled it and that time is over. What was due meanwhile is not made up for."""
    if plan.enabled or plan.back_at is None:
        return plan
    pause = pause_of(plan.definition, plan.trips - 1)
    back_at = min(plan.back_at, now + pause) if pause else None  # the clock may have gone back, or the pause changed
    if back_at is None or back_at > now:
        return replace(plan, back_at=back_at)
    return restarted(replace(plan, enabled=True, off="", back_at=None, trial=True), now)


def restarted(plan: SchedulePlan, now: int) -> SchedulePlan:
    """Due again from now on."""
    if plan.definition.mode == "continuous":
        return replace(plan, due=after_pause(plan, now))
    watermark = max(plan.watermark, now)
    due = None if plan.rule is None else plan.rule.next(watermark)
    return replace(plan, due=due, watermark=watermark)


def after_pause(plan: SchedulePlan, now: int) -> int | None:
    """When the next run of mode ``continuous`` may begin; None while one is there."""
    if plan.open:
        return None
    pause = plan.definition.min_pause
    return now if plan.last is None else min(max(plan.last.ended + pause, now), now + pause)


def pause_of(definition: Definition, trips: int) -> int:
    """How long failures disable it, when they have done so this often before; 0: until somebody enables it."""
    first = definition.reenable_after
    return min(first << min(max(trips, 0), 30), max(LONGEST, first))


def _is_over(job: SeenRun | None) -> bool:
    return job is None or job.state in FINAL


def _end(job: SeenRun | None, now: int) -> int:
    return now if job is None or job.ended is None else job.ended


def _ended(plan: SchedulePlan, run: OpenRun, job: SeenRun | None, now: int) -> SchedulePlan:
    end = _end(job, now)
    state = None if job is None else job.state
    left = tuple(each for each in plan.open if each.job != run.job)
    plan = replace(plan, open=left, last=LastOutcome(run.at, run.job, state, end))
    if job is None or state is State.CANCELLED or run.what == "backfilled":
        return plan  # that says nothing of how the next run will end
    if state is State.SUCCEEDED:
        return replace(plan, failures=0, trial=False, trips=0, succeeded=end)
    plan = replace(plan, failures=plan.failures + 1, failed=end, error=job.error)
    most = plan.definition.max_failures
    if not plan.enabled or not most or (plan.failures < most and not plan.trial):
        return plan
    pause = pause_of(plan.definition, plan.trips)
    return replace(
        plan, enabled=False, off="failures", note=job.error, off_at=now, trial=False, trips=plan.trips + 1,
        back_at=now + pause if pause else None,
    )  # fmt: skip


def _settled(run: OpenRun, job: SeenRun | None, now: int) -> ScheduleRun:
    if job is None:
        record = OccurrenceRecord(run.what, run.made, "its job is not there any more: nobody saw it end", ended=now)
    else:
        record = OccurrenceRecord(
            run.what, run.made, state=job.state, reason=job.reason, started=job.started, ended=_end(job, now),
            error=job.error,
        )  # fmt: skip
    return run_of(run.at, record, run.job)
