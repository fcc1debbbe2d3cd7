"""One look at a schedule: what has ended, what is due, and when to look again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from mainspring.jobs.records import NewJob
from mainspring.limits.records import Limit
from mainspring.schedules.plan.fire import fire, superseded
from mainspring.schedules.plan.run_job import RunBuilder
from mainspring.schedules.plan.settle import SeenRun, come_back, settle
from mainspring.schedules.plan.state import OccurrenceRecord, SchedulePlan, run_of
from mainspring.schedules.records import ScheduleRun

SOONEST, LATEST, LATEST_CONTINUOUS = 1_000_000, 600_000_000, 60_000_000
"""Microseconds between two looks for the end of a run: a tenth of its age, within these. Each look is a write."""

Happened = Literal["missed", "skipped", "disabled", "enabled"]


class ScheduleNews(NamedTuple):
    """Something that hooks are told of."""

    what: Happened
    note: str = ""
    many: int = 0


class ScheduleStep(NamedTuple):
    """What a look at a schedule comes to: the next row, and what belongs to it."""

    plan: SchedulePlan
    look: int | None
    runs: tuple[ScheduleRun, ...] = ()
    jobs: tuple[NewJob, ...] = ()
    limits: tuple[Limit, ...] = ()
    cancel: tuple[bytes, ...] = ()
    """Jobs to cancel after the exchange: they make way for a later run. Each look says it again until they have
    ended, so it does not matter who forgets it."""
    news: tuple[ScheduleNews, ...] = ()
    forced: bool = False
    """Its jobs wait for nobody."""


def step(
    name: str, plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None], new_id: Callable[[], bytes]
) -> ScheduleStep:
    """The next row. ``seen`` are the jobs of the open runs, None for one that is gone."""
    before = plan
    plan, runs = settle(plan, now, seen)
    plan = come_back(plan, now)
    news = changes(before, plan)
    if plan.definition.mode == "continuous" and plan.due is not None:  # the clock may have gone back
        plan = replace(plan, due=min(plan.due, now + plan.definition.min_pause))
    jobs: list[NewJob] = []
    making = RunBuilder(name, plan.definition, new_id)
    if plan.enabled and plan.due is not None and plan.due <= now:
        states = {job: each.state for job, each in seen.items() if each is not None}
        fired = fire(plan, now, making, states)
        plan, jobs = fired.plan, fired.jobs
        runs += fired.runs
        if fired.missed:
            news.append(ScheduleNews("missed", plan.definition.misfire, fired.missed))
        if fired.passed:
            news.append(ScheduleNews("skipped", fired.passed[-1], len(fired.passed)))
    limits = making.limits if jobs else ()
    return ScheduleStep(plan, look_of(plan, now), tuple(runs), tuple(jobs), limits, superseded(plan), tuple(news))


def look_of(plan: SchedulePlan, now: int) -> int | None:
    """When somebody has to look at it next."""
    latest = LATEST_CONTINUOUS if plan.definition.mode == "continuous" else LATEST
    ages = [now - run.made for run in plan.open]
    moments = [now + min(max(min(ages) // 10, SOONEST), latest)] if ages else []
    if plan.enabled and plan.due is not None:
        moments.append(plan.due)
    if plan.back_at is not None:
        moments.append(plan.back_at)
    return min(moments, default=None)


def changes(before: SchedulePlan, after: SchedulePlan) -> list[ScheduleNews]:
    """What is told of a schedule that is on or off, and was not before."""
    if before.enabled and not after.enabled:
        return [ScheduleNews("disabled", after.note, after.failures)]
    return [ScheduleNews("enabled", "on trial")] if after.enabled and not before.enabled else []


def put_off(plan: SchedulePlan, now: int) -> ScheduleStep:
    """Nothing is done yet, for there is no room for its jobs: it stays due, and somebody looks again soon."""
    return ScheduleStep(plan, now + SOONEST)


def rejected(made: ScheduleStep, now: int, note: str) -> ScheduleStep:
    """The same look, where the store would not take the jobs: nothing runs, and the records say why."""
    ids = {job.id for job in made.jobs}
    runs = tuple(
        run if run.job not in ids else run_of(run.at, OccurrenceRecord("rejected", now, note)) for run in made.runs
    )
    plan = _without(made.plan, ids, now)
    return ScheduleStep(plan, look_of(plan, now), runs, news=(*made.news, ScheduleNews("skipped", note, len(ids))))


def had(made: ScheduleStep, now: int, at: int) -> ScheduleStep:
    """The same look, where this occurrence has a job already (somebody backfilled it): that one stands for it."""
    ids = {run.job for run in made.runs if run.at == at and run.job is not None}
    plan = _without(made.plan, ids, now)
    runs = tuple(run for run in made.runs if run.at != at)
    jobs = tuple(job for job in made.jobs if job.id not in ids)
    return made._replace(plan=plan, look=look_of(plan, now), runs=runs, jobs=jobs, cancel=superseded(plan))


def answered(plan: SchedulePlan, now: int, others: Mapping[bytes, bytes]) -> ScheduleStep:
    """Runs whose jobs were not made, for others have their unique keys: by job, the other one."""
    runs = tuple(
        run_of(run.at, OccurrenceRecord("skipped", now, f"job {UUID(bytes=others[run.job])} has its unique key"))
        for run in plan.open if run.job in others
    )  # fmt: skip
    plan = _without(plan, others, now)
    return ScheduleStep(
        plan, look_of(plan, now), runs, news=(ScheduleNews("skipped", "another job has its unique key", len(others)),)
    )


def _without(plan: SchedulePlan, jobs: Collection[bytes], now: int) -> SchedulePlan:
    """These runs were not made."""
    plan = replace(plan, open=tuple(run for run in plan.open if run.job not in jobs))
    if plan.definition.mode == "continuous" and not plan.open and plan.due is None:
        return replace(plan, due=now + max(plan.definition.min_pause, SOONEST))
    return plan
