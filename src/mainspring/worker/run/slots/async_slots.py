"""Async slots: each body is a task on the worker's loop."""

from __future__ import annotations

import asyncio
from collections import deque
from contextvars import copy_context

from mainspring.jobs.outcomes import Ack
from mainspring.worker.run.attempt import RunningAttempt
from mainspring.worker.run.executor import Executor, run_async
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
        self._surplus = 0  # bodies that run beyond the number of slots
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

    def add_slot(self) -> bool:
        if self._surplus:  # a surplus body has a line, and is none any more
            self._surplus -= 1
            self.slots += 1
            return True
        line = self._executor.bulk.extra_lines.take()
        if line < 0:
            return False
        self.slots += 1
        self._free.append(line)
        if self._waiting:
            self._start(self._waiting.popleft())
        return True

    def remove_slot(self) -> None:
        self.slots -= 1
        if self._free:
            self._executor.bulk.extra_lines.release(self._free.pop())
        else:
            self._surplus += 1

    def close(self) -> None:
        """Nothing to release: tasks end with the loop."""

    def _start(self, attempt: RunningAttempt) -> None:
        slot = self._free.pop()
        self._running[slot] = attempt
        executor = self._executor.bulk if attempt.is_bulk else self._executor
        body = run_async(executor, attempt, slot, self._timeouts, self._end)
        attempt.task = self._loop.create_task(body, context=self._context.copy())

    def _end(self, attempt: RunningAttempt, slot: int, ack: Ack) -> None:
        if attempt.begun:
            self.claim_ahead.record_run(ack.run_us)
        del self._running[slot]
        if self._surplus:
            self._surplus -= 1
            self._executor.bulk.extra_lines.release(slot)
        else:
            self._free.append(slot)
        self.held -= 1
        attempt.task = None
        if self._waiting and self._free:
            self._start(self._waiting.popleft())
        self._finish(attempt, ack)
