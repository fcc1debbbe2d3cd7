"""Where hooks are called: ``def`` in one thread of their own, ``async def`` on the loop, each in order.

A hook that never returns keeps those behind it waiting and nothing else. What it raises is logged.
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
Call = tuple[Callable[[Any], Any], AnyEvent]


class ThreadCaller:
    """Calls functions, one after the other, in a thread that is made when the first one comes."""

    def __init__(self) -> None:
        self._line: SimpleQueue[Call | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._put = self._done = 0

    @property
    def waiting(self) -> int:
        """Calls that have not ended."""
        return self._put - self._done

    def put(self, call: Call) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mainspring-hooks", daemon=True)
            self._thread.start()
        self._put += 1
        self._line.put(call)

    def close(self) -> None:
        """Call no more. One that never returns is left to the end of the process."""
        with contextlib.suppress(Empty):
            while True:
                self._line.get_nowait()
        self._line.put(None)

    def _run(self) -> None:
        while (call := self._line.get()) is not None:
            fn, event = call
            try:
                fn(event)
            except BaseException as error:  # noqa: BLE001 - SystemExit of a hook ends nothing
                _log(fn, event, error)
            self._done += 1


class LoopCaller:
    """Awaits coroutine functions, one after the other, on the running loop."""

    def __init__(self) -> None:
        self._line: asyncio.Queue[Call] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._put = self._done = 0

    @property
    def waiting(self) -> int:
        """Calls that have not ended."""
        return self._put - self._done

    def put(self, call: Call) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        self._put += 1
        self._line.put_nowait(call)

    def close(self) -> None:
        """Call no more; the one that runs is cancelled."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        while True:
            call = await self._line.get()
            told = asyncio.create_task(_told(*call))
            try:
                await asyncio.wait({told})
            finally:
                told.cancel()
            self._done += 1


async def _told(fn: Callable[[Any], Any], event: AnyEvent) -> None:
    try:
        await fn(event)
    except asyncio.CancelledError:
        raise
    except BaseException as error:  # noqa: BLE001 - as above
        _log(fn, event, error)


def _log(fn: Callable[..., Any], event: AnyEvent, error: BaseException) -> None:
    name = getattr(fn, "__qualname__", repr(fn))
    log.error("hook %s failed on %r of %s", name, event.name, _whose(event), exc_info=error)


def _whose(event: AnyEvent) -> str:
    if isinstance(event, Event):
        return f"job {event.job} ({event.task})"
    return f"breaker {event.breaker}" if isinstance(event, BreakerEvent) else f"schedule {event.schedule}"
