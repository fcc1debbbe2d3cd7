"""Tells hooks what happened to jobs.

Told is what the store has taken: the acks of a turn that was answered, the jobs of lost workers that this
one took back, those that expired under its eyes, and what its supervisor did with the jobs of a dead
sibling. Each is told at most once, by whoever stored it. Nothing waits for a hook: events stand in line,
10,000 at most, and what is left when the worker has stopped is told within its limit or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.codec import ErrorRecord
from mainspring.common.callables import is_async
from mainspring.common.clock import SystemClock, boottime, to_datetime
from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow
from mainspring.schedules.plan import ScheduleNews
from mainspring.states import FINAL, State
from mainspring.stores.base import Store
from mainspring.tasks.events import BreakerEvent, Event, EventName, ScheduleEvent, breaker_event, schedule_event
from mainspring.worker.config import WorkerConfig
from mainspring.worker.events import names as event_names
from mainspring.worker.events.callers import LoopCaller, ThreadCaller
from mainspring.worker.events.names import MovedJob
from mainspring.worker.records import RescueResult, TurnResult
from mainspring.worker.run.attempt import RunningAttempt

log = logging.getLogger("mainspring.hooks")

MOST = 10_000
"""Most events in line, and most calls that wait for either caller."""
_AT_ONCE = 500
_REMIND = 30.0

_decode_error = msgspec.json.Decoder(ErrorRecord).decode


class _Stored(NamedTuple):
    """An ack that the store took, or (without one) a body that starts."""

    attempt: RunningAttempt
    ack: Ack | None
    worker: str
    at: int


Tiding: TypeAlias = "_Stored | MovedJob | BreakerEvent | ScheduleEvent"


class EventDispatcher:
    """Belongs to one worker; ``started`` and ``moved`` may be called from any thread."""

    def __init__(self, parts: WorkerConfig, store: Store) -> None:
        self._hooks = parts.hooks
        self._tasks = parts.tasks
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._line: deque[Tiding] = deque()
        self._busy = False
        self._woken = asyncio.Event()
        self._on_loop, self._in_thread = LoopCaller(), ThreadCaller()
        self._task = asyncio.create_task(self._run())
        self._dropped = 0
        self._dropped_at = -_REMIND

    # ---- what happened -----------------------------------------------------------------------

    def started(self, attempt: RunningAttempt) -> None:
        """A body starts."""
        if self._hooks.of("started", self._name(attempt.claim.task)):
            self._add(_Stored(attempt, None, attempt.home.worker, attempt.home.store_now()))
            self._wake()

    def stored(self, acks: Iterable[Ack], reply: TurnResult, held: Mapping[bytes, RunningAttempt], worker: str) -> None:
        """The store has answered a turn with these acks."""
        refused = {*reply.stale, *reply.unstorable}
        for ack in acks:
            attempt = held.get(ack.id)
            if attempt is None or attempt.claim.token != ack.token or (ack.id, ack.token) in refused:
                continue
            names = (*event_names.names_of(ack), "cancelled")  # an order that came meanwhile outweighs the ack
            if any(self._hooks.of(name, self._name(attempt.claim.task)) for name in names):
                self._add(_Stored(attempt, ack, worker, reply.now))
        if self._line:
            self._woken.set()

    def moved(self, jobs: Iterable[MovedJob]) -> None:
        """These jobs were moved without an ack of this worker."""
        for each in jobs:
            if each.breaker is not None:
                self.changed([each.breaker], each.worker, SystemClock().now_us())
            elif any(self._hooks.has(name) for name in each.names):
                self._add(each)
        self._wake()

    def rescued(self, worker: str, rescued: RescueResult) -> None:
        """The jobs of a worker that is gone were taken here."""
        self.moved(event_names.of_rescue(worker, rescued))

    def expired(self, jobs: Iterable[bytes]) -> None:
        """Jobs that were not started in time were cancelled."""
        self.moved(event_names.of_expiry(jobs))

    def changed(self, breakers: Iterable[BreakerRow], worker: str, now: int) -> None:
        """These breakers have opened or closed, or are tried again."""
        for each in breakers:
            event = breaker_event(each, now, worker)
            if self._hooks.has(event.name):
                self._add(event)
        if self._line:
            self._wake()

    def scheduled(self, schedule: str, news: ScheduleNews, now: int, worker: str) -> None:
        """Something happened to a schedule."""
        event = schedule_event(schedule, news, now, worker)
        if self._hooks.has(event.name):
            self._add(event)
            self._wake()

    async def close(self, limit: float) -> None:
        """Tell what is in line, for at most ``limit`` seconds."""
        end = boottime() + limit
        while (left := self._left()) and boottime() < end:  # noqa: ASYNC110 - a thread counts down too
            await asyncio.sleep(0.01)
        if left:
            log.error("%d events were not told to hooks: they did not end in time", left)
        self._task.cancel()
        self._on_loop.close()
        self._in_thread.close()

    # ---- telling -----------------------------------------------------------------------------

    def _left(self) -> int:
        return len(self._line) + self._busy + self._on_loop.waiting + self._in_thread.waiting

    def _add(self, tiding: Tiding) -> None:
        if len(self._line) < MOST:
            self._line.append(tiding)
        else:
            self._drop()

    def _drop(self) -> None:
        self._dropped += 1
        if boottime() - self._dropped_at > _REMIND:
            self._dropped_at = boottime()
            log.error("hooks do not keep up: %d events were not told so far", self._dropped)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:  # the loop is closed: a thread that outlived its worker
            return

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._line:
                self._busy = True
                try:
                    await self._tell([self._line.popleft() for _ in range(min(len(self._line), _AT_ONCE))])
                except Exception:
                    log.exception("events could not be told")
                self._busy = False

    async def _tell(self, tidings: Sequence[Tiding]) -> None:
        rows = await self._rows(tidings)
        for tiding in tidings:
            for event in self._events(tiding, rows):
                for hook in self._hooks.of(event.name, event.task if isinstance(event, Event) else ""):
                    caller = self._on_loop if is_async(hook.fn) else self._in_thread
                    if caller.waiting < MOST:
                        caller.put((hook.fn, event))
                    else:
                        self._drop()

    async def _rows(self, tidings: Sequence[Tiding]) -> dict[bytes, JobRow]:
        """What the store says of these jobs now; nothing if it cannot be asked."""
        ids = {
            tiding.job if isinstance(tiding, MovedJob) else tiding.attempt.claim.id
            for tiding in tidings
            if not isinstance(tiding, BreakerEvent | ScheduleEvent)
            and (isinstance(tiding, MovedJob) or tiding.ack is not None)
        }
        if not ids:
            return {}
        try:
            found = await self._store.find(Query(ids=tuple(ids)), limit=len(ids))
        except StoreError as error:
            log.warning("hooks are told without a look at the store: %s", error)
            return {}
        return {row.id: row for row in found.jobs}

    def _events(self, tiding: Tiding, rows: Mapping[bytes, JobRow]) -> Sequence[Event | BreakerEvent | ScheduleEvent]:
        if isinstance(tiding, BreakerEvent | ScheduleEvent):
            return [tiding]
        return self._of_ack(tiding, rows) if isinstance(tiding, _Stored) else self._of_move(tiding, rows)

    def _of_ack(self, tiding: _Stored, rows: Mapping[bytes, JobRow]) -> list[Event]:
        claim, ack = tiding.attempt.claim, tiding.ack
        names: tuple[EventName, ...] = ("started",) if ack is None else event_names.names_of(ack)
        state, reason = (State.RUNNING, None) if ack is None else (ack.to, ack.reason)
        row = rows.get(claim.id)
        if ack is not None and row is not None and row.token == ack.token and row.state is State.CANCELLED:
            names, state, reason = ("cancelled",), row.state, row.reason
        error = ack.error if ack is not None and state is not State.SUCCEEDED else None
        return [
            Event(
                name=name, job=UUID(bytes=claim.id), task=self._name(claim.task), queue=claim.queue,
                attempt=claim.attempt, state=state, reason=reason, error=_decode_error(error) if error else None,
                worker=tiding.worker, at=to_datetime(tiding.at),
            )
            for name in names
        ]  # fmt: skip

    def _of_move(self, moved: MovedJob, rows: Mapping[bytes, JobRow]) -> list[Event]:
        row = rows.get(moved.job)
        if row is None or (moved.state in FINAL and row.state is not moved.state):
            return []
        return [
            Event(
                name=name, job=UUID(bytes=row.id), task=self._name(row.task), queue=row.queue,
                attempt=row.attempt + moved.refunded, state=moved.state,
                reason=row.reason if moved.state in FINAL else None,
                error=_decode_error(row.error) if row.error and name != "stalled" else None,
                worker=moved.worker, at=to_datetime(row.finished) if row.finished else datetime.now(UTC),
            )
            for name in moved.names
        ]  # fmt: skip

    def _name(self, task: str) -> str:
        """The task's name of today; that of the job may be an alias."""
        spec = self._tasks.get(task)
        return spec.name if spec is not None else task
