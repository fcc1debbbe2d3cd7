"""Join concurrent calls of one event loop: calls that arrive while another is under way wait and are sent together.

A single call is sent at once, so no call ever waits for others to arrive. Fifty producers that share a loop share round
trips and commits, and each still gets its own reply or its own error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

C = TypeVar("C")
R = TypeVar("R")

FEW = 4
"""Up to this number, waiting calls are never divided between several joint calls."""


class Joiner(Generic[C, R]):
    """Calls of one kind on one event loop.

    ``alone`` makes one call. ``together`` makes several as one atomic step, with a reply for each. After a failure for
    which ``undone`` is true (nothing was applied), the same calls are made one by one, so that each fails or succeeds
    by itself. After any other failure the outcome is unknown, and every caller gets the error. ``size`` is the weight
    of a call: the total weight of a joint call is at most ``most``. Up to ``flights`` joint calls are under way at
    once, each with its share of the callers: while the server works on one, the callers of another prepare their next
    calls.
    """

    def __init__(
        self,
        alone: Callable[[C], Awaitable[R]],
        together: Callable[[Sequence[C]], Awaitable[Sequence[R]]],
        *,
        undone: Callable[[Exception], bool],
        size: Callable[[C], int],
        most: int,
        flights: int = 1,
    ) -> None:
        self._alone = alone
        self._together = together
        self._undone = undone
        self._size = size
        self._most = most
        self._flights = flights
        self._waiting: deque[_Caller[C, R]] = deque()
        self._aloft: list[int] = []
        """The number of callers of each joint call that is under way."""
        self._is_boarding = False

    async def call(self, call: C) -> R:
        """Make the call, together with other waiting calls. Cancelling it only gives up its reply."""
        loop = asyncio.get_running_loop()
        if not (self._aloft or self._waiting):
            return await self._go_alone(call, loop)
        reply: asyncio.Future[R] = loop.create_future()
        caller = _Caller(call, reply)
        self._waiting.append(caller)
        self._depart_soon(loop)
        try:
            return await reply
        except BaseException:  # a time limit of a job arrives in place of a cancellation
            if reply.cancelled() and caller.flight is not None:
                caller.flight.leave()
            raise

    async def _go_alone(self, call: C, loop: asyncio.AbstractEventLoop) -> R:
        self._aloft.append(1)
        try:
            return await self._alone(call)
        finally:
            self._aloft.remove(1)
            if self._waiting:
                self._depart_soon(loop)

    def _depart_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_boarding and len(self._aloft) < self._flights:
            self._is_boarding = True
            loop.call_soon(self._depart, loop)

    def _depart(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start one joint call in a step of the loop. Two that start in one step return in one, and the server is idle
        meanwhile."""
        self._is_boarding = False
        if len(self._aloft) < self._flights and (callers := self._board()):
            flight = _Flight(callers, loop.create_task(self._make(callers)))
            self._aloft.append(len(callers))
            flight.task.add_done_callback(partial(self._land, loop, flight))
            self._depart_soon(loop)

    def _land(self, loop: asyncio.AbstractEventLoop, flight: _Flight[C, R], _done: asyncio.Task[None]) -> None:
        self._aloft.remove(len(flight.callers))
        for caller in flight.callers:
            caller.reply.cancel()  # has no effect on a caller that has its reply
        self._depart_soon(loop)

    def _board(self) -> list[_Caller[C, R]]:
        seats = max(FEW, -(-(len(self._waiting) + sum(self._aloft)) // self._flights))
        callers: list[_Caller[C, R]] = []
        room = self._most
        while self._waiting and len(callers) < seats:
            caller = self._waiting[0]
            room -= self._size(caller.call)
            if callers and room < 0:
                break
            self._waiting.popleft()
            if not caller.reply.done():
                callers.append(caller)
        return callers

    async def _make(self, callers: list[_Caller[C, R]]) -> None:
        if len(callers) > 1:
            try:
                replies = await self._together([caller.call for caller in callers])
            except Exception as error:  # noqa: BLE001 - the callers get every error
                if not self._undone(error):
                    for caller in callers:
                        caller.fail(error)
                    return
            else:
                for caller, value in zip(callers, replies, strict=True):
                    caller.tell(value)
                return
        for caller in callers:
            if caller.reply.done():
                continue
            try:
                caller.tell(await self._alone(caller.call))
            except Exception as error:  # noqa: BLE001 - the same
                caller.fail(error)


class _Caller(Generic[C, R]):
    """A call that waits for its reply."""

    __slots__ = ("call", "flight", "reply")

    def __init__(self, call: C, reply: asyncio.Future[R]) -> None:
        self.call = call
        self.reply = reply
        self.flight: _Flight[C, R] | None = None

    def tell(self, value: R) -> None:
        if not self.reply.done():
            self.reply.set_result(value)

    def fail(self, error: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)


class _Flight(Generic[C, R]):
    """A joint call that is under way."""

    __slots__ = ("callers", "task")

    def __init__(self, callers: list[_Caller[C, R]], task: asyncio.Task[None]) -> None:
        self.callers = callers
        self.task = task
        for caller in callers:
            caller.flight = self

    def leave(self) -> None:
        """End the joint call if all callers have given up."""
        if all(caller.reply.cancelled() for caller in self.callers):
            self.task.cancel()
