"""Drain: run all ready jobs with a real worker, until no job is ready. No job waits for real time.

A drain first deletes jobs whose retention has passed; jobs that end in this drain can be read until the next drain.

One pass: promote jobs that are due by the test's clock, fire due schedules, find the queues with work, and let a worker
serve them until no job of these queues is ready or running. After each turn of the worker the drain checks again. The
worker ends with the drain, so nothing happens between two drains.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import msgspec

from mainspring.breakers.records import FOREVER
from mainspring.common.clock import MovableClock
from mainspring.common.ids import id_text
from mainspring.errors import InsideTest
from mainspring.flows.shape import EACH_TASK
from mainspring.jobs.query import Query
from mainspring.states import State
from mainspring.stores.door import Door
from mainspring.tasks.bulk import Bulk
from mainspring.testing.app.held_back import held_until
from mainspring.testing.app.schedules import Timekeeper
from mainspring.testing.app.watched_store import Drained, Watched
from mainspring.worker.config import WorkerConfig
from mainspring.worker.lifespan import Lifespans

MOST, MOST_FUTURE = 10_000, 1_000
"""The number of attempts after which a drain without ``limit`` is considered endless."""
MOST_OF_ONE_JOB = 1_000
"""The same for the attempts of one job."""
_AT_WORK = (State.READY, State.RUNNING)
_POLL = 50_000


class Drainer:
    """Drains one app, as often as the test asks; runs on the test's home loop."""

    def __init__(self, make_parts: Callable[[], WorkerConfig], clock: MovableClock) -> None:
        self._make_parts = make_parts
        self._clock = clock
        self._lifespans: Lifespans | None = None
        self._state: Any = None
        self._one_at_a_time = asyncio.Lock()

    async def drain(self, door: Door, limit: int | None, *, future: bool = False, until: int | None = None) -> Drained:
        """Run all ready jobs.

        With ``future`` the clock moves on to each next due time, and these jobs run too. With ``until`` schedules also
        make runs on the way, and the clock shows this time at the end."""
        async with self._one_at_a_time:
            most = MOST_FUTURE if future else MOST
            store = Watched(door, most, MOST_OF_ONE_JOB) if limit is None else Watched(door, limit)
            parts = _labelled(self._make_parts())
            store.happened["pruned"] = await _prune(door, parts)
            timekeeper = Timekeeper(store, parts.hooks)
            async with _Crew(parts, store, self._hold_lifespans) as crew:
                while True:
                    await _promote(store)
                    known = store.moves
                    await timekeeper.fire()
                    work = await _at_work(store, parts, _AT_WORK)
                    held = await _held(store, parts) if work else None
                    if store.has_endless_job:
                        raise _endless(store)
                    if work and held is None and store.left > 0:
                        await crew.serve(work)
                        continue
                    if work and held is None and limit is None:
                        raise _endless(store)
                    if store.moves != known:
                        continue  # jobs have run: a run of a schedule may have ended
                    # checked again: a job may have been postponed before the worker was seen idle
                    onward = future or until is not None
                    due = await _promote(store) if onward else None
                    next_fire = await timekeeper.next() if until is not None else None
                    found = (due, held if onward else None, next_fire)
                    moments = [each for each in found if each is not None and each < FOREVER]
                    if until is not None:
                        moments = [each for each in moments if each <= until]
                    if not moments or (store.left <= 0 and limit is not None):
                        break
                    if store.left <= 0:
                        raise _endless(store)
                    self._move_to(min(moments))
            if until is not None:
                self._move_to(until)
            return Drained(**{name: store.happened[name] for name in Drained.__struct_fields__})

    @property
    def busy(self) -> bool:
        """Whether a drain is running."""
        return self._one_at_a_time.locked()

    async def close(self) -> None:
        """End the lifespans."""
        if self._lifespans is not None:
            await self._lifespans.stop()

    def _move_to(self, moment: int) -> None:
        self._clock.advance(timedelta(microseconds=max(0, moment - self._clock.now_us())))

    async def _hold_lifespans(self, parts: WorkerConfig) -> WorkerConfig:
        """Run the app's lifespans once in a test, although its drains start several workers."""
        if self._lifespans is None:
            lifespans = Lifespans(parts.lifespans, parts.settings.grace / 1e6)
            self._state = await lifespans.start()
            self._lifespans = lifespans

        async def held() -> AsyncIterator[Any]:
            yield self._state

        return parts._replace(lifespans=(held,))


class _Crew:
    """The worker of one drain; replaced by a new worker if more queues must be served."""

    def __init__(self, parts: WorkerConfig, store: Watched, prepare: Callable[[WorkerConfig], Any]) -> None:
        self._parts = parts
        self._store = store
        self._prepare = prepare
        self._serving: frozenset[str] = frozenset()
        self._worker: Any = None
        self._running: asyncio.Task[int] | None = None

    async def __aenter__(self) -> _Crew:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self._end(fast=kind is not None)

    async def serve(self, queues: frozenset[str]) -> None:
        """Return when no job of these queues is ready or running, or when the limit is reached and no job runs, or when
        one job has run too often."""
        if not queues <= self._serving:
            await self._end()
            await self._begin(queues | self._serving)
        running = self._running
        assert running is not None
        while True:
            self._store.turned.clear()
            if self._store.has_endless_job:
                return
            states = _AT_WORK if self._store.left > 0 else (State.RUNNING,)
            if not queues & await _at_work(self._store, self._parts, states) or await self._waits():
                return
            turned = asyncio.ensure_future(self._store.turned.wait())
            await asyncio.wait({turned, running}, return_when=asyncio.FIRST_COMPLETED)
            turned.cancel()
            if running.done():
                running.result()
                raise InsideTest(
                    "the worker of this test ended by itself", hint="The log of the worker has the reason."
                )

    async def _waits(self) -> bool:
        """Whether the worker found no job because all ready jobs are held back."""
        return self._store.fruitless and await _held(self._store, self._parts) is not None

    async def _begin(self, queues: frozenset[str]) -> None:
        from mainspring.launch.services import build_services
        from mainspring.worker.lease.shared_state import SharedState
        from mainspring.worker.worker import Worker

        parts = await self._prepare(self._parts)
        settings = msgspec.structs.replace(
            parts.settings,
            queues=tuple(sorted(queues)),
            async_slots=max(1, parts.settings.async_slots),
            thread_slots=max(1, parts.settings.thread_slots),
            poll=_POLL,
            until_empty=False,
            roles=frozenset({"worker"}),  # the drain fires the schedules itself
        )
        self._shared_state = SharedState.create()
        tasks = {name: spec.in_thread()._replace(bulk=_hurried(spec.bulk)) for name, spec in parts.tasks.items()}
        pools = tuple(sorted({spec.pool for spec in parts.tasks.values()} - {""}))
        parts = parts._replace(settings=settings, tasks=tasks, schedules=None, pools_in_threads=pools)
        self._worker = Worker(parts, self._store, shared_state=self._shared_state, services=build_services)
        self._running = asyncio.create_task(self._worker.run())
        self._serving = queues

    async def _end(self, *, fast: bool = False) -> None:
        running, self._running = self._running, None
        if running is None:
            return
        if fast:
            self._worker.stop()
        else:
            self._worker.drain()
        with contextlib.suppress(Exception):  # serve() has raised its own error
            await running
        self._shared_state.close()


def _labelled(parts: WorkerConfig) -> WorkerConfig:
    """The labels of the worker: all labels that the tasks need."""
    labels = tuple({label for spec in parts.tasks.values() for label in spec.needs})
    return parts._replace(settings=msgspec.structs.replace(parts.settings, labels=labels))


def _hurried(bulk: Bulk | None) -> Bulk | None:
    """Bulk calls do not wait for more items: nothing else is enqueued while the test drains."""
    return None if bulk is None else bulk._replace(wait=0)


async def _promote(store: Watched) -> int | None:
    """Promote due jobs; returns the next due time, or None."""
    done = await store.promote()
    while done.promoted or done.expired:
        done = await store.promote()
    return None if done.next_due is None or done.next_due <= done.now else done.next_due


async def _at_work(store: Door, parts: WorkerConfig, states: tuple[State, ...]) -> frozenset[str]:
    """The queues with jobs in these states that this app can run: of known tasks, and not ready in a closed queue."""
    if not parts.tasks:
        return frozenset()
    tallied = await store.tally(Query(states=states, tasks=(*parts.tasks, EACH_TASK)), "queue")
    closed = {row.name for row in await store.queues() if row.closed}
    return frozenset(each.value for each in tallied if each.state is State.RUNNING or each.value not in closed)


async def _held(store: Watched, parts: WorkerConfig) -> int | None:
    """Until when all ready jobs are held back; None if a job may start now, or a worker runs one."""
    known = store.moves
    held = await held_until(store, parts)
    if held is None or await _at_work(store, parts, (State.RUNNING,)) or store.moves != known:
        return None  # the holder that blocked the job may be the job itself, just claimed
    return held


async def _prune(store: Door, parts: WorkerConfig) -> int:
    gone = 0
    while n := await store.prune(parts.retention):
        gone += n
    return gone


def _endless(store: Watched) -> InsideTest:
    """The error for a drain that does not end. It names the job that ran most, or the task if no job ran twice."""
    (job, task), runs = store.most_runs()
    which = f"job {id_text(job)} of task {task!r} ran {runs:,} times"
    hint = "Does the job snooze itself repeatedly? Limit the attempts: t.drain(limit=100)."
    if runs <= 1:
        which = f"most of them are of task {store.most_run_task()!r}"
        hint = "Does a job enqueue itself repeatedly? Limit the attempts: t.drain(limit=100)."
    said = f"drain() does not end: after {store.claimed:,} attempts jobs are still ready; {which}"
    return InsideTest(said, hint=hint)
