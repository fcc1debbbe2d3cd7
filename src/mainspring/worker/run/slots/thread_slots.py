"""Thread slots: bodies of ``def`` tasks, each in one of the pool's threads.

The hand-over between loop and threads is batched both ways. Threads take the next attempt from a queue, without asking
the loop. Finished attempts are collected by one wake-up of the loop, however many there are.

Exceptions from outside. A thread body is ended by an exception that the interpreter raises inside it at its next
bytecode. The exception must never be raised outside the body: it is thrown only while ``_inside`` is set, and an
exception that is still pending when the thread leaves the body is withdrawn.

Until then the exception may be raised at any line. So the first thing that the thread does after a body is to unset
``_inside``, without taking the lock. After that, one exception can still arrive: from a thread that had read
``_inside`` just before. ``_run`` catches exactly that one.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
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
from mainspring.worker.run.executor import LOOK_AGAIN, Executor
from mainspring.worker.run.flows.replaced import is_flow, replace
from mainspring.worker.run.forked import end_forked_child
from mainspring.worker.run.slots.base import ClaimAhead, Finish
from mainspring.worker.run.timeouts import AttemptTimeouts


class ThreadSlots:
    """Runs functions. Threads are created when there is work for them, up to ``slots``."""

    def __init__(self, slots: int, first: int, executor: Executor, timeouts: AttemptTimeouts, finish: Finish) -> None:
        self.slots = slots
        self.held = 0
        self.claim_ahead = ClaimAhead(slots)
        self.executor = executor
        self.timeouts = timeouts
        self._finish = finish
        self._lines = list(range(first + slots - 1, first - 1, -1))  # of the shared state, without a thread
        self._threads: list[SlotThread] = []
        self._retiring = threading.Lock()
        self.surplus = False
        """There may be more threads than slots: a thread that ends a body calls :meth:`retire`."""
        self._queue: SimpleQueue[RunningAttempt | None] = SimpleQueue()
        self._ended: deque[tuple[RunningAttempt, Ack]] = deque()
        self._waking = False
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self.take = self._queue.get

    def submit(self, attempt: RunningAttempt) -> None:
        self.held += 1
        self._queue.put(attempt)
        if len(self._threads) < self.slots and len(self._threads) < self.held:
            self._start_thread()

    def _start_thread(self) -> None:
        with self._retiring:
            thread = SlotThread(self, self._lines.pop())
            self._threads.append(thread)
            thread.start()

    def add_slot(self) -> bool:
        with self._retiring:
            if len(self._threads) <= self.slots:  # else a surplus thread has a line, and is needed now
                line = self.executor.bulk.extra_lines.take()
                if line < 0:
                    return False
                self._lines.append(line)
            self.slots += 1
        if len(self._threads) < min(self.slots, self.held):
            self._start_thread()
        return True

    def remove_slot(self) -> None:
        with self._retiring:
            self.slots -= 1
            if len(self._threads) > self.slots:
                self.surplus = True
            else:
                self.executor.bulk.extra_lines.release(self._lines.pop())

    def retire(self, thread: SlotThread, line: int) -> bool:
        """Whether this thread must end, because there are more threads than slots. From that thread."""
        with self._retiring:
            self.surplus = len(self._threads) > self.slots + 1
            if len(self._threads) <= self.slots:
                return False
            self._threads.remove(thread)
            self.executor.bulk.extra_lines.release(line)
            return True

    def take_waiting(self, before: float) -> list[RunningAttempt]:
        taken: list[RunningAttempt] = []
        kept: list[RunningAttempt] = []
        try:
            while (attempt := self._queue.get_nowait()) is not None:
                (taken if attempt.received < before else kept).append(attempt)
        except Empty:
            pass
        for attempt in kept:
            self._queue.put(attempt)
        self.held -= len(taken)
        return taken

    def running(self) -> list[RunningAttempt]:
        return [attempt for thread in self._threads if (attempt := thread.attempt) is not None]

    def close(self) -> None:
        """Let idle threads end. A thread that does not end stays until the process ends."""
        for _ in self._threads:
            self._queue.put(None)

    @property
    def unfinished(self) -> int:
        """How many attempts wait or run here, without the ended attempts that the loop has not collected yet."""
        return self.held - len(self._ended)

    def uncollected(self) -> list[tuple[RunningAttempt, Ack]]:
        """The ended attempts that the loop has not collected yet. Any thread."""
        return list(self._ended.copy())

    # ---- from the threads --------------------------------------------------------------------

    def run(self, call: Callable[..., Any], *args: Any) -> None:
        """Call the function with fresh context variables."""
        self._context.copy().run(call, *args)

    def report_end(self, attempt: RunningAttempt, ack: Ack) -> None:
        self._ended.append((attempt, ack))
        if not self._waking:  # two threads may both see it unset; then the loop is woken twice, which does no harm
            self._waking = True
            try:
                self._loop.call_soon_threadsafe(self._collect)
            except RuntimeError:  # the loop is closed: this thread outlived its worker
                return

    def _collect(self) -> None:
        self._waking = False  # before the loop below: an attempt that ends later wakes the loop again
        ended = self._ended
        while ended:
            attempt, ack = ended.popleft()
            self.held -= 1
            if attempt.begun:
                self.claim_ahead.record_run(ack.run_us)
            self._finish(attempt, ack)


class SlotThread:
    """The thread of one slot. In a pool child ``thread`` is the main thread, which calls ``serve``."""

    def __init__(self, pool: ThreadSlots, slot: int, thread: threading.Thread | None = None) -> None:
        self.attempt: RunningAttempt | None = None
        """The attempt that runs here now."""
        self._pool = pool
        self._slot = slot
        self._lock = threading.Lock()
        self._inside = False
        self._thrown = False
        name = f"mainspring-slot-{slot}"
        self._thread = thread or threading.Thread(target=self.serve, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def ident(self) -> int | None:
        return self._thread.ident

    def throw(self, attempt: RunningAttempt, error: BaseException) -> None:
        """Raise an exception like ``error`` inside the body of ``attempt``, if the body still runs here."""
        with self._lock:
            if self.attempt is attempt and self._inside and self._thread.ident is not None:
                self._thrown = True
                _set_async_exception(self._thread.ident, _class_of(error))

    def serve(self) -> None:
        """Run bodies until the pool is closed, or has more threads than slots. In the thread itself."""
        job_threads.enter()
        pool = self._pool
        while (attempt := pool.take()) is not None:
            pool.run(self._work, attempt)
            if pool.surplus and pool.retire(self, self._slot):
                return

    def _work(self, attempt: RunningAttempt) -> None:
        pool = self._pool
        executor = pool.executor.bulk if attempt.is_bulk else pool.executor
        ack = executor.refuse(attempt)
        if ack is None:
            ack = self._run(attempt, executor)
        attempt.finished = True
        if attempt.begun:
            executor.end(attempt)
        self.attempt = None
        pool.report_end(attempt, ack)

    def _run(self, attempt: RunningAttempt, executor: Executor | BulkExecutor) -> Ack:
        ends: list[_Returned | BaseException] = []  # the first is the end of the body; a second came too late
        try:
            self._body(attempt, executor, ends)
            self._leave()
        except BaseException as late:  # noqa: BLE001 - the one exception that may still arrive
            ends.append(late)
            self._leave()
        end = ends[0]
        if not isinstance(end, _Returned):
            return executor.ack_failure(attempt, end)
        if end.value is None or not is_flow(end.value):
            return executor.ack_success(attempt, end.value)
        try:
            return executor.ack_success(attempt, replace(attempt, end.value))
        except Exception as error:  # noqa: BLE001 - an error of the enqueue is an error of the body
            return executor.ack_failure(attempt, error)

    def _body(
        self, attempt: RunningAttempt, executor: Executor | BulkExecutor, ends: list[_Returned | BaseException]
    ) -> None:
        try:
            fn, args, kwargs = executor.prepare_call(attempt)
            if attempt.limited:
                while (pause := executor.seconds_until_start(attempt)) > 0:
                    time.sleep(min(pause, LOOK_AGAIN))
            self._enter(attempt, executor)
            value = fn(*args, **kwargs)
            self._inside = (
                False  # a plain assignment on both ways out: no exception is raised between the body's end and this
            )
            end_forked_child(attempt)
            ends.append(_Returned(value))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a handler ends its attempt, not the worker
            self._inside = False
            end_forked_child(attempt, error)
            ends.append(error)

    def _enter(self, attempt: RunningAttempt, executor: Executor | BulkExecutor) -> None:
        timeouts = self._pool.timeouts
        attempt.thread = self
        self.attempt = attempt
        executor.begin(attempt, self._slot)
        if attempt.check_at < timeouts.check_at:
            timeouts.arm_from_thread(attempt.check_at)
        with self._lock:
            self._inside = True
            if attempt.ending:  # asked to end before anything could be thrown
                raise ending_error(attempt)

    def _leave(self) -> None:
        """After this no exception is raised in this thread: no thread throws one, and a pending one is withdrawn."""
        with self._lock:
            if self._thrown:
                assert self._thread.ident is not None
                _withdraw_async_exception(self._thread.ident)
                self._thrown = False
                _release_logging()


def _release_logging() -> None:
    """Release the locks of ``logging`` that the body held when the exception was raised in it.

    ``logging`` acquires a lock by a call before its ``try``. An exception between the two leaves the lock acquired for
    ever and blocks every thread that logs. The body has ended: each lock that this thread still holds is such a lock.
    """
    inside = vars(logging)  # these names have no public access
    handlers = [found for reference in list(inside["_handlerList"]) if (found := reference()) is not None]
    for lock in (inside["_lock"], *(handler.lock for handler in handlers)):
        while lock is not None and lock._is_owned():  # noqa: SLF001  # no public method of an RLock says this
            lock.release()


class _Returned:
    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


_classes: dict[tuple[type[BaseException], str], type[BaseException]] = {}


def _class_of(error: BaseException) -> type[BaseException]:
    """A class whose instances, made without arguments, equal ``error``: the interpreter accepts only classes."""
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


def _set_async_exception(ident: int, kind: type[BaseException]) -> None:
    import ctypes

    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(kind))


class _Withdrawn(BaseException):
    """Raised and caught in :func:`_withdraw_async_exception` only."""


def _withdraw_async_exception(ident: int) -> None:
    """Withdraw the exception that is pending in the calling thread ``ident``, if there is one.

    ``PyThreadState_SetAsyncExc(ident, NULL)`` does this too, but before Python 3.13 it also sets a flag of the whole
    interpreter, "an exception is pending", and only an exception that is raised unsets the flag. While it is set,
    every call and every loop of every thread takes the slow path, and in Python 3.11 a thread with a profile or trace
    function (a debugger, coverage) repeats the first instruction of its next function for ever. So another exception
    replaces the pending one, and is raised here. The loop repeats it: a finalizer that runs in this thread may swallow
    one.
    """
    try:
        while True:
            _set_async_exception(ident, _Withdrawn)
    except _Withdrawn:
        pass
