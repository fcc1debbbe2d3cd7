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
from mainspring.worker.run.slots.base import ClaimAhead, Done
from mainspring.worker.run.timeouts import AttemptTimeouts


class AsyncSlots:
    """Runs coroutines, the next one as soon as one ends."""

    def __init__(self, slots: int, first: int, executor: Executor, deadlines: AttemptTimeouts, done: Done) -> None:
        self.slots = slots
        self.held = 0
        self.pace = ClaimAhead(slots)
        self._executor = executor
        self._deadlines = deadlines
        self._done = done
        self._free = list(range(first + slots - 1, first - 1, -1))
        self._running: dict[int, RunningAttempt] = {}
        self._line: deque[RunningAttempt] = deque()
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()  # each body starts from here, never from its predecessor's

    def submit(self, attempt: RunningAttempt) -> None:
        self.held += 1
        if self._free:
            self._start(attempt)
        else:
            self._line.append(attempt)

    def waiting(self, before: float) -> list[RunningAttempt]:
        out = [attempt for attempt in self._line if attempt.received < before]
        if out:
            self._line = deque(attempt for attempt in self._line if attempt.received >= before)
            self.held -= len(out)
        return out

    def bodies(self) -> list[RunningAttempt]:
        return list(self._running.values())

    def close(self) -> None:
        """Nothing to let go of: tasks end with the loop."""

    def _start(self, attempt: RunningAttempt) -> None:
        slot = self._free.pop()
        self._running[slot] = attempt
        attempt.task = self._loop.create_task(self._run(attempt, slot), context=self._context.copy())

    async def _run(self, attempt: RunningAttempt, slot: int) -> None:
        executor = self._executor.bulk if attempt.many else self._executor
        ack: Ack | None = None
        try:
            ack = executor.refuse(attempt)
            if ack is None:
                fn, args, kwargs = executor.open_body(attempt)
                executor.begin(attempt, slot)
                if attempt.next_at < self._deadlines.next_at:
                    self._deadlines.arm(attempt.next_at)
                if attempt.spec.soft_timeout:
                    value = await _Softly(attempt, fn(*args, **kwargs))
                else:
                    value = await fn(*args, **kwargs)
                ack = executor.succeeded(attempt, value)
        except BaseException as error:  # SystemExit of a handler ends its attempt, not the worker
            if self._loop.is_closed():  # nobody to tell: this coroutine is being thrown away
                raise
            ack = executor.failed(attempt, error)
        self._over(attempt, slot, ack)

    def _over(self, attempt: RunningAttempt, slot: int, ack: Ack) -> None:
        attempt.over = True
        if attempt.begun:
            (self._executor.bulk if attempt.many else self._executor).end(attempt)
            self.pace.ran(ack.run_us)
        del self._running[slot]
        self._free.append(slot)
        self.held -= 1
        attempt.task = None
        if self._line:
            self._start(self._line.popleft())
        self._done(attempt, ack)


class _Softly:
    """Awaits a body, and turns the cancel that means "soft limit" into SoftTimeout inside it."""

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
                waited = step(value)
            except StopIteration as end:
                return end.value
            try:
                step, value = body.send, (yield waited)
            except GeneratorExit:
                body.close()
                raise
            except BaseException as error:  # noqa: BLE001 - handed on to the body
                step, value = body.throw, self._translated(error)

    def _translated(self, error: BaseException) -> BaseException:
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
