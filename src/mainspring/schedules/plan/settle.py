"""Takes in the runs that have ended: counts failures in a row, disables a failing schedule, sets the next start."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from mainspring.schedules.plan.state import (
    Definition,
    EndedRun,
    LastOutcome,
    LastSuccess,
    OccurrenceRecord,
    OpenRun,
    SchedulePlan,
    encode_run,
)
from mainspring.schedules.records import ScheduleRun
from mainspring.states import FINAL, Reason, State

MAX_DISABLED = 6 * 3_600_000_000
"""Microseconds. A schedule that failures disabled is enabled on trial after this time at the latest."""

ENDED_RUNS = 10
"""The number of ended runs that a row remembers, because a retry by hand may end them again."""


class SeenRun(msgspec.Struct, frozen=True, kw_only=True):
    """The job of a run, as the store returned it."""

    state: State
    reason: Reason | None = None
    started: int | None = None
    ended: int | None = None
    ran: int | None = None
    error: str = ""
    attempt: int = 1
    epoch: int = 1
    first_started: int | None = None
    """When the job was claimed first, in any epoch; None if that is not known."""

    @property
    def has_started(self) -> bool:
        """Whether the job was ever claimed. A snooze and the loss of a worker give an attempt back."""
        return self.first_started is not None or self.attempt > 0


def settle(
    plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None]
) -> tuple[SchedulePlan, list[ScheduleRun]]:
    """Record the runs that have ended, in the order of their ends.

    ``seen`` maps the id of a job to the job, or to None if the job was deleted. A job that was not looked up has no
    entry, and its run stays open.
    """
    plan, runs = _settle_retried(plan, now, seen)
    ended = [(run, seen[run.job]) for run in plan.open if run.job in seen and _has_ended(seen[run.job])]
    ended.sort(key=lambda pair: _end_of(pair[1], now))
    for run, job in ended:
        plan = _close_run(plan, run, job, now)
        runs.append(_record_end(run, job, now))
    if ended and plan.definition.mode == "continuous" and plan.enabled:
        plan = replace(plan, due=next_continuous_run(plan, now))
    return plan, runs


def reenable_on_trial(plan: SchedulePlan, now: int) -> SchedulePlan:
    """Enable a schedule that failures disabled, if its pause is over. The next run decides whether it stays enabled.

    Occurrences from the disabled time do not run.
    """
    if plan.enabled or plan.back_at is None:
        return plan
    pause = disabled_pause(plan.definition, plan.trips - 1)
    back_at = min(plan.back_at, now + pause) if pause else None  # the clock may have gone back, or the pause changed
    if back_at is None or back_at > now:
        return replace(plan, back_at=back_at)
    return restart(replace(plan, enabled=True, off="", back_at=None, trial=True), now)


def restart(plan: SchedulePlan, now: int) -> SchedulePlan:
    """Set the next occurrence after ``now``. Earlier occurrences do not run."""
    if plan.definition.mode == "continuous":
        return replace(plan, due=next_continuous_run(plan, now))
    watermark = max(plan.watermark, now)
    due = None if plan.rule is None else plan.rule.next(watermark)
    return replace(plan, due=due, watermark=watermark)


def next_continuous_run(plan: SchedulePlan, now: int) -> int | None:
    """Return when the next run of mode ``continuous`` may start; None while a run is open or an occurrence waits."""
    if plan.open or plan.waiting is not None:
        return None
    pause = plan.definition.min_pause
    return now if plan.last is None else min(max(plan.last.ended + pause, now), now + pause)


def disabled_pause(definition: Definition, trips: int) -> int:
    """Return how long failures disable a schedule that they have disabled ``trips`` times before, in microseconds.

    The pause doubles each time. 0 means: until an operator enables the schedule.
    """
    first = definition.reenable_after
    return min(first << min(max(trips, 0), 30), max(MAX_DISABLED, first))


def _has_ended(job: SeenRun | None) -> bool:
    return job is None or job.state in FINAL


def _end_of(job: SeenRun | None, now: int) -> int:
    return now if job is None or job.ended is None else job.ended


def _close_run(plan: SchedulePlan, run: OpenRun, job: SeenRun | None, now: int) -> SchedulePlan:
    end = _end_of(job, now)
    state = None if job is None else job.state
    left = tuple(each for each in plan.open if each.job != run.job)
    plan = replace(plan, open=left, last=LastOutcome(run.at, run.job, state, end))
    if job is not None and plan.needed:
        plan = replace(plan, ended=(*plan.ended, EndedRun(run, job.epoch))[-ENDED_RUNS:])
    if state is State.SUCCEEDED:
        plan = _record_success(plan, end, now)
    if job is None or state is State.CANCELLED or run.what == "backfilled":
        return plan  # such an end does not predict the end of the next run
    if state is State.SUCCEEDED:
        return replace(plan, failures=0, trial=False, trips=0, succeeded=end)
    plan = replace(plan, failures=plan.failures + 1, failed=end, error=job.error)
    most = plan.definition.max_failures
    if not plan.enabled or not most or (plan.failures < most and not plan.trial):
        return plan
    pause = disabled_pause(plan.definition, plan.trips)
    return replace(
        plan, enabled=False, off="failures", note=job.error, off_at=now, trial=False, trips=plan.trips + 1,
        back_at=now + pause if pause else None,
    )  # fmt: skip


def _settle_retried(
    plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None]
) -> tuple[SchedulePlan, list[ScheduleRun]]:
    """Take in the ended runs that a retry by hand has ended again. They do not count among failures in a row."""
    runs: list[ScheduleRun] = []
    left: list[EndedRun] = []
    for each in plan.ended:
        job = seen.get(each.run.job)
        if each.run.job in seen and job is None:
            continue
        if job is not None and job.state in FINAL and job.epoch > each.epoch:
            runs.append(_record_end(each.run, job, now))
            left.append(replace(each, epoch=job.epoch))
            if job.state is State.SUCCEEDED:
                plan = _record_success(plan, _end_of(job, now), now)
        else:
            left.append(each)
    return replace(plan, ended=tuple(left)), runs


def _record_success(plan: SchedulePlan, end: int, now: int) -> SchedulePlan:
    """Raise the number that dependent schedules compare."""
    last = plan.success or LastSuccess(0, 0)
    return replace(plan, success=LastSuccess(max(last.number + 1, now), max(last.ended, end)))


def _record_end(run: OpenRun, job: SeenRun | None, now: int) -> ScheduleRun:
    if job is None:
        record = OccurrenceRecord(run.what, run.made, "its job was deleted before a scheduler saw its end", ended=now)
    else:
        record = OccurrenceRecord(
            run.what, run.made, state=job.state, reason=job.reason, started=job.started, ended=_end_of(job, now),
            ran=job.ran, error=job.error,
        )  # fmt: skip
    return encode_run(run.at, record, run.job)
