"""Thread slots: bodies of ``def`` tasks, in threads of our own.

The hand-over is batched both ways. Threads take the next attempt by themselves, without asking the
loop; what they finished is collected by one wake-up of the loop, however many there are.

Exceptions from outside. A thread body is ended by an exception that the interpreter raises inside
it at its next bytecode. It must never strike outside the body: it is thrown only while ``_inside``
is set, and what is still pending when the body is left is taken back.

The thread may be struck in every line up to that, so the first thing it does when a body is over is
to unset ``_inside``, without the lock: from then on one exception can still come, thrown by somebody
who had looked just before. ``_run`` has room for exactly that one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any

from mainspring.common import job_threads
from mainspring.jobs.outcomes import Ack
from mainspring.worker.run.attempt import RunningAttempt
from mainspring.worker.run.bulk.executor import BulkExecutor
from mainspring.worker.run.classify import ending_error
from mainspring.worker.run.executor import Executor
from mainspring.worker.run.slots.base import ClaimAhead, Done
from mainspring.worker.run.timeouts import AttemptTimeouts


class ThreadSlots:
    """Runs functions; threads are made when there is work for them, up to ``slots``."""

    def __init__(self, slots: int, first: int, executor: Executor, deadlines: AttemptTimeouts, done: Done) -> None:
        self.slots = slots
        self.held = 0
        self.pace = ClaimAhead(slots)
        self.executor = executor
        self.deadlines = deadlines
        self._done = done
        self._first = first
        self._runners: list[Runner] = []
        self._line: SimpleQueue[RunningAttempt | None] = SimpleQueue()
        self._ended: deque[tuple[RunningAttempt, Ack]] = deque()
        self._waking = False
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self.take = self._line.get

    def submit(self, attempt: RunningAttempt) -> None:
        self.held += 1
        self._line.put(attempt)
        if len(self._runners) < self.slots and len(self._runners) < self.held:
            self._runners.append(Runner(self, self._first + len(self._runners)))

    def waiting(self, before: float) -> list[RunningAttempt]:
        out: list[RunningAttempt] = []
        stay: list[RunningAttempt] = []
        try:
            while (attempt := self._line.get_nowait()) is not None:
                (out if attempt.received < before else stay).append(attempt)
        except Empty:
            pass
        for attempt in stay:
            self._line.put(attempt)
        self.held -= len(out)
        return out

    def bodies(self) -> list[RunningAttempt]:
        return [attempt for runner in self._runners if (attempt := runner.attempt) is not None]

    def close(self) -> None:
        """Let idle threads end; one that does not end is left to the end of the process."""
        for _ in self._runners:
            self._line.put(None)

    # ---- from the threads --------------------------------------------------------------------

    def run(self, call: Callable[..., Any], *args: Any) -> None:
        """Call with fresh context variables."""
        self._context.copy().run(call, *args)

    def finished(self, attempt: RunningAttempt, ack: Ack) -> None:
        self._ended.append((attempt, ack))
        if not self._waking:  # two threads may both see it unset: then the loop is woken twice, no harm
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:  # the loop is closed: this thread outlived its worker
                return

    def _collect(self) -> None:
        self._waking = False  # before the look: what comes later wakes again
        ended = self._ended
        while ended:
            attempt, ack = ended.popleft()
            self.held -= 1
            if attempt.begun:
                self.pace.ran(ack.run_us)
            self._done(attempt, ack)


class Runner:
    """One thread, one slot."""

    def __init__(self, pool: ThreadSlots, slot: int) -> None:
        self.attempt: RunningAttempt | None = None
        """What runs here now."""
        self._pool = pool
        self._slot = slot
        self._lock = threading.Lock()
        self._inside = False
        self._thrown = False
        self._thread = threading.Thread(target=self._main, name=f"mainspring-slot-{slot}", daemon=True)
        self._thread.start()

    def throw(self, attempt: RunningAttempt, error: BaseException) -> None:
        """Raise an exception like ``error`` inside the body of ``attempt``, if that still runs here."""
        with self._lock:
            if self.attempt is attempt and self._inside and self._thread.ident is not None:
                self._thrown = True
                _set_async_exception(self._thread.ident, _class_of(error))

    def _main(self) -> None:
        job_threads.enter()
        pool = self._pool
        while (attempt := pool.take()) is not None:
            pool.run(self._work, attempt)

    def _work(self, attempt: RunningAttempt) -> None:
        pool, executor = self._pool, self._executor_of(attempt)
        ack = executor.refuse(attempt)
        if ack is None:
            ack = self._run(attempt)
        attempt.over = True
        if attempt.begun:
            executor.end(attempt)
        self.attempt = None
        pool.finished(attempt, ack)

    def _run(self, attempt: RunningAttempt) -> Ack:
        ends: list[_Returned | BaseException] = []  # the first is what the body came to; others came too late
        try:
            self._body(attempt, ends)
            self._leave()
        except BaseException as late:  # noqa: BLE001 - the one that may still come; no other can
            ends.append(late)
            self._leave()
        executor, end = self._executor_of(attempt), ends[0]
        if isinstance(end, _Returned):
            return executor.succeeded(attempt, end.value)
        return executor.failed(attempt, end)

    def _body(self, attempt: RunningAttempt, ends: list[_Returned | BaseException]) -> None:
        try:
            fn, args, kwargs = self._executor_of(attempt).open_body(attempt)
            self._enter(attempt)
            value = fn(*args, **kwargs)
            self._inside = False  # by a plain store in both ways out: nothing strikes between the body's end and this
            ends.append(_Returned(value))
        except BaseException as error:  # noqa: BLE001 - SystemExit of a handler ends its attempt, not the worker
            self._inside = False
            ends.append(error)

    def _executor_of(self, attempt: RunningAttempt) -> Executor | BulkExecutor:
        return self._pool.executor.bulk if attempt.many else self._pool.executor

    def _enter(self, attempt: RunningAttempt) -> None:
        deadlines = self._pool.deadlines
        attempt.runner = self
        self.attempt = attempt
        self._executor_of(attempt).begin(attempt, self._slot)
        if attempt.next_at < deadlines.next_at:
            deadlines.arm_from_thread(attempt.next_at)
        with self._lock:
            self._inside = True
            if attempt.ending:  # asked to end before anything could be thrown
                raise ending_error(attempt)

    def _leave(self) -> None:
        """From here on nothing strikes this thread: nobody is throwing, and what was thrown is taken back."""
        with self._lock:
            if self._thrown:
                assert self._thread.ident is not None
                _set_async_exception(self._thread.ident, None)
                self._thrown = False
                _release_logging()


def _release_logging() -> None:
    """Give back the locks of ``logging`` that the body was holding when it was struck.

    ``logging`` takes them by a call before its ``try``, so an exception between the two leaves them taken for ever
    and stops every thread that logs. The body is over: whatever this thread still holds is such a one.
    """
    inside = vars(logging)  # there is no public way to these
    handlers = [found for reference in list(inside["_handlerList"]) if (found := reference()) is not None]
    for lock in (inside["_lock"], *(handler.lock for handler in handlers)):
        while lock is not None and lock._is_owned():  # noqa: SLF001  # an RLock tells nobody else
            lock.release()


class _Returned:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_classes: dict[tuple[type[BaseException], str], type[BaseException]] = {}


def _class_of(error: BaseException) -> type[BaseException]:
    """A class that makes an exception like ``error`` without arguments: the interpreter takes only classes."""
    kind = type(error)
    key = (kind, repr(error.args))
    if key not in _classes:
        if len(_classes) > 1_000:
            _classes.clear()
        args, state = error.args, dict(error.__dict__)

        def rebuild(self: BaseException) -> None:
            BaseException.__init__(self, *args)
            self.__dict__.update(state)

        body = {"__init__": rebuild, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
        _classes[key] = type(kind.__name__, (kind,), body)
    return _classes[key]


def _set_async_exception(ident: int, kind: type[BaseException] | None) -> None:
    import ctypes

    raised = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), raised)
