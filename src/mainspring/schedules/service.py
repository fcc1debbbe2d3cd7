"""Turns occurrences of schedules into jobs. Any number of these look at the same schedules, and each fires once."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from mainspring.codec.failures import brief
from mainspring.common.ids import raw_id
from mainspring.errors import KeyConflict, KeyTaken, QueueDisabled, QueueDraining, QueueFull, StoreConflict
from mainspring.jobs.query import Query
from mainspring.jobs.records import Batch, JobRow
from mainspring.schedules import plan as planning
from mainspring.schedules.plan import ScheduleNews, SchedulePlan, ScheduleStep, SeenRun
from mainspring.schedules.records import ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult
from mainspring.schedules.store_time import StoreTime
from mainspring.states import Action
from mainspring.stores.base import Store
from mainspring.worker.services.base import Service

_SLICE = 200
_FOUND = 500
_LOST = 5
"""So many rows in a row that others were first to exchange: they are working through the same ones."""
_REFUSED = (QueueDraining, QueueDisabled, QueueFull, KeyTaken, KeyConflict, StoreConflict)
_TRIES = 3
"""A conflict may be over the next time; after so many tries it is none that passes."""

_LOUD = {"skipped": logging.INFO, "enabled": logging.INFO}

Told = Callable[[str, ScheduleNews, int], None]


class Scheduler(Service):
    """Looks when the next schedule is due, at least once a second: others declare and trigger too."""

    every = 1.0
    jitter = 0.0  # what is due waits for nobody's luck

    def __init__(self, store: Store, *, told: Told | None = None) -> None:
        super().__init__(store)
        self._told = told
        self._ended: set[str] = set()
        self._unread: dict[str, int] = {}
        """Rows that this version cannot read, by name and number."""
        self._tries: dict[str, tuple[int, int]] = {}
        self._passing = StoreTime()
        self.first_tick = asyncio.Event()
        """Set once it has looked for the first time."""

    async def tick(self) -> float:
        limit = _SLICE + len(self._unread)  # what cannot be read must not be in the way of the others
        looked = await self.store.due_schedules(limit)
        self._passing.looked(looked.now)
        rows = {row.name: row for row in looked.rows}
        self._unread = {name: rev for name, rev in self._unread.items() if name in rows and rows[name].rev == rev}
        through = await self._attend(_shuffled(rows.values()))
        await self._attend([row for row in await self._asked(looked.now) if row.name not in rows])
        self.first_tick.set()
        if len(rows) >= limit or not through:
            return 0.0
        if looked.next_look is None:
            return self.every
        return min(self.every, max(0.001, (looked.next_look - looked.now) / 1e6))

    def ended(self, names: Iterable[str]) -> None:
        """Runs of these schedules have ended: what follows need not wait for the next look."""
        self._ended.update(names)
        self.hurry()

    # ---- private ------------------------------------------------------------------------------

    async def _asked(self, now: int) -> list[ScheduleRow]:
        """Those to be looked at though their moment has not come, as far as the store knows."""
        names, self._ended = self._ended, set()
        if self._passing.went_back(now):
            return [row for row in await self.store.schedules() if row.name in names or _stands_still(row)]
        return await self.store.schedules(sorted(names)) if names else []

    async def _attend(self, rows: Sequence[ScheduleRow]) -> bool:
        """Look at these; False if others do the same, and what is left is better asked for anew."""
        plans = [(row, plan) for row in rows if (plan := self._read(row)) is not None]
        plans.sort(key=lambda pair: -pair[1].definition.job.priority)  # of those that are due together
        seen = await seen_by(self.store, [run.job for _, plan in plans for run in plan.open])
        lost = 0
        for row, plan in plans:
            now = self._passing.now()
            made = self._stepped(row, plan, now, seen)
            if made is None:
                continue
            if made.plan != plan or _is_sooner(made.look, row.look, now):
                lost = 0 if await self._exchange(row, plan, made, now) else lost + 1
            elif made.cancel:
                await self._cancel(row.name, made)
            if lost >= _LOST:
                return False
        return True

    def _read(self, row: ScheduleRow) -> SchedulePlan | None:
        if self._unread.get(row.name) == row.rev:
            return None
        try:
            return planning.decode(row.doc)
        except ValueError as error:
            self._leave(row, error)
            return None

    def _stepped(
        self, row: ScheduleRow, plan: SchedulePlan, now: int, seen: Mapping[bytes, SeenRun | None]
    ) -> ScheduleStep | None:
        try:
            return planning.step(row.name, self._rested(row.name, plan, now), now, seen, raw_id)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others have to go on
            self._leave(row, error)
            return None

    def _rested(self, name: str, plan: SchedulePlan, now: int) -> SchedulePlan:
        """A pause between continuous runs is over by our own clock too: the store's may stand still for an hour."""
        if plan.definition.mode != "continuous" or not plan.enabled or plan.due is None:
            self._passing.forget(name)
            return plan
        return replace(plan, due=now) if self._passing.is_over(name, plan.due, now) else plan

    def _leave(self, row: ScheduleRow, error: Exception) -> None:
        """To those who can read it."""
        self._unread[row.name] = row.rev
        self.log.error("schedule %r cannot be run here, others may be able to: %s", row.name, error)

    async def _exchange(self, row: ScheduleRow, plan: SchedulePlan, made: ScheduleStep, now: int) -> bool:
        """Whether it was us, or nobody."""
        try:
            said, made = await self._swap(row, made, now)
        except _REFUSED as error:
            if isinstance(error, QueueFull) and error.waits:
                made = planning.put_off(plan, now)
            elif isinstance(error, StoreConflict) and not self._tried(row):
                return True
            else:
                made = planning.rejected(made, now, str(error.args[0]))
            said = await exchange(self.store, row, made)
        if not said.ok:
            return False
        self._tries.pop(row.name, None)
        self._tell(row.name, made.news, now)
        if made.cancel:
            await self._cancel(row.name, made)
        others = {job.id: each.id for job, each in zip(made.jobs, said.enqueued, strict=True) if not each.created}
        if others:
            corrected = planning.answered(made.plan, now, others)
            if (await exchange(self.store, replace(row, rev=said.rev), corrected)).ok:
                self._tell(row.name, corrected.news, now)
        return True

    async def _swap(self, row: ScheduleRow, made: ScheduleStep, now: int) -> tuple[SwapResult, ScheduleStep]:
        while (said := await exchange(self.store, row, made)).taken is not None:
            made = planning.had(made, now, said.taken)
        return said, made

    async def _cancel(self, name: str, made: ScheduleStep) -> None:
        reason = f"schedule {name!r} began its next run"
        await self.store.act(Action.CANCEL, Query(ids=made.cancel), limit=len(made.cancel), reason=reason)

    def _tried(self, row: ScheduleRow) -> bool:
        """Whether this was tried often enough."""
        rev, tries = self._tries.get(row.name, (0, 0))
        tries = tries + 1 if rev == row.rev else 1
        self._tries[row.name] = row.rev, tries
        return tries >= _TRIES

    def _tell(self, name: str, news: Iterable[ScheduleNews], now: int) -> None:
        for each in news:
            self.log.log(_LOUD.get(each.what, logging.WARNING), "schedule %r: %s", name, said_of(each))
            if self._told is not None:
                self._told(name, each, now)


async def forgetful(store: Store, name: str, plan: SchedulePlan, history: int) -> SchedulePlan:
    """The plan, before it keeps so many records: if those are more than now, it knows what it has forgotten by then."""
    if history <= plan.definition.history:
        return plan
    return replace(plan, forgotten=remembered_from(plan, await store.schedule_runs(name, plan.definition.history)))


def remembered_from(plan: SchedulePlan, runs: Sequence[ScheduleRun]) -> int:
    """Of occurrences before this moment nobody knows what became of them. ``runs``: all that are kept."""
    if len(runs) < plan.definition.history:
        return plan.forgotten
    return max(plan.forgotten, runs[-1].at)


async def exchange(store: Store, row: ScheduleRow, made: ScheduleStep) -> SwapResult:
    """Put the next row in the place of the one that was seen, with its runs and jobs."""
    swap = ScheduleSwap(
        name=row.name, rev=row.rev, doc=planning.encode(made.plan), look=made.look, runs=made.runs,
        keep=made.plan.definition.history,
    )  # fmt: skip
    if not made.jobs:
        return await store.swap_schedule(swap)
    return await store.swap_schedule(
        swap, Batch(id=made.jobs[0].id, jobs=made.jobs, limits=made.limits, forced=made.forced)
    )


async def seen_by(store: Store, jobs: Sequence[bytes]) -> Mapping[bytes, SeenRun | None]:
    """These jobs as they stand; None for those that are gone."""
    seen: dict[bytes, SeenRun | None] = dict.fromkeys(jobs)
    for start in range(0, len(jobs), _FOUND):
        part = tuple(jobs[start : start + _FOUND])
        cursor: str | None = None
        while True:
            found = await store.find(Query(ids=part), limit=_FOUND, cursor=cursor)
            seen |= {row.id: _seen(row) for row in found.jobs}
            cursor = found.cursor
            if cursor is None:
                break
    return seen


def _seen(row: JobRow) -> SeenRun:
    try:
        error = brief(row.error)
    except ValueError:
        error = "what it failed of cannot be read by this version"
    return SeenRun(state=row.state, reason=row.reason, started=row.started, ended=row.finished, error=error)


def said_of(news: ScheduleNews) -> str:
    """For people."""
    words = {
        "missed": f"{news.many} occurrences were missed (misfire={news.note!r})",
        "skipped": f"{news.many} occurrences were not run: {news.note}",
        "disabled": f"disabled after {news.many} failed runs in a row: {news.note}",
        "enabled": f"enabled again {news.note}",
    }
    return words[news.what]


def _stands_still(row: ScheduleRow) -> bool:
    """Whether it may wait for a moment of a clock that has gone back: for the end of a run, or of a pause."""
    return b'"open"' in row.doc or b'"continuous"' in row.doc  # a word too many does no harm: it is looked at


def _is_sooner(look: int | None, stored: int | None, now: int) -> bool:
    """Whether the next look has to be written: the stored one has come, or is too late. One that comes too early does
    no harm."""
    if stored is None or stored <= now:
        return look != stored
    return look is not None and look < stored


def _shuffled(rows: Iterable[ScheduleRow]) -> list[ScheduleRow]:
    """In any order: those who look at the same moment must not race for the same rows one after the other."""
    found = list(rows)
    random.shuffle(found)
    return found
