"""A network that breaks between a worker and its store: it is at work again soon after the store answers again.

SQLite has no network. That a call is given up in time is shown by a door that would wait for ten minutes.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import psycopg
import pytest
import redis

from mainspring.common.clock import boottime
from mainspring.jobs.outcomes import Outcome
from mainspring.launch.services import build_services
from mainspring.states import State
from mainspring.stores.connect import StoreAddress, connect
from mainspring.stores.door import Door
from mainspring.testing import chaos
from mainspring.worker.config import WorkerConfig, WorkerSettings
from mainspring.worker.lease.heartbeat_thread import HeartbeatThread
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.worker import Worker
from tests.jobs.world import LIMIT, SECOND, Running, World, eventually, result
from tests.timing import patience

pytestmark = pytest.mark.stores("postgres", "redis")

NEVER = 600.0
ANSWER = 10.0
"""Seconds that a door waits for an answer here: longer than a turn does. A call that was under way when the wire broke
keeps its connection for as long."""
FAULTS: list[Callable[[], chaos.Fault]] = [chaos.Cut, chaos.Reset, chaos.HalfOpen, chaos.Stall]


@pytest.fixture
def wire(store_url: str) -> Iterator[chaos.Proxy]:
    with chaos.Proxy(store_url) as wire:
        yield wire


def story(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.getMessage().startswith("the store ")]


async def over(caplog: pytest.LogCaptureFixture) -> list[str] | None:
    said = story(caplog)
    return said if said and "works again" in said[-1] else None


def failing(running: Running) -> bool:
    return bool(running.worker._outage._failures)


@pytest.mark.row("R12", "B22")
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_network_interrupts_no_job_and_is_logged_as_one_outage(
    world: World, wire: chaos.Proxy, fault: Callable[[], chaos.Fault], caplog: pytest.LogCaptureFixture
) -> None:
    """A body ends while the network is cut. Its ack arrives afterwards, and new jobs are claimed."""
    store: Door = connect(wire.url, durability="normal", deadline=ANSWER)
    gate, runs = asyncio.Event(), Counter[int]()

    async def waits(n: int) -> int:
        runs[n] += 1
        if n == 0:
            await gate.wait()
        return n

    task = world.task(waits)
    running = await world.worker(store=store).started()
    first = await world.enqueue(task, 0)
    await world.until(first, State.RUNNING)
    with wire.suffering(fault()):
        gate.set()

        async def noticed() -> bool | None:
            return failing(running) or None

        await eventually(noticed, "the outage is noticed")
        second = await world.enqueue(task, 1)
    assert [result(await world.final(job)) for job in (first, second)] == [0, 1]
    assert runs == {0: 1, 1: 1}
    assert (await world.row(first)).attempt == 1
    begun, *lasts, ended = await eventually(functools.partial(over, caplog), "the end of the outage is told")
    assert "; retrying: " in begun
    assert not [word for word in lasts if "has been failing" not in word]
    assert "works again" in ended
    assert await running.drained() == 0
    await store.close()


@pytest.mark.row("B21")
async def test_connections_that_the_server_kills_interrupt_no_job(
    world: World, store_name: str, store_url: str, request: pytest.FixtureRequest
) -> None:
    """Connections of the worker and of the producer. Every job runs once."""
    kill = killer(store_name, store_url, str(request.getfixturevalue(f"{store_name}_owner_url")))
    runs = Counter[int]()

    async def once(n: int) -> int:
        runs[n] += 1
        await asyncio.sleep(0.05)
        return n

    task = world.task(once)
    jobs = await world.put(*(world.new_job(task, n) for n in range(60)))
    store = connect(store_url, durability="normal")
    running = await world.worker(store=store, async_slots=2).started()
    killed = 0
    while running.worker._turn_loop is None or len(runs) < len(jobs):
        killed += await asyncio.to_thread(kill)
        await asyncio.sleep(0.2)
    kill.close()

    async def ended() -> bool | None:
        return True if await counted() == len(jobs) else None

    async def counted() -> int:
        try:
            return (await world.counts()).get(State.SUCCEEDED, 0)
        except Exception:  # noqa: BLE001 - the last kill may have hit this one
            return 0

    await eventually(ended, "every job has ended")
    assert set(runs.values()) == {1}
    assert killed > 0
    assert await running.drained() == 0
    await store.close()


class killer:  # noqa: N801 - used as a function
    """Ends every connection of the user of ``url``; says how many there were."""

    def __init__(self, store_name: str, url: str, owner: str) -> None:
        self._user = urlsplit(url).username
        self._postgres = psycopg.connect(owner, autocommit=True) if store_name == "postgres" else None
        self._redis = redis.Redis.from_url(owner) if store_name == "redis" else None

    def __call__(self) -> int:
        if self._postgres is not None:
            sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = %s"
            found = self._postgres.execute(sql, (self._user,)).fetchone()
            assert found is not None
            return int(found[0])
        assert self._redis is not None
        return self._redis.client_kill_filter(user=self._user)

    def close(self) -> None:
        for each in (self._postgres, self._redis):
            if each is not None:
                each.close()


@pytest.mark.row("W4")
async def test_a_worker_without_its_store_ends_guarded_bodies_before_its_lease_ends(
    world: World, wire: chaos.Proxy
) -> None:
    """Other workers would take the job then. When the network is back the job runs again, and the worker keeps its
    id.
    """
    board, ended, begun = SharedState.create(256), list[float](), asyncio.Event()

    async def exclusive() -> str:
        if ended:
            return "again"
        begun.set()
        try:
            await asyncio.sleep(NEVER)
        except asyncio.CancelledError:
            ended.append(boottime())
            raise
        return "never"

    def in_thread() -> str:
        return "ordinary" if gate.wait(LIMIT) else "never"

    gate = threading.Event()
    strict, ordinary = world.task(exclusive, strict=True), world.task(in_thread)
    jobs = await world.put(world.new_job(strict), world.new_job(ordinary))
    lease = round(patience(6) * SECOND)  # a fifth of it is left when the worker ends the body
    settings = WorkerSettings(lease=lease, async_slots=2, thread_slots=2, poll=SECOND // 4, grace=2 * SECOND)
    parts = WorkerConfig(StoreAddress(url=wire.url, durability="normal"), dict(world.tasks), settings, (), "test")
    store = connect(wire.url, durability="normal")
    beater = functools.partial(HeartbeatThread, parts.store, settings=settings, shared_state=board)
    running = Running(Worker(parts, store, shared_state=board, services=build_services, heartbeats=beater))
    world.running.append(running)
    await running.started()
    for job in jobs:
        await world.until(job, State.RUNNING)
    await begun.wait()  # a job can be running in the store before the reply has reached the worker
    with wire.suffering(chaos.HalfOpen()):

        async def fenced() -> float | None:
            return ended[0] if ended else None

        assert await eventually(fenced, "the strict body is ended") < board.lease_end
        gate.set()
    rows = [await world.final(job) for job in jobs]
    assert [result(row) for row in rows] == ["again", "ordinary"]
    assert [row.attempt for row in rows] == [1, 1]
    assert [each.outcome for each in await world.attempts(jobs[0])] in ([Outcome.INTERRUPTED], [Outcome.LOST])
    assert not await world.attempts(jobs[1])
    assert await running.drained() == 0
    await store.close()
    board.close()
