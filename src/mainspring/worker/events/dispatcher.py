"""Calls hooks with the events of jobs, breakers and schedules.

An event follows from a change that the store has made: the acks of an answered turn, the jobs of lost workers that this
worker rescued, jobs that expired while this worker promoted jobs, and the jobs of a dead sibling that the supervisor
moved. Each event is reported at most once, by the process that made the change. No job waits for a hook: events wait in
a queue of at most 10,000. When the worker stops, the remaining events are reported within its time limit or not at all.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from uuid import UUID

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.codec import ErrorRecord, first_line
from mainspring.common.callables import is_async
from mainspring.common.clock import SystemClock, boottime, to_datetime
from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow
from mainspring.schedules.plan import ScheduleNews
from mainspring.states import FINAL, State
from mainspring.stores.base import Store
from mainspring.tasks.events import (
    BreakerEvent,
    Deferred,
    Event,
    EventName,
    ScheduleEvent,
    breaker_event,
    schedule_event,
)
from mainspring.worker.config import WorkerConfig
from mainspring.worker.events.callers import LoopCaller, ThreadCaller
from mainspring.worker.events.names import MovedJob, events_of_ack, events_of_crash, moved_by_expiry, moved_by_rescue
from mainspring.worker.records import RescueResult, TurnResult
from mainspring.worker.secret_arguments import shown_arguments

if TYPE_CHECKING:
    from mainspring.worker.run.attempt import RunningAttempt

log = logging.getLogger("mainspring.hooks")

MAX_WAITING = 10_000
"""Most waiting events, and most waiting calls of each caller."""
_BATCH = 500
"""Most events that are looked up in the store together."""
_REMIND_AFTER = 30.0
"""Seconds between two log lines about dropped events."""

_decode_error = msgspec.json.Decoder(ErrorRecord).decode


def _wait_of(attempt: RunningAttempt) -> timedelta | None:
    if not attempt.begun:
        return None
    started = int(attempt.started * 1e6) + attempt.environment.store_ahead
    return timedelta(microseconds=max(0, started - attempt.claim.enqueued))


def _duration_of(ack: Ack | None) -> timedelta | None:
    return None if ack is None else timedelta(microseconds=ack.run_us)


class _StoredAck(NamedTuple):
    """An ack that the store took; with ``ack=None``, a body that starts."""

    attempt: RunningAttempt
    ack: Ack | None
    worker: str
    at: int


PendingEvent: TypeAlias = "_StoredAck | MovedJob | BreakerEvent | ScheduleEvent"


class EventDispatcher:
    """Belongs to one worker. ``on_started`` and ``on_jobs_moved`` may be called from any thread."""

    def __init__(self, config: WorkerConfig, store: Store) -> None:
        self._hooks = config.hooks
        self._tasks = config.tasks
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._queue: deque[PendingEvent] = deque()
        self._busy = False
        self._woken = asyncio.Event()
        self._on_loop, self._in_thread = LoopCaller(), ThreadCaller()
        self._task = asyncio.create_task(self._run())
        self._dropped = 0
        self._dropped_logged_at = -_REMIND_AFTER

    # ---- changes -----------------------------------------------------------------------------

    def on_started(self, attempt: RunningAttempt) -> None:
        """A body starts."""
        if self._hooks.of("started", self._name(attempt.claim.task)):
            self._add(_StoredAck(attempt, None, attempt.environment.worker, attempt.environment.store_now()))
            self._wake()

    def on_acks_stored(
        self, acks: Iterable[Ack], reply: TurnResult, held: Mapping[bytes, RunningAttempt], worker: str
    ) -> None:
        """The store has answered a turn with these acks."""
        refused = {*reply.stale, *reply.unstorable}
        for ack in acks:
            attempt = held.get(ack.id)
            if attempt is None or attempt.claim.token != ack.token or (ack.id, ack.token) in refused:
                continue
            # A cancel order that came meanwhile overrides the ack, and the store may have made a crashed job dead.
            names = (*events_of_ack(ack), "cancelled", *(("dead",) if ack.may_end_job else ()))
            if any(self._hooks.of(name, self._name(attempt.claim.task)) for name in names):
                self._add(_StoredAck(attempt, ack, worker, reply.now))
        if self._queue:
            self._woken.set()

    def on_jobs_moved(self, jobs: Iterable[MovedJob]) -> None:
        """These jobs were moved without an ack of this worker."""
        for each in jobs:
            if each.breaker is not None:
                self.on_breakers_changed([each.breaker], each.worker, SystemClock().now_us())
            elif any(self._hooks.has(name) for name in each.names):
                self._add(each)
        self._wake()

    def on_rescued(self, worker: str, rescued: RescueResult, breakers: Sequence[BreakerRow]) -> None:
        """This worker rescued the jobs of a worker that is gone."""
        self.on_jobs_moved(moved_by_rescue(worker, rescued, breakers))

    def on_expired(self, jobs: Iterable[bytes]) -> None:
        """Jobs that expired before they started were cancelled."""
        self.on_jobs_moved(moved_by_expiry(jobs))

    def on_breakers_changed(self, breakers: Iterable[BreakerRow], worker: str, now: int) -> None:
        """These breakers have opened, closed, or begun to probe."""
        for each in breakers:
            event = breaker_event(each, now, worker)
            if self._hooks.has(event.name):
                self._add(event)
        if self._queue:
            self._wake()

    def on_schedule_news(self, schedule: str, news: ScheduleNews, now: int, worker: str) -> None:
        """Something happened to a schedule."""
        event = schedule_event(schedule, news, now, worker)
        if self._hooks.has(event.name):
            self._add(event)
            self._wake()

    async def close(self, limit: float) -> None:
        """Report the waiting events, for at most ``limit`` seconds."""
        end = boottime() + limit
        while (left := self._count_waiting()) and boottime() < end:  # noqa: ASYNC110 - a thread changes the count too
            await asyncio.sleep(0.01)
        if left:
            log.error("%d events were not passed to hooks: the hooks did not end in time", left)
        self._task.cancel()
        self._on_loop.close()
        self._in_thread.close()

    # ---- reporting ---------------------------------------------------------------------------

    def _count_waiting(self) -> int:
        return len(self._queue) + self._busy + self._on_loop.waiting + self._in_thread.waiting

    def _add(self, pending: PendingEvent) -> None:
        if len(self._queue) < MAX_WAITING:
            self._queue.append(pending)
        else:
            self._drop()

    def _drop(self) -> None:
        self._dropped += 1
        if boottime() - self._dropped_logged_at > _REMIND_AFTER:
            self._dropped_logged_at = boottime()
            log.error("hooks are too slow: %d events were dropped so far", self._dropped)

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:  # the loop is closed: the body's thread outlived its worker
            return

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            while self._queue:
                self._busy = True
                try:
                    await self._report([self._queue.popleft() for _ in range(min(len(self._queue), _BATCH))])
                except Exception:
                    log.exception("events could not be passed to hooks")
                self._busy = False

    async def _report(self, pending: Sequence[PendingEvent]) -> None:
        rows = await self._find_rows(pending)
        for each in pending:
            for event in self._build_events(each, rows):
                for hook in self._hooks.of(event.name, event.task if isinstance(event, Event) else ""):
                    caller = self._on_loop if is_async(hook.fn) else self._in_thread
                    if caller.waiting < MAX_WAITING:
                        caller.put((hook.fn, event))
                    else:
                        self._drop()

    async def _find_rows(self, pending: Sequence[PendingEvent]) -> dict[bytes, JobRow]:
        """The rows of these jobs now; empty if the store cannot be reached."""
        ids = {
            each.job if isinstance(each, MovedJob) else each.attempt.claim.id
            for each in pending
            if not isinstance(each, BreakerEvent | ScheduleEvent)
            and (isinstance(each, MovedJob) or each.ack is not None)
        }
        if not ids:
            return {}
        try:
            found = await self._store.find(Query(ids=tuple(ids)), limit=len(ids))
        except StoreError as error:
            log.warning("hooks get events without the current state of their jobs: %s", error)
            return {}
        return {row.id: row for row in found.jobs}

    def _build_events(
        self, pending: PendingEvent, rows: Mapping[bytes, JobRow]
    ) -> Sequence[Event | BreakerEvent | ScheduleEvent]:
        if isinstance(pending, BreakerEvent | ScheduleEvent):
            return [pending]
        if isinstance(pending, _StoredAck):
            return self._build_ack_events(pending, rows)
        return self._build_move_events(pending, rows)

    def _build_ack_events(self, stored: _StoredAck, rows: Mapping[bytes, JobRow]) -> list[Event]:
        claim, ack = stored.attempt.claim, stored.ack
        names: tuple[EventName, ...] = ("started",) if ack is None else events_of_ack(ack)
        state, reason = (State.RUNNING, None) if ack is None else (ack.to, ack.reason if ack.to in FINAL else None)
        row = rows.get(claim.id)
        if ack is not None and row is not None and row.token == ack.token:
            if ack.outcome is Outcome.CRASHED and row.state is not State.RUNNING:
                names, state, reason = events_of_crash(row.state), row.state, row.reason
            elif row.state is State.CANCELLED:
                names, state, reason = ("cancelled",), row.state, row.reason
        attempt, spec = stored.attempt, self._tasks.get(claim.task)
        error = _decode_error(ack.error) if ack is not None and ack.error else None
        succeeded = state is State.SUCCEEDED
        args: Any = Deferred(lambda: shown_arguments(spec, claim.record))
        result: Any = None
        if succeeded and ack is not None and (data := ack.result) is not None:
            result = Deferred(lambda: attempt.spec.signature.decode_result(data))
        return [
            Event(
                name=name, job=UUID(bytes=claim.id), task=self._name(claim.task), queue=claim.queue,
                attempt=claim.attempt, state=state, reason=reason, args=args, result=result,
                error=None if succeeded else error,
                warning=first_line(error) if succeeded and error is not None else None,
                wait=_wait_of(attempt), duration=_duration_of(ack) if attempt.begun else None,
                worker=stored.worker, at=to_datetime(stored.at),
            )
            for name in names
        ]  # fmt: skip

    def _build_move_events(self, moved: MovedJob, rows: Mapping[bytes, JobRow]) -> list[Event]:
        row = rows.get(moved.job)
        if row is not None and moved.crashed:
            state = row.state if row.token == moved.crashed else moved.state
            moved = msgspec.structs.replace(moved, state=state, names=events_of_crash(state))
        if row is None or (moved.state in FINAL and row.state is not moved.state):
            return []
        spec, record = self._tasks.get(row.task), row.record
        args: Any = Deferred(lambda: shown_arguments(spec, record))
        return [
            Event(
                name=name, job=UUID(bytes=row.id), task=self._name(row.task), queue=row.queue,
                attempt=row.attempt + moved.refunded, state=moved.state, args=args,
                reason=row.reason if moved.state in FINAL else None,
                error=_decode_error(row.error) if row.error and name != "stalled" else None,
                worker=moved.worker, at=to_datetime(row.finished) if row.finished else datetime.now(UTC),
            )
            for name in moved.names
        ]  # fmt: skip

    def _name(self, task: str) -> str:
        """The current name of the task; the job may carry an alias."""
        spec = self._tasks.get(task)
        return spec.name if spec is not None else task
