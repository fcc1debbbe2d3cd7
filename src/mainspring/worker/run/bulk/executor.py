"""Runs one call of a bulk task and settles each of its items. The methods are those of ``Executor``.

Each method that returns an ack returns one of the acks, from which the pool reads the run time; ``settled`` has all.

A call has one time limit: the shortest limit of its jobs. If a job is cancelled while its call runs, the dispatcher
lets the call continue for the other jobs, and ends it when no other job is left.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mainspring.errors import Undecodable, WrongOutcomes
from mainspring.tasks.bulk import error_of, outcomes_of
from mainspring.worker.lease.shared_state import CALL_SHIFT
from mainspring.worker.run.bulk.attempt import BulkAttempt
from mainspring.worker.run.context import current

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.executor import Executor


class BulkExecutor:
    """Safe to use from any thread. ``single`` is the executor for each item."""

    def __init__(self, single: Executor, shared_state: SharedState) -> None:
        self._single = single
        self._shared_state = shared_state
        self.extra_lines = ExtraLines(shared_state)
        """Lines of the shared state for further items of bulk calls, and for bodies in the place of waiting bodies."""

    def refuse(self, attempt: RunningAttempt) -> Ack | None:
        """Take out the items that must not start any more. Returns an ack if no item is left."""
        call = cast("BulkAttempt", attempt)
        kept = []
        for item in call.items:
            _copy_ending(item, call)
            ack = self._single.refuse(item)
            if ack is None:
                kept.append(item)
            else:
                call.settle(item, ack)
        call.items = kept
        return None if kept else call.settled[0][1]

    def prepare_call(self, attempt: RunningAttempt) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The handler with the items that could be decoded. Raises ``Undecodable`` if there is none."""
        call = cast("BulkAttempt", attempt)
        kept, values = [], []
        for item in call.items:
            try:
                [value], _ = self._single.decode_arguments(item)
            except Undecodable as error:
                call.settle(item, self._single.ack_failure(item, error))
            else:
                kept.append(item)
                values.append(value)
        call.items = kept
        if not kept:
            raise Undecodable(f"task {call.spec.name!r}", "none of the items of this call can be decoded")
        call.timeout = min((item.timeout for item in kept if item.timeout), default=0)
        fn, first = self._single.wrap(call)
        return fn, (*first, values), {}

    def seconds_until_start(self, attempt: RunningAttempt) -> float:
        """How long the call must wait because of the rate limits of its items."""
        return self._single.seconds_until_start(attempt)

    def begin(self, attempt: RunningAttempt, slot: int) -> None:
        """The call starts now, in ``slot``. Its first item uses the line of the slot in the shared state, the other
        items use extra lines."""
        call = cast("BulkAttempt", attempt)
        for place, item in enumerate(call.items):
            item.timeout = call.timeout
            self._single.begin(item, self.extra_lines.take() if place else slot)
            if place and item.slot >= 0:
                self._shared_state.mark(item.slot, (slot + 1) << CALL_SHIFT)
        first = call.items[0]
        call.slot, call.started, call.soft_at, call.check_at = slot, first.started, first.soft_at, first.check_at
        call.begun = True
        current.set(call)

    def end(self, attempt: RunningAttempt) -> None:
        """The call has ended; its slot is free."""
        for item in cast("BulkAttempt", attempt).items:
            if item.slot >= 0:
                self._shared_state.end(item.slot)
                if item.slot != attempt.slot:
                    self.extra_lines.release(item.slot)

    def ack_success(self, attempt: RunningAttempt, value: Any) -> Ack:
        """Settle each item by its outcome."""
        call = cast("BulkAttempt", attempt)
        try:
            outcomes = outcomes_of(value, len(call.items), call.spec.name)
        except WrongOutcomes as error:
            return self.ack_failure(call, error)
        for item, outcome in zip(call.items, outcomes, strict=True):
            _copy_ending(item, call)
            failure = error_of(outcome)
            if failure is None:
                ack = self._single.ack_success(item, outcome)
            else:
                ack = self._single.ack_failure(item, failure)
            call.settle(item, ack)
        return call.settled[-1][1]

    def ack_failure(self, attempt: RunningAttempt, error: BaseException) -> Ack:
        """Settle each item as if it had failed with ``error``. For a breaker that counts failures in a row, the whole
        call is one failure."""
        call = cast("BulkAttempt", attempt)
        for place, item in enumerate(call.items):
            _copy_ending(item, call)
            ack = self._single.ack_failure(item, error)
            if place and ack.fault and call.spec.breaker is not None and not call.spec.breaker.uses_rate:
                ack = msgspec.structs.replace(ack, fault="")
            call.settle(item, ack)
        return call.settled[-1][1]


def _copy_ending(item: RunningAttempt, call: BulkAttempt) -> None:
    """Each item has the ending of its call, unless the item has a stronger one."""
    if call.ending > item.ending:
        item.ending, item.ending_reason = call.ending, call.ending_reason
    item.soft_raised = call.soft_raised


class ExtraLines:
    """Lines of the shared state behind the lines of the slots, used as they are needed.

    The shared state has thousands of lines. The supervisor does not see an item that finds no free line: if it must
    kill the worker for the time limit of the call, that item is handed back without blame.
    """

    def __init__(self, shared_state: SharedState) -> None:
        self._shared_state = shared_state
        self._free: list[int] = []
        self._lock = threading.Lock()

    def take(self) -> int:
        """A free line, or -1."""
        with self._lock:
            if self._free:
                return self._free.pop()
            line = self._shared_state.slots
            if line >= self._shared_state.capacity:
                return -1
            self._shared_state.slots = line + 1
            return line

    def release(self, line: int) -> None:
        """The line is free."""
        with self._lock:
            self._free.append(line)
