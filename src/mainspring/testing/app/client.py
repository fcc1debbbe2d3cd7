"""The client of an app in test mode: one private store for every loop and thread, with the test's clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.client.client import Client
from mainspring.common.clock import MovableClock
from mainspring.errors import InsideTest, NotOpen
from mainspring.jobs.records import Enqueued, JobBatch
from mainspring.stores.base import Store
from mainspring.stores.connect import StoreAddress

if TYPE_CHECKING:
    from mainspring.testing.app.inline import Inline


class PrivateClient(Client):
    """The client of one test; it refuses calls after the test."""

    glance = 0.02

    def __init__(self, address: StoreAddress, full_wait: int, enqueue_patience: int, clock: MovableClock) -> None:
        super().__init__(address, full_wait, enqueue_patience)
        self.inline: Inline | None = None
        self._clock = clock
        self._over = False

    def enqueue_now(self, batch: JobBatch, connection: Any = None) -> list[Enqueued]:
        if self.inline is None or connection is not None:  # not committed yet: no job can run
            return super().enqueue_now(batch, connection)
        self.inline.check()
        done = super().enqueue_now(batch)
        self.inline.run()
        return done

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        done = await super().enqueue(batch)
        if self.inline is not None:
            await self.inline.arun()
        return done

    def now(self) -> float:
        """Seconds of the test's clock: a lock is lost when the test moves the clock past its ttl."""
        return self._clock.now_us() / 1e6

    def time_us(self) -> int:
        """The time of the test's clock."""
        return self._clock.now_us()

    def check_worker(self, verb: str) -> None:
        raise InsideTest(
            f"{verb}(): the app is in test mode and the test itself runs its jobs",
            hint="Use t.drain(), or app.test(inline=True) to run each job as it is enqueued.",
        )

    def end(self) -> None:
        """End the test: handles that were made in it raise ``NotOpen`` from now on."""
        self._over = True

    def _blocking_store(self) -> Store:
        self._check_over()
        return super()._blocking_store()

    def _connect(self) -> Store:
        from mainspring.stores.connect import connect_to

        self._check_over()
        return connect_to(self.address, clock=self._clock, enqueue_deadline=self._first_try)

    def _check_over(self) -> None:
        if self._over:
            raise NotOpen(
                "this job belongs to an app.test() that has ended; its store is closed",
                hint="Read jobs inside the `with` block.",
            )
