"""Runs that somebody asks for: now, or of occurrences that are over."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec.structs import replace

from mainspring.codec import loads
from mainspring.common.clock import to_datetime
from mainspring.common.ids import raw_ids
from mainspring.errors import (
    InvalidOption,
    KeyConflict,
    KeyTaken,
    NotTriggered,
    QueueDisabled,
    QueueDraining,
    QueueFull,
)
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.schedules import plan as planning
from mainspring.schedules.lookup import unknown
from mainspring.schedules.plan import SchedulePlan, ScheduleStep, TriggerRefusal
from mainspring.schedules.plan.run_job import MOST
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.service import exchange, remembered_from, seen_by
from mainspring.schedules.update import CurrentSchedule, ScheduleChange, change
from mainspring.states import Action
from mainspring.tasks.notify import announce_schedule

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.stores.base import Store

_REFUSED = (QueueDraining, QueueDisabled, QueueFull, KeyTaken, KeyConflict)
_FORCE = "With force it runs all the same: trigger(name, force=True), or --force on the command line."


async def trigger(app: Mainspring, name: str, *, force: bool) -> Job[Any]:
    """A run now, or ``NotTriggered``."""
    store = await app.client.store()
    ids = raw_ids(1)

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        plan = await _found(store, name, current)
        if current.again and await _arrived(store, name, ids[0]):
            return None
        seen = await seen_by(store, [run.job for run in plan.open])
        earliest = current.taken + 1
        made = planning.trigger(name, plan, current.now, seen, lambda: ids[0], force=force, earliest=earliest)
        if isinstance(made, TriggerRefusal):
            raise _refused(name, made, force=force)
        return made

    changed = await _changed(store, name, decide)
    if isinstance(changed.made, ScheduleStep) and changed.said is not None:
        for news in changed.made.news:
            announce_schedule(app.hooks, name, news, changed.said.now)
    await _answered(store, name, changed)
    if isinstance(changed.made, ScheduleStep) and changed.made.cancel:
        reason = f"schedule {name!r} was triggered"
        await store.act(Action.CANCEL, Query(ids=changed.made.cancel), limit=MOST, reason=reason)
    return _handle(app, changed, ids[0])


async def backfill(app: Mainspring, name: str, start: int, end: int) -> list[Job[Any]]:
    """Runs of the occurrences in [start, end) that are over and have none; large ones in several steps."""
    found: list[Job[Any]] = []
    after: int | None = start
    while after is not None:
        jobs, after = await _backfill(app, name, after, end)
        found += jobs
    return found


async def _backfill(app: Mainspring, name: str, start: int, end: int) -> tuple[list[Job[Any]], int | None]:
    """One step; and where the next begins, if it was not the last."""
    store = await app.client.store()
    ids = raw_ids(MOST)
    left: int | None = None

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        nonlocal left
        plan = await _found(store, name, current)
        if current.again and await _arrived(store, name, ids[0]):
            return None
        left = None
        if plan.rule is None:
            hint = "Only one with cron, every, at or after has occurrences."
            why = f"has the mode {plan.definition.mode!r}"
            raise InvalidOption("schedule", name, why, subject="app.schedules.backfill", hint=hint)
        before = min(end, current.now)
        moments = list(islice(takewhile(lambda at: at < before, plan.rule.walk(start - 1)), _COUNTED))
        runs = await store.schedule_runs(name, plan.definition.history)
        have = {run.at for run in runs if run.job is not None}
        moments = [at for at in moments if at not in have]
        if not moments:
            return None
        if len(moments) > MOST:
            raise _too_many(name, f"{MOST} occurrences and more" if len(moments) >= _COUNTED else str(len(moments)))
        _refuse_forgotten(plan, runs, moments)
        fresh: Iterator[bytes] = iter(ids)
        made = planning.backfill(name, plan, current.now, moments, lambda: next(fresh))
        if isinstance(made, TriggerRefusal):
            raise NotTriggered(name, made.why)
        left = moments[len(made.jobs)] if len(made.jobs) < len(moments) else None
        return made

    changed = await _changed(store, name, decide)
    await _answered(store, name, changed)
    made = changed.made
    if isinstance(made, ScheduleStep):
        return [_handle(app, changed, job.id) for job in made.jobs], left
    return [_handle(app, changed, run.job) for run in await store.schedule_runs(name, 10_000) if run.job in ids], left


_COUNTED = 10 * MOST


def _refuse_forgotten(plan: SchedulePlan, runs: Sequence[ScheduleRun], moments: Sequence[int]) -> None:
    """What a run of an occurrence came to has to be remembered: else the next backfill would run it again."""
    known, most = remembered_from(plan, runs), plan.definition.history
    if moments[0] < known:
        why = f"lies before {to_datetime(known).isoformat(' ')}: what became of earlier occurrences is not remembered"
    elif moments[0] not in sorted({*moments, *(run.at for run in runs)})[-most:]:
        why = f"would not be remembered: the schedule keeps the {most} latest"
    else:
        return
    hint = "history= of the schedule says how many occurrences it remembers; a larger one helps from then on."
    when = to_datetime(moments[0]).isoformat(" ")
    raise InvalidOption("start", when, why, subject="app.schedules.backfill", hint=hint)


def _too_many(name: str, many: str) -> InvalidOption:
    hint = f"{MOST} are the most at once: give a shorter time."
    return InvalidOption("end", name, f"means {many} occurrences", subject="app.schedules.backfill", hint=hint)


async def _changed(store: Store, name: str, decide: Any) -> ScheduleChange:
    try:
        return await change(store, name, decide)
    except _REFUSED as error:
        raise NotTriggered(name, error.message, hint=error.hint) from error


async def _answered(store: Store, name: str, changed: ScheduleChange) -> None:
    """Jobs that were not made, for others hold their unique keys, are no runs."""
    made, said = changed.made, changed.said
    if said is None or not isinstance(made, ScheduleStep):
        return
    others = {job.id: each.id for job, each in zip(made.jobs, said.enqueued, strict=True) if not each.created}
    if others:
        corrected = planning.answered(made.plan, said.now, others)
        await exchange(store, replace(changed.row, rev=said.rev), corrected)
    if others and len(others) == len(made.jobs):
        holder = UUID(bytes=next(iter(others.values())))
        raise NotTriggered(name, f"its unique key is held by job {holder}", holder)


async def _found(store: Store, name: str, current: CurrentSchedule) -> SchedulePlan:
    if current.plan is None:
        raise unknown(name, [row.name for row in await store.schedules()])
    return current.plan


async def _arrived(store: Store, name: str, job: bytes) -> bool:
    """Whether an exchange whose reply was lost has made this job."""
    return any(run.job == job for run in await store.schedule_runs(name, 1_000))


def _refused(name: str, refusal: TriggerRefusal, *, force: bool) -> NotTriggered:
    job = None if refusal.job is None else UUID(bytes=refusal.job)
    return NotTriggered(name, refusal.why, job, hint="" if force else _FORCE)


def _handle(app: Mainspring, changed: ScheduleChange, job: bytes | None) -> Job[Any]:
    made = changed.made
    plan = made.plan if isinstance(made, ScheduleStep) else planning.decode(changed.row.doc)
    task, id = plan.definition.job.task, UUID(bytes=job)
    known = app.tasks.find(task)
    return Job(id, task, app.client, loads) if known is None else known.job(id)
