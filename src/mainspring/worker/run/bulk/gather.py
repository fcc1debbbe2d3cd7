"""Gathers the jobs of bulk tasks into calls.

A claimed job waits here until its call is full or its first job has waited long enough. A call that
gathers has its slot reserved: it counts as held by its pool, so it can start when it wants to.
Suspects are never gathered: each is a call of its own, so that the guilty one shows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

from mainspring.common.clock import boottime
from mainspring.jobs.lanes import is_suspect
from mainspring.tasks.bulk import Bulk
from mainspring.worker.loop.eligibility import bulk_kinds, can_run
from mainspring.worker.run.bulk.attempt import BulkAttempt
from mainspring.worker.run.decode import open_record

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.slots.base import SlotPool

MOST = 500
"""Jobs to ask for in one turn, unless one call takes more."""

Failed = Callable[["RunningAttempt", Exception], None]


class BulkLine:
    """The lanes of one bulk task, and the calls of it that gather."""

    def __init__(self, spec: TaskSpec, bulk: Bulk, kinds: tuple[str, ...], pool: SlotPool) -> None:
        self.kind: str = spec.kind
        self.kinds = kinds
        self._bulk = bulk
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._calls: dict[Hashable, _Call] = {}

    def ask(self, free: int) -> tuple[int, int]:
        """Enough to fill the calls that gather, and for new ones in about half of the slots: others want some too."""
        size, gathered = self._bulk.size, sum(len(call.items) for call in self._calls.values())
        fill = max(0, size - gathered) if self._calls else 0
        calls = min(max(0, free), max(1, free // 2), max(1, MOST // size))
        if self._bulk.by is not None:
            calls = min(calls, 1)  # nobody knows how many calls these jobs will make
        return fill + calls * size, calls

    def add(self, attempt: RunningAttempt, value: Hashable) -> None:
        """Let it wait for others with this value."""
        call = self._calls.get(value)
        if call is None:
            self._pool.held += 1
            waited = boottime() - attempt.received
            timer = self._loop.call_later(max(0.0, self._bulk.wait / 1e6 - waited), self._start, value)
            call = self._calls[value] = _Call(timer)
        call.items.append(attempt)
        if len(call.items) >= self._bulk.size:
            self._start(value)

    def withdraw(self, attempt: RunningAttempt) -> bool:
        """Take it out; False if it does not wait here."""
        for value, call in self._calls.items():
            if attempt in call.items:
                call.items.remove(attempt)
                if not call.items:
                    self._close(value)
                return True
        return False

    def empty(self) -> list[RunningAttempt]:
        """Take out all that wait."""
        return [attempt for value in [*self._calls] for attempt in self._close(value)]

    def _start(self, value: Hashable) -> None:
        self._pool.submit(BulkAttempt(self._close(value)))

    def _close(self, value: Hashable) -> list[RunningAttempt]:
        call = self._calls.pop(value)
        call.timer.cancel()
        self._pool.held -= 1
        return call.items


class _Call:
    __slots__ = ("items", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.items: list[RunningAttempt] = []
        self.timer = timer


class BulkGatherer:
    """The lines of a worker's bulk tasks. ``failed`` is told of a job whose value of ``by`` cannot be had."""

    def __init__(self, parts: WorkerConfig, pools: Mapping[str, SlotPool], failed: Failed) -> None:
        self._parts = parts
        self._pools = pools
        self._failed = failed
        self._lines: dict[str, BulkLine] = {}
        for spec in parts.tasks.values():
            if spec.bulk is not None and can_run(spec, parts.settings):
                self._line(spec, spec.bulk)

    @property
    def lines(self) -> tuple[BulkLine, ...]:
        return tuple(self._lines.values())

    def gather(self, attempts: Iterable[RunningAttempt]) -> list[RunningAttempt]:
        """Take in the jobs of bulk tasks; returns what is to be started now: the others, and calls of one suspect."""
        now: list[RunningAttempt] = []
        for attempt in attempts:
            bulk = attempt.spec.bulk
            if bulk is None:
                now.append(attempt)
            elif attempt.early or is_suspect(attempt.claim.crashes, attempt.spec.crashes):
                now.append(BulkAttempt([attempt]))
            else:
                self._add(attempt, bulk)
        return now

    def withdraw(self, attempt: RunningAttempt) -> bool:
        """Take it out; False if it does not wait here."""
        line = self._lines.get(attempt.spec.name)
        return line is not None and line.withdraw(attempt)

    def empty(self) -> list[RunningAttempt]:
        """Take out all that wait."""
        return [attempt for line in self._lines.values() for attempt in line.empty()]

    def _add(self, attempt: RunningAttempt, bulk: Bulk) -> None:
        try:
            value = self._value(attempt, bulk)
        except Exception as error:  # noqa: BLE001 - the user's own function, or an item that cannot be read
            self._failed(attempt, error)
        else:
            self._line(attempt.spec, bulk).add(attempt, value)

    def _line(self, spec: TaskSpec, bulk: Bulk) -> BulkLine:
        """Of a task that was declared later than the worker: its jobs come enqueued by name, or handed back once."""
        found = self._lines.get(spec.name)
        if found is None:
            found = self._lines[spec.name] = BulkLine(spec, bulk, bulk_kinds(spec, self._parts), self._pools[spec.kind])
        return found

    @staticmethod
    def _value(attempt: RunningAttempt, bulk: Bulk) -> Hashable:
        if bulk.by is None:
            return None
        [item] = open_record(attempt.spec, attempt.claim.record).args  # read again where it runs, which knows secrets
        value = bulk.by(item)
        hash(value)
        return value
