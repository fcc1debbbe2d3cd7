"""Deadlines of calls: of awaited calls (:class:`CallDeadlines`), and of blocking calls (:class:`BlockingDeadline`).

One timer of an event loop serves all calls with the same deadline: ``asyncio.timeout`` makes and cancels a timer for
each call, which costs more than everything else in the door.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from types import TracebackType
from weakref import WeakKeyDictionary


class DeadlinePassed(TimeoutError):
    """The time of a call is over. No other code raises it: a time limit of a job is a ``TimeoutError`` as well."""


class CallDeadlines:
    """Deadlines of one length, on any event loop: ``with deadlines.begin(): await ...`` raises ``DeadlinePassed``."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._watches: WeakKeyDictionary[asyncio.AbstractEventLoop, _Watch] = WeakKeyDictionary()

    def begin(self) -> _Deadline:
        """The deadline of the current task inside of this ``with`` block."""
        loop = asyncio.get_running_loop()
        watch = self._watches.get(loop)
        if watch is None:
            watch = self._watches[loop] = _Watch()
        return _Deadline(watch, loop, self.seconds)


class _Watch:
    """The running deadlines of one loop, the next to end first."""

    def __init__(self) -> None:
        self.running: dict[_Deadline, None] = {}
        self.is_set = False

    def look(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the calls whose deadline has passed, and set the timer for the next deadline."""
        self.is_set = False
        now = loop.time()
        for deadline in list(self.running):
            if deadline.at > now:
                self.is_set = True
                loop.call_at(deadline.at, self.look, loop)
                return
            deadline.end()


class _Deadline:
    """The same as ``asyncio.timeout``, without a timer of its own."""

    __slots__ = ("_cancelling", "_is_late", "_task", "_watch", "at")

    def __init__(self, watch: _Watch, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        task = asyncio.current_task(loop)
        if task is None:
            raise RuntimeError("a deadline needs a running asyncio task")
        self.at = loop.time() + seconds
        self._task = task
        self._cancelling = task.cancelling()
        self._is_late = False
        self._watch = watch
        watch.running[self] = None
        if not watch.is_set:
            watch.is_set = True
            loop.call_at(self.at, watch.look, loop)

    def end(self) -> None:
        del self._watch.running[self]
        self._is_late = True
        self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if not self._is_late:
            del self._watch.running[self]
        elif self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise DeadlinePassed from error


class BlockingDeadline(threading.local):
    """The time at which the blocking call of this thread must end, whatever the engine is doing for it.

    The client sets it around each try of an enqueue. An engine asks for it before it waits.
    """

    until: float = math.inf
    """Seconds of the monotonic clock."""

    def after(self, seconds: float) -> float:
        """The end of a wait that may take ``seconds``, or the end of the whole call if that comes first."""
        return min(time.monotonic() + seconds, self.until)


blocking_deadline = BlockingDeadline()
