"""Watches the worker's event loop from the heartbeat thread: a body that blocks the loop must not harm its neighbours.

``time.sleep(60)`` or a long computation in an ``async def`` body stops everything that runs on the loop: other bodies,
time limits, and the turns that report ended jobs. The loop ticks twice a second (shared state). Without a tick for a
second, at each check:

- The heartbeat thread stores the acks that wait for the loop, over its own connection. Otherwise the ended jobs would
  run again if the worker is killed. The acks of thread bodies that end meanwhile are among them.
- Time limits of thread bodies, which the loop enforces otherwise, are enforced here.
- From the second check on: a log line names the body and its place, once for each incident, and the shared state names
  its slot. So the supervisor charges no other body of the loop with a time-out.
- When the hard limit of the blocking body passes, a supervised worker is replaced at once, lets its thread bodies
  finish, and is killed.

One check alone proves nothing: after the process or the machine was stopped, this thread may run before the loop.
"""

from __future__ import annotations

import asyncio
import logging
import selectors
import sys
import threading
import traceback
from collections.abc import Awaitable, Callable
from types import FrameType

from mainspring.common.clock import boottime
from mainspring.errors import StoreError
from mainspring.stores.base import Store
from mainspring.worker import failure_log
from mainspring.worker.lease.shared_state import BLOCKED_AFTER, Phase, SharedState
from mainspring.worker.loop.turn_loop import MAX_ACKS, TurnLoop
from mainspring.worker.records import Turn
from mainspring.worker.run.attempt import RunningAttempt
from mainspring.worker.run.dispatch import Dispatcher
from mainspring.worker.run.executor import run_async
from mainspring.worker.run.place import place_in_thread
from mainspring.worker.run.progress import send_reports

log = logging.getLogger("mainspring.worker")

_FRAMES = 4
"""Most frames of the stack in the log line."""


class LoopWatch:
    """Make it on the loop to be watched; call :meth:`check` in another thread, about twice a second.

    ``on_overdue`` is called with the blocking body and its place when the body has passed its hard limit and a
    supervisor will replace the worker.
    """

    def __init__(
        self,
        shared_state: SharedState,
        turn_loop: TurnLoop,
        dispatcher: Dispatcher,
        *,
        supervised: bool,
        on_overdue: Callable[[RunningAttempt, str], None],
    ) -> None:
        self._shared_state = shared_state
        self._turn_loop = turn_loop
        self._dispatcher = dispatcher
        self._supervised = supervised
        self._on_overdue = on_overdue
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._seen = 0.0  # the tick at the last check that found the loop blocked
        self._warned = False
        self._replaced = False

    async def check(self, connect: Callable[[], Awaitable[Store]]) -> None:
        """Look at the loop once. ``connect`` gives the store of the calling thread."""
        ticked, now = self._shared_state.ticked, boottime()
        if now - ticked < BLOCKED_AFTER:
            self._end_incident(now)
            return
        if self._shared_state.phase == Phase.STARTING:
            return  # user code may take its time
        self._dispatcher.enforce_thread_limits(now)
        is_quiet = self._replaced and self._dispatcher.stop_threads()  # before the ends are collected: none is missed
        all_stored = await self._store_ends(connect)
        if ticked != self._seen:
            self._seen = ticked
            return
        attempt = self._dispatcher.find_running_task(asyncio.current_task(self._loop))
        if self._shared_state.ticked != ticked:
            return  # it runs again
        self._shared_state.blocker = -1 if attempt is None else attempt.slot
        if not self._warned:
            self._warned = True
            self._log(attempt, boottime() - ticked)
        if self._supervised and attempt is not None and attempt.deadline <= now:
            self._replace(attempt, is_done=is_quiet and all_stored)

    def _end_incident(self, now: float) -> None:
        if self._warned:
            log.warning("the event loop runs again; it was blocked for about %.1f s", now - self._seen)
        self._seen, self._warned = 0.0, False
        self._shared_state.blocker = -1

    def _log(self, attempt: RunningAttempt | None, seconds: float) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 - the documented way to another thread's stack
        if attempt is None and frame is not None and _waits_for_events(frame):
            failure_log.log_stalled_loop(seconds)
        else:
            failure_log.log_blocked_loop(attempt, seconds, self._find_place(frame))

    def _find_place(self, frame: FrameType | None) -> str:
        """The innermost frames of the loop's thread, outermost first, without our own."""
        stack = traceback.extract_stack(frame) if frame is not None else []
        ours = [place for place, each in enumerate(stack) if each.filename == run_async.__code__.co_filename]
        lines = stack[ours[-1] + 1 if ours else 0 :][-_FRAMES:]
        return "\n".join(f"    {each.filename}:{each.lineno} in {each.name}: {each.line}" for each in lines)

    def _replace(self, attempt: RunningAttempt, *, is_done: bool) -> None:
        """The body does not end at its hard limit. The worker is done when its thread bodies have ended and the store
        has their acks."""
        if not self._replaced:
            self._replaced = True
            self._shared_state.phase = Phase.REPLACE
            self._on_overdue(attempt, place_in_thread(attempt, self._thread))
            self._dispatcher.stop_threads()
        elif is_done:
            self._shared_state.phase = Phase.DONE

    # ---- the ends of other bodies ------------------------------------------------------------

    async def _store_ends(self, connect: Callable[[], Awaitable[Store]]) -> bool:
        """Store the acks that wait for the loop. True if none is left."""
        reports = self._turn_loop.environment.reports
        collected = self._dispatcher.uncollected_ends()
        unsent = [*(each for each in collected if each[0].has_reports), *reports.unsent_ends()]
        others = [*(each for each in collected if not each[0].has_reports), *reports.half_sent_ends()]
        try:
            turn = self._turn_loop.repeat_with_acks([ack for _, ack in (*others, *unsent)])
            if turn is None:
                return True
            store = await connect()
            acked = {ack.lease for ack in turn.acks}
            await send_reports(store, turn.worker, [attempt for attempt, ack in unsent if ack.lease in acked])
            await self._send(store, turn)
        except StoreError as error:
            log.debug("acks could not be stored while the event loop is blocked: %s", error)
            return False
        return len(turn.acks) < MAX_ACKS

    async def _send(self, store: Store, turn: Turn) -> None:
        reply = await store.turn(turn)
        self._turn_loop.record_saved(turn, reply)
        self._loop.call_soon_threadsafe(self._turn_loop.wake)


def _waits_for_events(frame: FrameType) -> bool:
    """Whether the innermost frame of the loop's thread is the loop itself: no callback and no body runs.

    The loop of asyncio waits in the module ``selectors``. uvloop has no Python frames: the innermost one runs the loop.
    """
    code = frame.f_code
    return code.co_filename == selectors.__file__ or not {"run_until_complete", "run_forever"}.isdisjoint(code.co_names)
