"""Async slots: each body is a task on the worker's loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from typing import Any

from mainspring.errors import SoftTimeout
from mainspring.jobs.outcomes import Ack
from mainspring.worker.run.attempt import Ending, RunningAttempt
from mainspring.worker.run.executor import Executor
from mainspring.worker.run.slots.base import ClaimAhead, Finish
from mainspring.worker.run.timeouts import AttemptTimeouts


class AsyncSlots:
    """Runs coroutines. When one ends, the next waiting one starts."""

    def __init__(self, slots: int, first: int, executor: Executor, timeouts: AttemptTimeouts, finish: Finish) -> None:
        self.slots = slots
        self.held = 0
        self.claim_ahead = ClaimAhead(slots)
        self._executor = executor
        self._timeouts = timeouts
        self._finish = finish
        self._free = list(range(first + slots - 1, first - 1, -1))
        self._running: dict[int, RunningAttempt] = {}
        self._waiting: deque[RunningAttempt] = deque()
        self._loop = asyncio.get_running_loop()
        self._context = (
            copy_context()
        )  # each body starts with a copy of this, never with the context of the body before it

    def submit(self, attempt: RunningAttempt) -> None:
        self.held += 1
        if self._free:
            self._start(attempt)
        else:
            self._waiting.append(attempt)

    def take_waiting(self, before: float) -> list[RunningAttempt]:
        taken = [attempt for attempt in self._waiting if attempt.received < before]
        if taken:
            self._waiting = deque(attempt for attempt in self._waiting if attempt.received >= before)
            self.held -= len(taken)
        return taken

    def running(self) -> list[RunningAttempt]:
        return list(self._running.values())

    def close(self) -> None:
        """Nothing to release: tasks end with the loop."""

    def _start(self, attempt: RunningAttempt) -> None:
        slot = self._free.pop()
        self._running[slot] = attempt
        attempt.task = self._loop.create_task(self._run(attempt, slot), context=self._context.copy())

    async def _run(self, attempt: RunningAttempt, slot: int) -> None:
        executor = self._executor.bulk if attempt.is_bulk else self._executor
        ack: Ack | None = None
        try:
            ack = executor.refuse(attempt)
            if ack is None:
                fn, args, kwargs = executor.prepare_call(attempt)
                executor.begin(attempt, slot)
                if attempt.check_at < self._timeouts.check_at:
                    self._timeouts.arm(attempt.check_at)
                if attempt.spec.soft_timeout:
                    value = await _WithSoftTimeout(attempt, fn(*args, **kwargs))
                else:
                    value = await fn(*args, **kwargs)
                ack = executor.ack_success(attempt, value)
        except BaseException as error:  # SystemExit in a handler ends its attempt, not the worker
            if self._loop.is_closed():  # the interpreter discards this coroutine; there is no loop to report to
                raise
            ack = executor.ack_failure(attempt, error)
        self._end(attempt, slot, ack)

    def _end(self, attempt: RunningAttempt, slot: int, ack: Ack) -> None:
        attempt.finished = True
        if attempt.begun:
            (self._executor.bulk if attempt.is_bulk else self._executor).end(attempt)
            self.claim_ahead.record_run(ack.run_us)
        del self._running[slot]
        self._free.append(slot)
        self.held -= 1
        attempt.task = None
        if self._waiting:
            self._start(self._waiting.popleft())
        self._finish(attempt, ack)


class _WithSoftTimeout:
    """Awaits a body, and raises ``SoftTimeout`` in it in place of the cancellation that means "soft limit"."""

    __slots__ = ("_attempt", "_body")

    def __init__(self, attempt: RunningAttempt, body: Coroutine[Any, Any, Any]) -> None:
        self._attempt = attempt
        self._body = body

    def __await__(self) -> Generator[Any, Any, Any]:
        body = self._body
        step: Callable[[Any], Any] = body.send
        value: Any = None
        while True:
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
            try:
                step, value = body.send, (yield awaited)
            except GeneratorExit:
                body.close()
                raise
            except BaseException as error:  # noqa: BLE001 - passed on to the body
                step, value = body.throw, self._translate(error)

    def _translate(self, error: BaseException) -> BaseException:
        attempt = self._attempt
        if not (isinstance(error, asyncio.CancelledError) and attempt.soft_pending):
            return error
        attempt.soft_pending = False
        if attempt.ending is not Ending.NONE:
            return error
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return SoftTimeout(attempt.spec.soft_timeout / 1e6)
