"""The scheduler: turns occurrences of schedules into jobs. Many schedulers may run; each occurrence fires once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from mainspring.common.ids import raw_id
from mainspring.errors import KeyConflict, KeyTaken, QueueDisabled, QueueDraining, QueueFull, StoreConflict
from mainspring.jobs.query import Query
from mainspring.schedules import plan as planning
from mainspring.schedules.plan import (
    LastSuccess,
    ScheduleNews,
    SchedulePlan,
    ScheduleStep,
    SeenRun,
    Successes,
    needs_successes,
)
from mainspring.schedules.records import ScheduleRow, SwapResult
from mainspring.schedules.store_time import StoreTime
from mainspring.schedules.swap import find_runs, jobs_to_find, swap_row, unseen_starts
from mainspring.states import Action
from mainspring.stores.base import Store
from mainspring.worker.services.base import Service

_BATCH = 200
_LOST_RACES = 5
"""If another scheduler was first at this many rows in succession, it works through the same rows: read them again."""
_REFUSED = (QueueDraining, QueueDisabled, QueueFull, KeyTaken, KeyConflict, StoreConflict)
_TRIES = 3
"""A conflict may be temporary. After this many tries it counts as permanent."""

_LOG_LEVELS = {"skipped": logging.INFO, "enabled": logging.INFO}

_RowPlan = tuple[ScheduleRow, SchedulePlan]
OnNews = Callable[[str, ScheduleNews, int], None]


class Scheduler(Service):
    """Ticks when the next schedule is due, and at least once a second: other processes declare and trigger too.

    While it is led, the leader looks once a second instead.

    ``on_news`` is called with the name of a schedule, the news and the store's time.
    """

    every = 1.0
    jitter = 0.0  # a due run must not wait
    on_demand = True

    def __init__(self, store: Store, *, on_news: OnNews | None = None) -> None:
        super().__init__(store)
        self._on_news = on_news
        self._ended: set[str] = set()
        self._waiting: set[str] = set()
        """Schedules with an occurrence that waits for other schedules. Their rows are due in each tick."""
        self.is_settled = True
        """Whether the ends of all runs that were reported are taken in, with the runs that waited for them."""
        self._unreadable: dict[str, int] = {}
        """Rows that this version cannot read, by name and revision."""
        self._tries: dict[str, tuple[int, int]] = {}
        self._time = StoreTime()
        self.first_tick = asyncio.Event()
        """Set after the first tick."""

    async def tick(self) -> float:
        names, self._ended = self._ended, set()
        try:
            pause = await self._look(names)
        except Exception:
            self._ended |= names
            raise
        self.is_settled = pause > 0 and not self._ended
        return pause

    def on_runs_ended(self, names: Iterable[str]) -> None:
        """Runs of these schedules have ended: the next run need not wait for the next tick."""
        self._ended.update(names)
        self.is_settled = False
        self.tick_now()

    # ---- private ------------------------------------------------------------------------------

    async def _look(self, ended: Collection[str]) -> float:
        limit = _BATCH + len(self._unreadable) + len(self._waiting)  # these rows must not fill the batch
        due = await self.store.due_schedules(limit)
        self._time.set(due.now)
        rows = {row.name: row for row in due.rows}
        self._unreadable = {
            name: rev for name, rev in self._unreadable.items() if name in rows and rows[name].rev == rev
        }
        early = [row for row in await self._read_early_rows(ended, due.now) if row.name not in rows]
        self._waiting = {row.name for row in rows.values() if b'"waiting"' in row.doc}
        done = await self._process([*_shuffle(rows.values()), *early], ended)
        self.first_tick.set()
        if len(rows) >= limit or not done:
            return 0.0
        if due.next_look is None:
            return self.every
        return min(self.every, max(0.001, (due.next_look - due.now) / 1e6))

    async def _read_early_rows(self, names: Collection[str], now: int) -> list[ScheduleRow]:
        """Rows to process before they are due by the store's clock."""
        if self._time.was_set_back(now):
            return [row for row in await self.store.schedules() if row.name in names or _may_wait(row)]
        return await self.store.schedules(sorted(names)) if names else []

    async def _process(self, rows: Sequence[ScheduleRow], ended: Collection[str]) -> bool:
        """Fire and update these schedules. False if another scheduler works on the same rows: read them again."""
        plans = {row.name: (row, plan) for row in rows if (plan := self._decode(row)) is not None}
        jobs = [job for name, (_, plan) in plans.items() for job in jobs_to_find(plan, ended=name in ended)]
        starts = {job for _, plan in plans.values() for job in unseen_starts(plan)}
        seen = await find_runs(self.store, jobs, starts)
        successes, done = await self._take_in_dependencies(plans)
        lost = 0
        for row, plan in sorted(plans.values(), key=lambda pair: -pair[1].definition.job.priority):  # among due ones
            now = self._time.now()
            step = self._step(row, plan, now, seen, successes)
            if step is None:
                continue
            if step.plan != plan or _must_store_look(step.look, row.look, now):
                lost = 0 if await self._store_step(row, plan, step, now) else lost + 1
            elif step.cancel:
                await self._cancel_runs(row.name, step)
            if lost >= _LOST_RACES:
                return False
        return done

    async def _take_in_dependencies(self, plans: dict[str, _RowPlan]) -> tuple[Successes, bool]:
        """Take in the ends of the runs of the schedules that these depend on, as far as their next step needs them.

        Puts the new rows into ``plans``. Returns the last successes, and False if another scheduler was first at a row.
        """
        found, seen = await self._read_dependencies(plans)
        successes: dict[str, LastSuccess | None] = {}
        done = True
        for name, (row, plan) in found.items():
            step = self._take_in(row, plan, seen, successes)
            result = await swap_row(self.store, row, step) if step.plan != plan else None
            if result is not None and not result.ok:
                done, result, step = False, None, ScheduleStep(plan, row.look)
            if result is not None:
                self._publish(name, step.news, result.now)
            successes[name] = step.plan.success
            if name in plans and result is not None:
                new = ScheduleRow(name=name, rev=result.rev, look=step.look, doc=planning.encode(step.plan))
                plans[name] = new, step.plan
            elif name in plans:
                plans[name] = row, plan
        return successes, done

    async def _read_dependencies(
        self, plans: Mapping[str, _RowPlan]
    ) -> tuple[dict[str, _RowPlan], Mapping[bytes, SeenRun | None]]:
        """The schedules that these depend on and that their next step needs, with the jobs of their runs; a schedule
        comes after those that it depends on itself.

        The rows are read after the jobs of the dependent schedules: then each success from before the start of such a
        job is among them. So a schedule on which schedules of several levels depend is read again for each level.
        """
        now = self._time.now()
        found: dict[str, _RowPlan] = {}
        seen: dict[bytes, SeenRun | None] = {}
        names = {
            name for _, plan in plans.values() if needs_successes(plan, now) for name in plan.definition.depends_on
        }
        levels = 0
        while names and levels <= len(found):  # a cycle, which two programs may store at one moment, has no last level
            levels += 1
            rows = await self.store.schedules(sorted(names))
            level = {row.name: (row, plan) for row in rows if (plan := self._decode(row)) is not None}
            jobs = [job for _, plan in level.values() for job in jobs_to_find(plan, ended=True)]
            starting = [plan for _, plan in level.values() if plan.starts]
            seen |= await find_runs(self.store, jobs, {job for plan in starting for job in unseen_starts(plan)})
            found = level | {name: each for name, each in found.items() if name not in level}
            names = {name for plan in starting for name in plan.definition.depends_on}
        return found, seen

    def _take_in(
        self, row: ScheduleRow, plan: SchedulePlan, seen: Mapping[bytes, SeenRun | None], successes: Successes
    ) -> ScheduleStep:
        try:
            return planning.take_in(plan, self._time.now(), seen, successes)
        except Exception as error:  # noqa: BLE001 - the other schedules must continue after any error
            self._skip(row, error)
            return ScheduleStep(plan, row.look)

    def _decode(self, row: ScheduleRow) -> SchedulePlan | None:
        if self._unreadable.get(row.name) == row.rev:
            return None
        try:
            return planning.decode(row.doc)
        except ValueError as error:
            self._skip(row, error)
            return None

    def _step(
        self, row: ScheduleRow, plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None], successes: Successes
    ) -> ScheduleStep | None:
        try:
            return planning.step(row.name, self._end_pause(row.name, plan, now), now, seen, raw_id, successes)
        except Exception as error:  # noqa: BLE001 - the other schedules must continue after any error
            self._skip(row, error)
            return None

    def _end_pause(self, name: str, plan: SchedulePlan, now: int) -> SchedulePlan:
        """The plan without its pause between continuous runs, if the pause is over by our own clock. The store's clock
        may not advance for an hour after it was set back."""
        if plan.definition.mode != "continuous" or not plan.enabled or plan.due is None:
            self._time.forget(name)
            return plan
        return replace(plan, due=now) if self._time.is_over(name, plan.due, now) else plan

    def _skip(self, row: ScheduleRow, error: Exception) -> None:
        """Leave the schedule to schedulers of another version."""
        self._unreadable[row.name] = row.rev
        self.log.error("this worker cannot run schedule %r; workers of another version may: %s", row.name, error)

    async def _store_step(self, row: ScheduleRow, plan: SchedulePlan, step: ScheduleStep, now: int) -> bool:
        """Store the step with its jobs. False if another process changed the schedule first."""
        try:
            result, step = await self._swap(row, step, now)
        except _REFUSED as error:
            if isinstance(error, QueueFull) and error.waits:
                step = planning.postpone(plan, now)
            elif isinstance(error, StoreConflict) and not self._is_permanent(row):
                return True
            else:
                step = planning.reject_jobs(step, now, str(error.args[0]))
            result = await swap_row(self.store, row, step)
        if not result.ok:
            return False
        self._tries.pop(row.name, None)
        self._publish(row.name, step.news, now)
        if step.cancel:
            await self._cancel_runs(row.name, step)
        existing = {job.id: each.id for job, each in zip(step.jobs, result.enqueued, strict=True) if not each.created}
        if existing:
            corrected = planning.skip_taken_keys(step.plan, now, existing)
            if (await swap_row(self.store, replace(row, rev=result.rev), corrected)).ok:
                self._publish(row.name, corrected.news, now)
        return True

    async def _swap(self, row: ScheduleRow, step: ScheduleStep, now: int) -> tuple[SwapResult, ScheduleStep]:
        while (result := await swap_row(self.store, row, step)).taken is not None:
            step = planning.use_existing_job(step, now, result.taken)
        return result, step

    async def _cancel_runs(self, name: str, step: ScheduleStep) -> None:
        reason = f"schedule {name!r} began its next run"
        await self.store.act(Action.CANCEL, Query(ids=step.cancel), limit=len(step.cancel), reason=reason)

    def _is_permanent(self, row: ScheduleRow) -> bool:
        """Count a conflict. True if this revision of the row had too many."""
        rev, tries = self._tries.get(row.name, (0, 0))
        tries = tries + 1 if rev == row.rev else 1
        self._tries[row.name] = row.rev, tries
        return tries >= _TRIES

    def _publish(self, name: str, news: Iterable[ScheduleNews], now: int) -> None:
        for each in news:
            self.log.log(_LOG_LEVELS.get(each.what, logging.WARNING), "schedule %r: %s", name, describe_news(each))
            if self._on_news is not None:
                self._on_news(name, each, now)


def describe_news(news: ScheduleNews) -> str:
    """A text for people."""
    occurrences = "1 occurrence was" if news.many == 1 else f"{news.many} occurrences were"
    texts = {
        "missed": f"{occurrences} missed (misfire={news.note!r})",
        "skipped": f"{occurrences} not run: {news.note}",
        "disabled": f"disabled after {news.many} failed runs in a row: {news.note}",
        "enabled": f"enabled again {news.note}",
    }
    return texts[news.what]


def _may_wait(row: ScheduleRow) -> bool:
    """Whether the schedule may wait for the end of a run or of a pause: after the clock was set back, that is late."""
    words = (b'"open"', b'"waiting"', b'"continuous"')
    return any(word in row.doc for word in words)  # a false match does no harm: the row is only processed


def _must_store_look(look: int | None, stored: int | None, now: int) -> bool:
    """Whether the next look must be stored: the stored look has passed, or is too late. One that is too early does no
    harm."""
    if stored is None or stored <= now:
        return look != stored
    return look is not None and look < stored


def _shuffle(rows: Iterable[ScheduleRow]) -> list[ScheduleRow]:
    """In random order: schedulers that tick at the same moment must not race for the same rows one after the other."""
    found = list(rows)
    random.shuffle(found)
    return found
