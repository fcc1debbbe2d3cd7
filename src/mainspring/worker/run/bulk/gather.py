"""Gathers the jobs of bulk tasks into calls.

A claimed job waits here until its call is full or the first job of the call has waited long enough. A call that gathers
has its slot reserved: it counts as held by its pool, so it can start at any moment. A suspect is never gathered with
other jobs: it is a call of its own, so that a crash shows which job is guilty.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING

from mainspring.common.clock import boottime
from mainspring.jobs.lanes import is_suspect
from mainspring.tasks.bulk import Bulk
from mainspring.worker.eligibility import bulk_lane_kinds, can_run
from mainspring.worker.run.bulk.attempt import BulkAttempt
from mainspring.worker.run.executor import decode_record
from mainspring.worker.run.slots.base import LaneRequest

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.slots.base import SlotPool

MAX_REQUEST = 500
"""Most jobs to ask for in one turn, unless one call takes more."""

OnFailed = Callable[["RunningAttempt", Exception], None]


class BulkLanes:
    """The lanes of one bulk task, and its calls that gather."""

    def __init__(self, spec: TaskSpec, bulk: Bulk, kinds: tuple[str, ...], pool: SlotPool) -> None:
        self.kind = spec.slots
        self.kinds = kinds
        self._bulk = bulk
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._calls: dict[Hashable, _GatheringCall] = {}

    def request(self, free: int, *, ahead: bool) -> LaneRequest:  # noqa: ARG002 - jobs that gather do not wait for a slot
        """How many jobs to ask for with ``free`` free slots, and how many slots they will use.

        Enough to fill the calls that gather, and new calls in about half of the free slots: other tasks need slots too.
        """
        size, gathered = self._bulk.size, sum(len(call.items) for call in self._calls.values())
        fill = max(0, size - gathered) if self._calls else 0
        calls = min(max(0, free), max(1, free // 2), max(1, MAX_REQUEST // size))
        if self._bulk.by is not None:
            calls = min(calls, 1)  # the number of calls depends on the values of the jobs, which are not known yet
        n = fill + calls * size
        return LaneRequest(n, n, calls)

    def add(self, attempt: RunningAttempt, value: Hashable) -> None:
        """Let the attempt wait for others with the same value of ``by``."""
        call = self._calls.get(value)
        if call is None:
            self._pool.held += 1
            waited = boottime() - attempt.received
            timer = self._loop.call_later(max(0.0, self._bulk.wait / 1e6 - waited), self._start, value)
            call = self._calls[value] = _GatheringCall(timer)
        call.items.append(attempt)
        if len(call.items) >= self._bulk.size:
            self._start(value)

    def withdraw(self, attempt: RunningAttempt) -> bool:
        """Take the attempt out. False if it does not wait here."""
        for value, call in self._calls.items():
            if attempt in call.items:
                call.items.remove(attempt)
                if not call.items:
                    self._close(value)
                return True
        return False

    def take_all(self) -> list[RunningAttempt]:
        """Take out all attempts that wait."""
        return [attempt for value in [*self._calls] for attempt in self._close(value)]

    def _start(self, value: Hashable) -> None:
        self._pool.submit(BulkAttempt(self._close(value)))

    def _close(self, value: Hashable) -> list[RunningAttempt]:
        call = self._calls.pop(value)
        call.timer.cancel()
        self._pool.held -= 1
        return call.items


class _GatheringCall:
    __slots__ = ("items", "timer")

    def __init__(self, timer: asyncio.TimerHandle) -> None:
        self.items: list[RunningAttempt] = []
        self.timer = timer


class BulkGatherer:
    """The lanes and calls of a worker's bulk tasks. ``on_failed`` is called for a job whose ``by`` value failed."""

    def __init__(self, config: WorkerConfig, pools: Mapping[str, SlotPool], on_failed: OnFailed) -> None:
        self._config = config
        self._pools = pools
        self._on_failed = on_failed
        self._lanes: dict[str, BulkLanes] = {}
        for spec in config.tasks.values():
            if spec.bulk is not None and can_run(spec, config.settings):
                self._lanes_of(spec, spec.bulk)

    @property
    def lanes(self) -> tuple[BulkLanes, ...]:
        return tuple(self._lanes.values())

    def gather(self, attempts: Iterable[RunningAttempt]) -> list[RunningAttempt]:
        """Take in the jobs of bulk tasks. Returns the attempts to start now: the others, and suspects as own calls."""
        startable: list[RunningAttempt] = []
        for attempt in attempts:
            bulk = attempt.spec.bulk
            if bulk is None:
                startable.append(attempt)
            elif attempt.early or is_suspect(attempt.claim.crashes, attempt.spec.crashes):
                startable.append(BulkAttempt([attempt]))
            else:
                self._add(attempt, bulk)
        return startable

    def withdraw(self, attempt: RunningAttempt) -> bool:
        """Take the attempt out. False if it does not wait here."""
        lanes = self._lanes.get(attempt.spec.name)
        return lanes is not None and lanes.withdraw(attempt)

    def take_all(self) -> list[RunningAttempt]:
        """Take out all attempts that wait."""
        return [attempt for lanes in self._lanes.values() for attempt in lanes.take_all()]

    def _add(self, attempt: RunningAttempt, bulk: Bulk) -> None:
        try:
            value = self._by_value(attempt, bulk)
        except Exception as error:  # noqa: BLE001 - a function of the user, or an item that cannot be decoded
            self._on_failed(attempt, error)
        else:
            self._lanes_of(attempt.spec, bulk).add(attempt, value)

    def _lanes_of(self, spec: TaskSpec, bulk: Bulk) -> BulkLanes:
        """The lanes of a task. If it was declared after the worker started, its jobs come enqueued by name, or after
        they were handed back once."""
        found = self._lanes.get(spec.name)
        if found is None:
            kinds = bulk_lane_kinds(spec, self._config)
            found = self._lanes[spec.name] = BulkLanes(spec, bulk, kinds, self._pools[spec.slots])
        return found

    @staticmethod
    def _by_value(attempt: RunningAttempt, bulk: Bulk) -> Hashable:
        if bulk.by is None:
            return None
        # decoded again in the slot, with its secrets
        [item] = decode_record(attempt.spec, attempt.claim.record, attempt.inputs).args
        value = bulk.by(item)
        hash(value)
        return value
