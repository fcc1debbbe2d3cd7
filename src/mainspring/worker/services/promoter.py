"""Makes scheduled and retrying jobs ready when they are due, and ends those that expired."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainspring.stores.base import Store
from mainspring.worker.services.base import Service

_SLICE = 1_000


class Promoter(Service):
    """Ticks when the next job is due, at least once a second: others enqueue too."""

    every = 1.0
    jitter = 0.0  # a due job waits for nobody's luck

    def __init__(
        self, store: Store, woke: Callable[[], None], *, expired: Callable[[Sequence[bytes]], None] | None = None
    ) -> None:
        super().__init__(store)
        self._woke = woke
        self._expired = expired

    async def tick(self) -> float:
        done = await self.store.promote(_SLICE)
        if done.promoted:
            self._woke()
        if done.ended and self._expired is not None:
            self._expired(done.ended)
        if max(done.promoted, done.expired) >= _SLICE:
            return 0.0
        if done.next_due is None:
            return self.every
        return min(self.every, max(0.001, (done.next_due - done.now) / 1e6))
