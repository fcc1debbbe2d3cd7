"""The supervisor sends the heartbeats that its workers do not send, and no others."""

from __future__ import annotations

import math
import os
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from mainspring.common.clock import boottime
from mainspring.common.ids import worker_id
from mainspring.errors import StoreUnavailable
from mainspring.stores.base import Store
from mainspring.stores.connect import StoreAddress, connect
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.lease.supervisor_heartbeats import SupervisorHeartbeats
from mainspring.worker.records import Beat, Registration
from mainspring.worker.retry_log import CALM
from mainspring.worker.supervise.child_pipe import Hello

LEASE = 600.0
"""Seconds. Long: no test waits for a heartbeat, and a stall of the machine makes none late."""
PERIOD = LEASE / 3


class FakeChild:
    """A worker process without a process: its shared state, and whether the kernel shows it as running."""

    def __init__(self, url: str) -> None:
        self.hello = Hello(worker=worker_id(), store=StoreAddress(url=url), lease=int(LEASE * 1e6), grace=1, drain=1)
        self.shared_state = SharedState.create(1)
        self.moves = True

    def is_moving(self) -> bool:
        return self.moves

    def confirm(self, age: float) -> None:
        """The worker's own heartbeat of ``age`` seconds ago was confirmed, and none since."""
        self.shared_state.lease_end = boottime() - age + LEASE


class Supervised:
    """The heartbeats of a supervisor with some workers."""

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self._url = url
        self.children: list[FakeChild] = []
        self.heartbeats = SupervisorHeartbeats(lambda: cast("Any", self.children))

    async def start(self, age: float) -> FakeChild:
        """A worker that has registered, and whose last heartbeat was confirmed ``age`` seconds ago."""
        child = FakeChild(self._url)
        await self._store.beat([Beat(child.hello.worker, Registration(lease=int(LEASE * 1e6)))])
        child.confirm(age)
        self.children.append(child)
        return child

    async def round(self) -> float:
        """One look at the workers. Returns the seconds until the next one."""
        return await self.heartbeats.look((StoreAddress(url=self._url), int(LEASE * 1e6)))

    async def numbers(self) -> list[int]:
        rows = {row.id: row.number for row in await self._store.workers()}
        return [rows[child.hello.worker] for child in self.children]


@pytest.fixture
async def supervised(store_url: str) -> AsyncIterator[Supervised]:
    store = connect(store_url)
    await store.open()
    supervised = Supervised(store, store_url)
    yield supervised
    await supervised.heartbeats.close()
    await store.close()
    for child in supervised.children:
        child.shared_state.close()


async def opened(supervised: Supervised, age: float = 0.0) -> FakeChild:
    """A worker for which the supervisor has sent its first heartbeat, which opens the connection."""
    child = await supervised.start(age)
    await supervised.round()
    child.confirm(age)
    return child


async def test_the_first_heartbeat_is_sent_so_that_the_connection_is_open(supervised: Supervised) -> None:
    await supervised.start(age=0.0)
    (before,) = await supervised.numbers()
    await supervised.round()
    assert await supervised.numbers() == [before + 1]


async def test_none_is_sent_while_the_worker_sends_its_own(supervised: Supervised) -> None:
    child = await opened(supervised)
    before = await supervised.numbers()
    for age in (0.0, 0.5, 0.99):
        child.confirm(age * PERIOD)
        wait = await supervised.round()
        assert 0 < wait <= (1.1 - age) * PERIOD
    assert await supervised.numbers() == before


async def test_one_is_sent_when_the_worker_has_missed_its_own(supervised: Supervised) -> None:
    """It holds the GIL, for example. The lease goes on from then."""
    child = await opened(supervised)
    (before,) = await supervised.numbers()
    child.confirm(1.2 * PERIOD)
    began = boottime()
    assert await supervised.round() <= PERIOD
    assert await supervised.numbers() == [before + 1]
    assert began + LEASE <= child.shared_state.lease_end <= boottime() + LEASE


async def test_heartbeats_go_on_until_the_worker_sends_its_own_again(supervised: Supervised) -> None:
    child = await opened(supervised)
    (before,) = await supervised.numbers()
    for sent in range(1, 4):
        child.confirm(1.2 * PERIOD)
        await supervised.round()
        assert await supervised.numbers() == [before + sent]
    child.confirm(0.0)
    await supervised.round()
    assert await supervised.numbers() == [before + 3]


async def test_a_silent_worker_is_not_overlooked_beside_one_that_sends_its_own(supervised: Supervised) -> None:
    silent, loud = await opened(supervised), await supervised.start(age=0.0)
    first, _ = await supervised.numbers()
    silent.confirm(1.2 * PERIOD)
    loud.confirm(0.9 * PERIOD)
    await supervised.round()
    assert (await supervised.numbers())[0] == first + 1
    assert silent.shared_state.lease_end > boottime() + LEASE - PERIOD


async def test_a_stopped_worker_gets_none_however_long_it_is_silent(supervised: Supervised) -> None:
    child = await opened(supervised)
    before = await supervised.numbers()
    child.moves = False
    child.confirm(2.0 * PERIOD)
    await supervised.round()
    assert await supervised.numbers() == before


async def test_a_lost_worker_is_asked_for_once_in_a_period(supervised: Supervised) -> None:
    """Its lease does not go on, so it stays silent until it has a new id."""
    child = await opened(supervised)
    child.confirm(1.2 * PERIOD)
    child.hello = Hello(
        worker=f"gone-{os.getpid()}", store=child.hello.store, lease=child.hello.lease, grace=1, drain=1
    )
    assert await supervised.round() > 0.9 * PERIOD


async def test_own_heartbeats_of_the_worker_show_that_the_store_answers(supervised: Supervised) -> None:
    """Else a worker that sends heartbeats and no turns would not be killed after the supervisor's own had failed."""
    child = await opened(supervised)
    supervised.heartbeats._succeeding_since[child.hello.store, child.hello.lease] = math.inf
    child.confirm(0.1 * PERIOD)
    before = boottime()
    await supervised.round()
    assert before <= supervised.heartbeats.succeeding_since(child.hello) <= boottime()


async def test_an_outage_is_over_when_the_workers_send_their_own_again(
    supervised: Supervised, caplog: pytest.LogCaptureFixture
) -> None:
    """The supervisor's own heartbeat had failed, and it sends no other that could succeed."""
    child = await opened(supervised)
    outage = supervised.heartbeats._outage
    key = (StoreAddress(url=supervised._url), int(LEASE * 1e6))
    retry_log = supervised.heartbeats._sender(key)._retry_log
    retry_log.record_failure(StoreUnavailable("it is away", url=supervised._url))
    outage._last -= 2 * CALM  # some time ago
    child.confirm(0.1 * PERIOD)
    before = await supervised.numbers()
    await supervised.round()
    assert await supervised.numbers() == before
    assert "the store works again" in caplog.text
