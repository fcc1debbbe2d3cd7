"""One step of a schedule: take in ended runs, fire due occurrences, set the time of the next look."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from mainspring.jobs.records import NewJob
from mainspring.limits.records import Limit
from mainspring.schedules.plan.dependencies import NO_SUCCESSES, Successes, give_back_successes, note_starts
from mainspring.schedules.plan.fire import SOONEST, FireResult, drop_waiting, fire, runs_to_cancel, start_waiting
from mainspring.schedules.plan.run_job import RunBuilder
from mainspring.schedules.plan.settle import SeenRun, reenable_on_trial, settle
from mainspring.schedules.plan.state import OccurrenceRecord, SchedulePlan, encode_run
from mainspring.schedules.records import ALWAYS_DUE, ScheduleRun

LATEST, LATEST_CONTINUOUS = 600_000_000, 60_000_000
"""Microseconds between two looks for the end of a run: a tenth of its age, from ``SOONEST`` to these. A look is a
write."""

Happened = Literal["missed", "skipped", "disabled", "enabled"]


class ScheduleNews(NamedTuple):
    """An event of a schedule, for log lines and hooks."""

    what: Happened
    note: str = ""
    many: int = 0


class ScheduleStep(NamedTuple):
    """The result of one step: the next row, and what the store writes together with it."""

    plan: SchedulePlan
    look: int | None
    """When a scheduler must look at the schedule next; None: only after a change."""
    runs: tuple[ScheduleRun, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    limits: tuple[Limit, ...] = ()
    cancel: tuple[bytes, ...] = ()
    """Jobs to cancel after the swap, because a later run replaces them. Each look repeats them until they have ended,
    so a scheduler that dies between the swap and the cancel loses nothing."""
    news: tuple[ScheduleNews, ...] = ()


def step(
    name: str,
    plan: SchedulePlan,
    now: int,
    seen: Mapping[bytes, SeenRun | None],
    new_id: Callable[[], bytes],
    successes: Successes = NO_SUCCESSES,
) -> ScheduleStep:
    """Return the next row. ``seen`` has the jobs of the open runs; None for a job that was deleted.

    ``successes`` has the last success of each schedule that this one depends on, read after ``seen``.
    """
    before = plan
    plan, runs = settle(plan, now, seen)
    plan = reenable_on_trial(note_starts(plan, now, seen, successes), now)
    news = report_switch(before, plan)
    if plan.definition.mode == "continuous" and plan.due is not None:  # the clock may have gone back
        plan = replace(plan, due=min(plan.due, now + plan.definition.min_pause))
    jobs: list[NewJob] = []
    making = RunBuilder(name, plan.definition, new_id)
    dropped = drop_waiting(plan, now, successes)
    due = _fire_due(dropped.plan, now, making, successes)  # before the waiting one starts: they are coalesced into it
    started = start_waiting(due.plan, now, making, successes)
    plan = started.plan
    for part in (dropped, due, started):
        runs += part.runs
        jobs += part.jobs
        if part.missed:
            news.append(ScheduleNews("missed", plan.definition.misfire, part.missed))
        if part.passed:
            news.append(ScheduleNews("skipped", part.passed[-1], len(part.passed)))
    limits = making.limits if jobs else ()
    return ScheduleStep(
        plan, next_look(plan, now), tuple(runs), tuple(jobs), limits, runs_to_cancel(plan), tuple(news)
    )  # fmt: skip


def take_in(
    plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None], successes: Successes = NO_SUCCESSES
) -> ScheduleStep:
    """Return the row with the ends and starts of its runs, and without new runs."""
    after, runs = settle(plan, now, seen)
    after = note_starts(after, now, seen, successes)
    return ScheduleStep(after, next_look(after, now), tuple(runs), news=tuple(report_switch(plan, after)))


def next_look(plan: SchedulePlan, now: int) -> int | None:
    """Return when a scheduler must look at the schedule next, ``ALWAYS_DUE`` for each tick; None: only after a
    change."""
    latest = LATEST_CONTINUOUS if plan.definition.mode == "continuous" else LATEST
    ages = [now - run.made for run in plan.open]
    moments = [now + min(max(min(ages) // 10, SOONEST), latest)] if ages else []
    if plan.enabled and plan.due is not None:
        moments.append(plan.due)
    if plan.back_at is not None:
        moments.append(plan.back_at)
    if plan.waiting is not None:  # schedulers look at it in each tick, and write only what has changed
        moments.append(ALWAYS_DUE)
    return min(moments, default=None)


def _fire_due(plan: SchedulePlan, now: int, making: RunBuilder, successes: Successes) -> FireResult:
    is_due = plan.enabled and plan.due is not None and plan.due <= now
    return fire(plan, now, making, successes) if is_due else FireResult(plan, [], [])


def report_switch(before: SchedulePlan, after: SchedulePlan) -> list[ScheduleNews]:
    """Return the event of a step that disabled or enabled the schedule; [] if neither happened."""
    if before.enabled and not after.enabled:
        return [ScheduleNews("disabled", after.note, after.failures)]
    return [ScheduleNews("enabled", "on trial")] if after.enabled and not before.enabled else []


# ---- corrections, when the store answers a step ------------------------------------------------------


def postpone(plan: SchedulePlan, now: int) -> ScheduleStep:
    """Return a step without runs, because the queue is full: the occurrence stays due, and a scheduler looks soon."""
    return ScheduleStep(plan, now + SOONEST)


def reject_jobs(made: ScheduleStep, now: int, note: str) -> ScheduleStep:
    """Return the same step without its jobs, because the store refused them. The records give the reason."""
    ids = {job.id for job in made.jobs}
    runs = tuple(
        run if run.job not in ids else encode_run(run.at, OccurrenceRecord("rejected", now, note)) for run in made.runs
    )
    plan = _remove_runs(made.plan, ids, now)
    return ScheduleStep(plan, next_look(plan, now), runs, news=(*made.news, ScheduleNews("skipped", note, len(ids))))


def use_existing_job(made: ScheduleStep, now: int, at: int) -> ScheduleStep:
    """Return the same step without the run of the occurrence ``at``, which has a job already, by a backfill."""
    ids = {run.job for run in made.runs if run.at == at and run.job is not None}
    plan = _remove_runs(made.plan, ids, now)
    runs = tuple(run for run in made.runs if run.at != at)
    jobs = tuple(job for job in made.jobs if job.id not in ids)
    return made._replace(plan=plan, look=next_look(plan, now), runs=runs, jobs=jobs, cancel=runs_to_cancel(plan))


def skip_taken_keys(plan: SchedulePlan, now: int, others: Mapping[bytes, bytes]) -> ScheduleStep:
    """Return a step that records the runs whose jobs were not made, because other jobs hold their unique keys.

    ``others`` maps the id of the job that was not made to the id of the job that holds the key.
    """
    runs = tuple(
        encode_run(run.at, OccurrenceRecord("skipped", now, f"job {UUID(bytes=others[run.job])} holds its unique key"))
        for run in plan.open if run.job in others
    )  # fmt: skip
    plan = _remove_runs(plan, others, now)
    news = ScheduleNews("skipped", "another job holds its unique key", len(others))
    return ScheduleStep(plan, next_look(plan, now), runs, news=(news,))


def _remove_runs(plan: SchedulePlan, jobs: Collection[bytes], now: int) -> SchedulePlan:
    """Remove open runs whose jobs were not made."""
    plan = replace(give_back_successes(plan, jobs), open=tuple(run for run in plan.open if run.job not in jobs))
    if plan.definition.mode == "continuous" and not plan.open and plan.waiting is None and plan.due is None:
        return replace(plan, due=now + max(plan.definition.min_pause, SOONEST))
    return plan
