"""Where hooks are called: ``def`` hooks in one thread, ``async def`` hooks on the loop, each in order.

A hook that never returns blocks the hooks behind it and nothing else. An error that a hook raises is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from mainspring.tasks.events import BreakerEvent, Event, ScheduleEvent

log = logging.getLogger("mainspring.hooks")

AnyEvent = Event | BreakerEvent | ScheduleEvent
HookCall = tuple[Callable[[Any], Any], AnyEvent]


class ThreadCaller:
    """Calls functions, one after the other, in a thread that is created for the first call."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[HookCall | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._put = self._done = 0

    @property
    def waiting(self) -> int:
        """The number of calls that have not ended."""
        return self._put - self._done

    def put(self, call: HookCall) -> None:
        """Call it after all earlier calls."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mainspring-hooks", daemon=True)
            self._thread.start()
        self._put += 1
        self._queue.put(call)

    def close(self) -> None:
        """Make no further calls. A hook that never returns keeps its thread until the process ends."""
        with contextlib.suppress(Empty):
            while True:
                self._queue.get_nowait()
        self._queue.put(None)

    def _run(self) -> None:
        while (call := self._queue.get()) is not None:
            fn, event = call
            try:
                fn(event)
            except BaseException as error:  # noqa: BLE001 - SystemExit in a hook ends nothing
                _log_error(fn, event, error)
            self._done += 1


class LoopCaller:
    """Awaits coroutine functions, one after the other, on the running loop."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[HookCall] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._put = self._done = 0

    @property
    def waiting(self) -> int:
        """The number of calls that have not ended."""
        return self._put - self._done

    def put(self, call: HookCall) -> None:
        """Call it after all earlier calls."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        self._put += 1
        self._queue.put_nowait(call)

    def close(self) -> None:
        """Make no further calls. The running call is cancelled."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            call = await self._queue.get()
            running = asyncio.create_task(_await_hook(*call))
            try:
                await asyncio.wait({running})
            finally:
                running.cancel()
            self._done += 1


async def _await_hook(fn: Callable[[Any], Any], event: AnyEvent) -> None:
    try:
        await fn(event)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - SystemExit in a hook ends nothing
        _log_error(fn, event, error)


def _log_error(fn: Callable[..., Any], event: AnyEvent, error: BaseException) -> None:
    name = getattr(fn, "__qualname__", repr(fn))
    log.error("hook %s failed for event %r of %s", name, event.name, _subject(event), exc_info=error)


def _subject(event: AnyEvent) -> str:
    if isinstance(event, Event):
        return f"job {event.job} ({event.task})"
    return f"breaker {event.breaker}" if isinstance(event, BreakerEvent) else f"schedule {event.schedule}"
