"""Makes scheduled and retrying jobs ready when they are due, and cancels jobs that expired."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainspring.stores.base import Store
from mainspring.worker.services.base import Service

_BATCH = 1_000


class Promoter(Service):
    """Ticks when the next job is due, and at least once a second: other processes enqueue jobs too.

    While it is led, the leader looks once a second instead.

    ``on_ready`` is called when jobs became ready, ``on_expired`` with the ids of expired jobs.
    """

    every = 1.0
    jitter = 0.0  # a due job must not wait
    on_demand = True

    def __init__(
        self,
        store: Store,
        on_ready: Callable[[], None],
        *,
        on_expired: Callable[[Sequence[bytes]], None] | None = None,
    ) -> None:
        super().__init__(store)
        self._on_ready = on_ready
        self._on_expired = on_expired

    async def tick(self) -> float:
        done = await self.store.promote(_BATCH)
        if done.promoted:
            self._on_ready()
        if done.ended and self._on_expired is not None:
            self._on_expired(done.ended)
        if max(done.promoted, done.expired) >= _BATCH:
            return 0.0
        if done.next_due is None:
            return self.every
        return min(self.every, max(0.001, (done.next_due - done.now) / 1e6))
