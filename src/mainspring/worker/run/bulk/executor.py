"""Runs one call of a bulk task and settles each of its items; the methods are those of ``Executor``.

Each returns one of the acks, for the pool to see how long it took; all of them are in ``settled``.

A call has one time limit, the shortest of its jobs'. An order to cancel a job while its call runs is the
floor's: the call goes on for the others, and ends when there are none.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from mainspring.errors import Undecodable, WrongOutcomes
from mainspring.tasks.bulk import error_of, outcomes_of
from mainspring.worker.run.bulk.attempt import BulkAttempt
from mainspring.worker.run.context import current

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.executor import Executor


class BulkExecutor:
    """Safe to use from any thread. ``one`` does what is to be done for each item."""

    def __init__(self, one: Executor, board: SharedState) -> None:
        self._one = one
        self._board = board
        self._lines = _Lines(board)

    def refuse(self, attempt: RunningAttempt) -> Ack | None:
        """Take out the items that must not start any more; an ack if there is no other."""
        call = cast("BulkAttempt", attempt)
        staying = []
        for item in call.items:
            _adopt(item, call)
            ack = self._one.refuse(item)
            if ack is None:
                staying.append(item)
            else:
                call.settle(item, ack)
        call.items = staying
        return None if staying else call.settled[0][1]

    def open_body(self, attempt: RunningAttempt) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The handler with the items that could be read; ``Undecodable`` if there is none."""
        call = cast("BulkAttempt", attempt)
        staying, values = [], []
        for item in call.items:
            try:
                [value], _ = self._one.open_arguments(item)
            except Undecodable as error:
                call.settle(item, self._one.failed(item, error))
            else:
                staying.append(item)
                values.append(value)
        call.items = staying
        if not staying:
            raise Undecodable(f"task {call.spec.name!r}", "none of the items of this call can be read")
        call.timeout = min((item.timeout for item in staying if item.timeout), default=0)
        fn, first = self._one.around(call)
        return fn, (*first, values), {}

    def begin(self, attempt: RunningAttempt, slot: int) -> None:
        """The call starts now, in ``slot``; its first item has that line of the board, the others lines behind."""
        call = cast("BulkAttempt", attempt)
        for place, item in enumerate(call.items):
            item.timeout = call.timeout
            self._one.begin(item, self._lines.take() if place else slot)
        first = call.items[0]
        call.slot, call.started, call.soft_at, call.next_at = slot, first.started, first.soft_at, first.next_at
        call.begun = True
        current.set(call)

    def end(self, attempt: RunningAttempt) -> None:
        """The call is over; its slot is free."""
        for item in cast("BulkAttempt", attempt).items:
            if item.slot >= 0:
                self._board.end(item.slot)
                if item.slot != attempt.slot:
                    self._lines.give(item.slot)

    def succeeded(self, attempt: RunningAttempt, value: Any) -> Ack:
        """Settle each item by its outcome."""
        call = cast("BulkAttempt", attempt)
        try:
            outcomes = outcomes_of(value, len(call.items), call.spec.name)
        except WrongOutcomes as error:
            return self.failed(call, error)
        for item, outcome in zip(call.items, outcomes, strict=True):
            _adopt(item, call)
            wrong = error_of(outcome)
            ack = self._one.succeeded(item, outcome) if wrong is None else self._one.failed(item, wrong)
            call.settle(item, ack)
        return call.settled[-1][1]

    def failed(self, attempt: RunningAttempt, error: BaseException) -> Ack:
        """Settle each item as if it had failed with ``error`` itself. In a row with others that is one failure."""
        call = cast("BulkAttempt", attempt)
        for place, item in enumerate(call.items):
            _adopt(item, call)
            ack = self._one.failed(item, error)
            if place and ack.fault and call.spec.breaker is not None and not call.spec.breaker.weighs:
                ack = msgspec.structs.replace(ack, fault="")
            call.settle(item, ack)
        return call.settled[-1][1]


def _adopt(item: RunningAttempt, call: BulkAttempt) -> None:
    """What the call was told was told to each item, unless that was told something stronger."""
    if call.ending > item.ending:
        item.ending, item.reason = call.ending, call.reason
    item.soft_due = call.soft_due


class _Lines:
    """The lines of the board behind those of the slots, used as they are needed.

    An item for which there is none (a board has thousands) is not seen by the supervisor: should that
    have to kill the worker for the call's time limit, the item is handed back without blame.
    """

    def __init__(self, board: SharedState) -> None:
        self._board = board
        self._free: list[int] = []
        self._lock = threading.Lock()

    def take(self) -> int:
        """A free line, or -1."""
        with self._lock:
            if self._free:
                return self._free.pop()
            line = self._board.slots
            if line >= self._board.capacity:
                return -1
            self._board.slots = line + 1
            return line

    def give(self, line: int) -> None:
        with self._lock:
            self._free.append(line)
