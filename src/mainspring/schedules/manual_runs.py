"""Runs that a user requests: ``trigger`` makes a run now, ``backfill`` makes runs of past occurrences."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
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
from mainspring.schedules.compare_and_set import CurrentSchedule, Decide, ScheduleChange, change_schedule
from mainspring.schedules.info import unknown_schedule
from mainspring.schedules.plan import SchedulePlan, ScheduleStep, Successes, TriggerRefusal
from mainspring.schedules.plan.run_job import MAX_RUNS
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.swap import (
    find_runs,
    jobs_to_find,
    known_from,
    load_successes,
    swap_row,
    unseen_starts,
)
from mainspring.states import Action
from mainspring.tasks.notify import announce_schedule

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.stores.base import Store

_REFUSED = (QueueDraining, QueueDisabled, QueueFull, KeyTaken, KeyConflict)
_FORCE = "To run it anyway: trigger(name, force=True), or --force on the command line."
_MAX_COUNTED = 10 * MAX_RUNS
"""Occurrences of a backfill are counted up to this number, for the error message."""


async def trigger(app: Mainspring, name: str, *, force: bool) -> Job[Any]:
    """Make a run now; ``NotTriggered`` if the rules of the schedule do not allow it."""
    store = await app.client.store()
    ids = raw_ids(1)

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        plan = await _require(store, name, current)
        if current.again and await _has_run(store, name, ids[0]):
            return None
        seen = await find_runs(store, jobs_to_find(plan, ended=False), unseen_starts(plan))
        successes = await take_in_dependencies(store, plan, partial(_announce, app))
        earliest = current.taken + 1
        made = planning.trigger(
            name, plan, current.now, seen, lambda: ids[0], successes, force=force, earliest=earliest
        )
        if isinstance(made, TriggerRefusal):
            raise _not_triggered(name, made, force=force)
        return made

    changed = await _change(store, name, decide)
    _announce(app, name, changed)
    await _skip_taken_keys(store, name, changed)
    if isinstance(changed.made, ScheduleStep) and changed.made.cancel:
        reason = f"schedule {name!r} was triggered"
        await store.act(Action.CANCEL, Query(ids=changed.made.cancel), limit=MAX_RUNS, reason=reason)
    return _build_handle(app, changed, ids[0])


async def backfill(app: Mainspring, name: str, start: int, end: int) -> list[Job[Any]]:
    """Make runs of the past occurrences in [start, end) that have none. Large jobs need several steps."""
    found: list[Job[Any]] = []
    after: int | None = start
    while after is not None:
        jobs, after = await _backfill_step(app, name, after, end, more=bool(found))
        found += jobs
    return found


async def _backfill_step(
    app: Mainspring, name: str, start: int, end: int, *, more: bool
) -> tuple[list[Job[Any]], int | None]:
    """Make the runs of one step; ``more``: an earlier step of this backfill made runs. Return their jobs, and the start
    of the next step or None."""
    store = await app.client.store()
    ids = raw_ids(MAX_RUNS)
    left: int | None = None

    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        nonlocal left
        plan = await _require(store, name, current)
        if current.again and await _has_run(store, name, ids[0]):
            return None
        left = None
        if plan.rule is None:
            hint = "Only a schedule with cron, every, at or after has occurrences."
            why = f"has the mode {plan.definition.mode!r}"
            raise InvalidOption("schedule", name, why, subject="app.schedules.backfill", hint=hint)
        before = min(end, current.now)
        _refuse_empty(plan, start, end, current.now)
        moments = list(islice(takewhile(lambda at: at < before, plan.rule.walk(start - 1)), _MAX_COUNTED))
        runs = await store.schedule_runs(name, plan.definition.history)
        have = {run.at for run in runs if run.job is not None}
        have |= set() if plan.waiting is None else {plan.waiting.at}
        moments = [at for at in moments if at not in have]
        if not moments:
            return None
        if len(moments) > MAX_RUNS:
            raise _too_many(name, len(moments))
        _refuse_unrecorded(plan, runs, moments)
        fresh: Iterator[bytes] = iter(ids)
        seen = await find_runs(store, jobs_to_find(plan, ended=False), unseen_starts(plan))
        successes = await take_in_dependencies(store, plan, partial(_announce, app))
        made = planning.backfill(name, plan, current.now, moments, lambda: next(fresh), seen, successes, more=more)
        if isinstance(made, TriggerRefusal):
            raise NotTriggered(name, made.why)
        left = moments[len(made.jobs)] if len(made.jobs) < len(moments) else None
        return made

    changed = await _change(store, name, decide)
    await _skip_taken_keys(store, name, changed)
    made = changed.made
    if isinstance(made, ScheduleStep):
        return [_build_handle(app, changed, job.id) for job in made.jobs], left
    runs = await store.schedule_runs(name, 10_000)
    return [_build_handle(app, changed, run.job) for run in runs if run.job in ids], left


def _refuse_empty(plan: SchedulePlan, start: int, end: int, now: int) -> None:
    """Refuse a time that has not come, and a time before the first occurrence of the rule: it has no occurrence."""
    if start >= now:
        hint = "A backfill makes runs of past occurrences. The schedule itself runs the later ones."
        when = to_datetime(start).isoformat(" ")
        raise InvalidOption("start", when, "is in the future", subject="app.schedules.backfill", hint=hint)
    first = None if plan.rule is None else next(iter(plan.rule.walk(0)), None)
    if first is not None and first >= end:
        hint = "The schedule has no earlier occurrence, so there is nothing to make up for."
        why = f"is before the first occurrence of the schedule, {to_datetime(first).isoformat(' ')}"
        when = to_datetime(end).isoformat(" ")
        raise InvalidOption("end", when, why, subject="app.schedules.backfill", hint=hint)


def _refuse_unrecorded(plan: SchedulePlan, runs: Sequence[ScheduleRun], moments: Sequence[int]) -> None:
    """Refuse occurrences whose records are gone or would be dropped: the next backfill would run them again."""
    known, most = known_from(plan, runs), plan.definition.history
    if moments[0] < known:
        why = f"is before {to_datetime(known).isoformat(' ')}: the history of earlier occurrences is gone"
    elif moments[0] not in sorted({*moments, *(run.at for run in runs)})[-most:]:
        why = f"would not stay in the history: the schedule keeps the {most} latest occurrences"
    else:
        return
    hint = "history= of the schedule sets how many occurrences it keeps. A larger number works for later occurrences."
    when = to_datetime(moments[0]).isoformat(" ")
    raise InvalidOption("start", when, why, subject="app.schedules.backfill", hint=hint)


def _too_many(name: str, count: int) -> InvalidOption:
    many = f"at least {count}" if count >= _MAX_COUNTED else str(count)
    hint = f"A backfill makes at most {MAX_RUNS} runs: give a shorter time."
    return InvalidOption("end", name, f"gives {many} occurrences", subject="app.schedules.backfill", hint=hint)


async def _change(store: Store, name: str, decide: Decide) -> ScheduleChange:
    try:
        return await change_schedule(store, name, decide)
    except _REFUSED as error:
        raise NotTriggered(name, error.message, hint=error.hint) from error


async def take_in_dependencies(
    store: Store, plan: SchedulePlan, announce: Callable[[str, ScheduleChange], None], above: Collection[str] = ()
) -> Successes:
    """Take in the ends of the runs of the schedules that this one depends on. Return their last successes.

    No scheduler may have seen a success yet that the caller knows of. The successes that a dependency itself waits for
    are taken in first if a start of it is noted here: it uses each success from before it. ``above``: the schedules
    that lead here, in case two programs have stored a cycle.
    """
    for name in plan.definition.depends_on:
        with suppress(InvalidOption):  # a newer version stored it: its success is not known here
            announce(name, await _take_in_ends(store, name, announce, above))
    return await load_successes(store, plan.definition.depends_on)


async def _take_in_ends(
    store: Store, name: str, announce: Callable[[str, ScheduleChange], None], above: Collection[str]
) -> ScheduleChange:
    async def decide(current: CurrentSchedule) -> ScheduleStep | None:
        plan = current.plan
        if plan is None:
            return None
        seen = await find_runs(store, jobs_to_find(plan, ended=True), unseen_starts(plan))
        if plan.starts and name not in above:
            successes = await take_in_dependencies(store, plan, announce, (*above, name))
        else:
            successes = await load_successes(store, plan.definition.depends_on)
        made = planning.take_in(plan, current.now, seen, successes)
        return None if made.plan == plan else made

    return await change_schedule(store, name, decide)


def _announce(app: Mainspring, name: str, changed: ScheduleChange) -> None:
    if isinstance(changed.made, ScheduleStep) and changed.said is not None:
        for news in changed.made.news:
            announce_schedule(app.hooks, name, news, changed.said.now)


async def _skip_taken_keys(store: Store, name: str, changed: ScheduleChange) -> None:
    """Correct the row if the store did not make a job because another job holds its unique key.

    ``NotTriggered`` if no job was made at all.
    """
    made, said = changed.made, changed.said
    if said is None or not isinstance(made, ScheduleStep):
        return
    others = {job.id: each.id for job, each in zip(made.jobs, said.enqueued, strict=True) if not each.created}
    if others:
        corrected = planning.skip_taken_keys(made.plan, said.now, others)
        await swap_row(store, replace(changed.row, rev=said.rev), corrected)
    if others and len(others) == len(made.jobs):
        holder = UUID(bytes=next(iter(others.values())))
        raise NotTriggered(name, f"job {holder} holds its unique key", holder)


async def _require(store: Store, name: str, current: CurrentSchedule) -> SchedulePlan:
    if current.plan is None:
        raise unknown_schedule(name, [row.name for row in await store.schedules()])
    return current.plan


async def _has_run(store: Store, name: str, job: bytes) -> bool:
    """Whether an earlier swap, whose reply was lost, made this job."""
    return any(run.job == job for run in await store.schedule_runs(name, 1_000))


def _not_triggered(name: str, refusal: TriggerRefusal, *, force: bool) -> NotTriggered:
    job = None if refusal.job is None else UUID(bytes=refusal.job)
    return NotTriggered(name, refusal.why, job, hint="" if force else _FORCE)


def _build_handle(app: Mainspring, changed: ScheduleChange, job: bytes | None) -> Job[Any]:
    made = changed.made
    plan = made.plan if isinstance(made, ScheduleStep) else planning.decode(changed.row.doc)
    task, id = plan.definition.job.task, UUID(bytes=job)
    known = app.tasks.find(task)
    return Job(id, task, app.client, loads) if known is None else known.job(id)
