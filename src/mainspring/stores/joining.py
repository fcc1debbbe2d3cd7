"""Join concurrent calls of one event loop: while one is on its way, those that come wait and go together.

A call that comes alone goes at once, so nothing is ever held back to wait for company. Fifty producers
that share a loop then share round trips and commits, each still getting its own reply or its own error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

C = TypeVar("C")
R = TypeVar("R")


class Joiner(Generic[C, R]):
    """Calls of one kind on one event loop.

    ``alone`` makes one call. ``together`` makes several as one atomic step, with a reply for each; a failure for
    which ``undone`` says that nothing was applied is followed by the same calls one by one, so that each
    fails or succeeds for itself. After any other failure the outcome is unknown, and every caller hears it.
    ``size`` weighs a call: no more than ``most`` go together.
    """

    def __init__(
        self,
        alone: Callable[[C], Awaitable[R]],
        together: Callable[[Sequence[C]], Awaitable[Sequence[R]]],
        *,
        undone: Callable[[Exception], bool],
        size: Callable[[C], int],
        most: int,
    ) -> None:
        self._alone = alone
        self._together = together
        self._undone = undone
        self._size = size
        self._most = most
        self._waiting: deque[tuple[C, asyncio.Future[R]]] = deque()
        self._flight: asyncio.Task[None] | None = None

    async def call(self, call: C) -> R:
        """Make the call, with whatever else is waiting. To cancel it is to stop caring about its reply."""
        reply: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, reply))
        self._depart()
        return await reply

    def _depart(self) -> None:
        if self._flight is not None or not (group := self._group()):
            return
        flight = self._flight = asyncio.create_task(self._make(group))
        left = len(group)

        def one_less(reply: asyncio.Future[R]) -> None:
            nonlocal left
            left -= 1
            if not left and reply.cancelled():
                flight.cancel()  # nobody waits for it any more

        def landed(_done: asyncio.Task[None]) -> None:
            self._flight = None
            for _, reply in group:
                reply.cancel()  # does nothing to whoever has its reply
            self._depart()

        for _, reply in group:
            reply.add_done_callback(one_less)
        flight.add_done_callback(landed)

    def _group(self) -> list[tuple[C, asyncio.Future[R]]]:
        group: list[tuple[C, asyncio.Future[R]]] = []
        room = self._most
        while self._waiting:
            call, reply = self._waiting[0]
            room -= self._size(call)
            if group and room < 0:
                break
            self._waiting.popleft()
            if not reply.done():
                group.append((call, reply))
        return group

    async def _make(self, group: list[tuple[C, asyncio.Future[R]]]) -> None:
        if len(group) > 1:
            try:
                replies = await self._together([call for call, _ in group])
            except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the callers
                if not self._undone(error):
                    for _, reply in group:
                        _fail(reply, error)
                    return
            else:
                for (_, reply), value in zip(group, replies, strict=True):
                    _tell(reply, value)
                return
        for call, reply in group:
            if reply.done():
                continue
            try:
                _tell(reply, await self._alone(call))
            except Exception as error:  # noqa: BLE001 - the same
                _fail(reply, error)


def _tell(reply: asyncio.Future[R], value: R) -> None:
    if not reply.done():
        reply.set_result(value)


def _fail(reply: asyncio.Future[R], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
