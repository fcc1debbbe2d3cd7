"""A real store whose calls fail when a test says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.stores.base import Store
from mainspring.worker.records import Turn, TurnResult


class FaultyStore:
    """Passes everything on to ``inner``.

    ``down``: nothing reaches the store; ``refuse``: no call of this name does. ``lose``: the names of calls whose
    next reply is lost after the store did its work. ``lose_every``: every n-th reply of a turn is lost. ``twist``
    changes a turn on its way.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner
        self.down = False
        self.refuse = ""
        self.error: type[StoreError] = StoreUnavailable
        """What a call that does not reach the store raises."""
        self.lose: set[str] = set()
        self.lose_every = 0
        self.twist: Callable[[Turn], Turn] | None = None
        self.turns: list[Turn] = []
        """Every turn that was sent, repeats included."""
        self.failed = 0

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._inner, name)
        if not callable(call):
            return call

        async def passed_on(*args: Any, **kwargs: Any) -> Any:
            self._before(name)
            reply = await call(*args, **kwargs)
            self._after(name)
            return reply

        return passed_on

    async def turn(self, turn: Turn) -> TurnResult:
        self.turns.append(turn)
        self._before("turn")
        reply = await self._inner.turn(self.twist(turn) if self.twist else turn)
        if self.lose_every and len(self.turns) % self.lose_every == 0:
            self.lose.add("turn")
        self._after("turn")
        return reply

    def _before(self, name: str) -> None:
        if self.down or name == self.refuse:
            self.failed += 1
            raise self.error(f"{name}: the test cut the line")

    def _after(self, name: str) -> None:
        if name in self.lose:
            self.lose.discard(name)
            self.failed += 1
            raise StoreUnavailable(f"{name}: the test lost the reply")
