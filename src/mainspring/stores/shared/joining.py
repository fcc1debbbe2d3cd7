"""Join concurrent calls of one event loop: while one is on its way, those that come wait and go together.

A call that comes alone goes at once, so nothing is ever held back to wait for company. Fifty producers
that share a loop then share round trips and commits, each still getting its own reply or its own error.
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
"""No more callers than this are never parted into several flights."""


class Joiner(Generic[C, R]):
    """Calls of one kind on one event loop.

    ``alone`` makes one call. ``together`` makes several as one atomic step, with a reply for each; a failure for
    which ``undone`` says that nothing was applied is followed by the same calls one by one, so that each
    fails or succeeds for itself. After any other failure the outcome is unknown, and every caller hears it.
    ``size`` weighs a call: no more than ``most`` go together. Up to ``flights`` joint calls are on their way at once,
    each with its share of the callers: while the server works on one, the callers of another make their next.
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
        """How many callers each flight has that is on its way."""
        self._is_boarding = False

    async def call(self, call: C) -> R:
        """Make the call, with whatever else is waiting. To cancel it is to stop caring about its reply."""
        loop = asyncio.get_running_loop()
        if not (self._aloft or self._waiting):
            return await self._go_alone(call, loop)
        reply: asyncio.Future[R] = loop.create_future()
        caller = _Caller(call, reply)
        self._waiting.append(caller)
        self._depart_soon(loop)
        try:
            return await reply
        except asyncio.CancelledError:
            if caller.flight is not None:
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
        """One flight in a step of the loop: two that leave in one come back in one, and nobody works meanwhile."""
        self._is_boarding = False
        if len(self._aloft) < self._flights and (callers := self._board()):
            flight = _Flight(callers, loop.create_task(self._make(callers)))
            self._aloft.append(len(callers))
            flight.task.add_done_callback(partial(self._land, loop, flight))
            self._depart_soon(loop)

    def _land(self, loop: asyncio.AbstractEventLoop, flight: _Flight[C, R], _done: asyncio.Task[None]) -> None:
        self._aloft.remove(len(flight.callers))
        for caller in flight.callers:
            caller.reply.cancel()  # does nothing to whoever has its reply
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
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the callers
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
    """Somebody who waits for a reply."""

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
    """A joint call on its way."""

    __slots__ = ("callers", "task")

    def __init__(self, callers: list[_Caller[C, R]], task: asyncio.Task[None]) -> None:
        self.callers = callers
        self.task = task
        for caller in callers:
            caller.flight = self

    def leave(self) -> None:
        """One of the callers has given up."""
        if all(caller.reply.cancelled() for caller in self.callers):
            self.task.cancel()  # nobody waits for it any more
