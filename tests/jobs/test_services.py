"""The services of a worker: promoter, rescuer with the witness rule, pruner."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mainspring.codec import dumps
from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import StoreUnavailable
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, NewJob, Retention
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.worker.lease import death_lock
from mainspring.worker.records import Beat, Registration, Turn, Want, WorkerRow
from mainspring.worker.services.base import Service
from mainspring.worker.services.promoter import Promoter
from mainspring.worker.services.pruner import Pruner
from mainspring.worker.services.rescuer import Rescuer
from tests.jobs.world import World

LEASE = 15_000_000


class Own:
    """A clock for the rescuer that the test moves."""

    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest.fixture
async def store(store_url: str, clock: MovableClock) -> AsyncIterator[Store]:
    opened = connect(store_url, durability="normal", clock=clock)
    await opened.open()
    yield opened
    await opened.close()


async def job_of(store: Store, worker: str, info: bytes = b"{}", lease: int = LEASE) -> bytes:
    """A running job of a worker that registered."""
    job = new_id().bytes
    await store.enqueue(JobBatch(id=job, jobs=(NewJob(id=job, task="t", queue="q", kind="async"),)))
    await store.beat([Beat(worker, Registration(queues=("q",), lease=lease, info=info))])
    await store.turn(Turn(worker=worker, number=1, seen=0, wants=(Want(("q/async",), 1),)))
    return job


async def state(store: Store, job: bytes) -> State:
    return (await store.find(Query.of(job))).jobs[0].state


async def witness(store: Store) -> tuple[Rescuer, Own]:
    await store.beat([Beat("witness", Registration(lease=LEASE))])
    own = Own()
    return Rescuer(store, lambda: "witness", sweep=3.0, now=own), own


@pytest.mark.row("W3")
async def test_a_silent_worker_is_rescued_after_a_whole_witnessed_lease(store: Store) -> None:
    job = await job_of(store, "silent")
    rescuer, own = await witness(store)
    for _ in range(5):
        await rescuer.tick()
        assert await state(store, job) is State.RUNNING
        own.time += 3.0
    await rescuer.tick()
    assert await state(store, job) is State.READY
    assert [a.outcome for a in await store.attempts(job)] == [Outcome.LOST]


@pytest.mark.row("W2")
async def test_a_worker_that_beats_is_never_rescued(store: Store) -> None:
    job = await job_of(store, "alive")
    rescuer, own = await witness(store)
    for _ in range(40):
        await rescuer.tick()
        own.time += 3.0
        await store.beat([Beat("alive")])
    assert await state(store, job) is State.RUNNING


@pytest.mark.row("B22", "E5")
async def test_time_that_was_not_witnessed_does_not_count(store: Store, clock: MovableClock) -> None:
    """An hour in which this process was stopped, a store that was away, a stepped clock: no worker is rescued for
    these.
    """
    job = await job_of(store, "busy")
    rescuer, own = await witness(store)
    await rescuer.tick()
    own.time += 3600.0
    clock.advance("1h")
    await rescuer.tick()
    own.time += 3600.0
    clock.advance("1h")
    await rescuer.tick()
    assert await state(store, job) is State.RUNNING
    await store.beat([Beat("busy")])
    for _ in range(5):
        await rescuer.tick()
        own.time += 3.0
    assert await state(store, job) is State.RUNNING


@pytest.mark.row("B22")
async def test_a_gap_in_our_own_ticks_counts_for_two_sweeps_at_most(store: Store) -> None:
    """This process and the other worker are stopped for an hour together: that does not count as an hour without
    heartbeats.
    """
    job = await job_of(store, "stopped too")
    rescuer, own = await witness(store)
    for pause in (3.0, 3.0, 3600.0):
        await rescuer.tick()
        own.time += pause
    await rescuer.tick()
    assert await state(store, job) is State.RUNNING


async def test_three_writes_are_needed_however_short_the_lease(store: Store) -> None:
    job = await job_of(store, "hasty", lease=1_000_000)
    rescuer, own = await witness(store)
    for _ in range(3):
        await rescuer.tick()
        assert await state(store, job) is State.RUNNING
        own.time += 3.0
    await rescuer.tick()
    assert await state(store, job) is State.READY


async def test_a_rescuer_that_is_lost_itself_rescues_no_worker(store: Store) -> None:
    job = await job_of(store, "silent")
    rescuer, own = await witness(store)
    (row,) = [row for row in await store.workers() if row.id == "witness"]
    for _ in range(4):
        await rescuer.tick()
        own.time += 3.0
    (row,) = [row for row in await store.workers() if row.id == "witness"]
    await store.rescue("witness", row.number, Outcome.LOST)
    for _ in range(10):
        await rescuer.tick()
        own.time += 3.0
    assert await state(store, job) is State.RUNNING


@pytest.mark.row("B4")
async def test_jobs_of_a_worker_proven_dead_are_rescued_at_once(store: Store) -> None:
    """The death lock proves the death: the first sweep takes the jobs as crashed."""
    lock = death_lock.DeathLock.create()
    job = await job_of(store, "dead", dumps(lock.facts()))
    rescuer, _ = await witness(store)
    await rescuer.tick()
    assert await state(store, job) is State.RUNNING
    lock.close()
    await rescuer.tick()
    row = (await store.find(Query.of(job))).jobs[0]
    assert (row.state, row.crashes) == (State.READY, 1)


@pytest.mark.row("B4")
async def test_a_proof_of_death_counts_more_than_a_whole_lease_of_silence(store: Store) -> None:
    """The worker was stopped for almost a lease and then killed, or the rescuer came late: its job has crashed it."""
    lock = death_lock.DeathLock.create()
    job = await job_of(store, "stopped, then dead", dumps(lock.facts()))
    rescuer, own = await witness(store)
    for _ in range(5):
        await rescuer.tick()
        own.time += 3.0
    assert await state(store, job) is State.RUNNING
    lock.close()
    await rescuer.tick()
    assert [a.outcome for a in await store.attempts(job)] == [Outcome.CRASHED]
    assert (await store.find(Query.of(job))).jobs[0].crashes == 1


async def test_the_promoter_sleeps_until_the_next_job_is_due(store: Store, clock: MovableClock) -> None:
    woken: list[int] = []
    job = new_id().bytes
    await store.enqueue(JobBatch(id=job, jobs=(NewJob(id=job, task="t", queue="q", delay=200_000),)))
    promoter = Promoter(store, lambda: woken.append(1))
    assert await promoter.tick() == pytest.approx(0.2)
    clock.advance(0.2)
    assert await promoter.tick() == 1.0
    assert (woken, await state(store, job)) == ([1], State.READY)


async def test_the_pruner_deletes_jobs_past_their_retention(store: Store, clock: MovableClock) -> None:
    job = new_id().bytes
    await store.enqueue(JobBatch(id=job, jobs=(NewJob(id=job, task="t", queue="q"),)))
    await store.act(Action.CANCEL, Query.of(job))
    pruner = Pruner(store, Retention(keep=60_000_000, keep_at_least=0))
    await pruner.tick()
    assert await state(store, job) is State.CANCELLED
    clock.advance("2m")
    await pruner.tick()
    assert (await store.find(Query.of(job))).jobs == ()


async def test_a_service_logs_the_begin_and_the_end_of_a_failure(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    class Shaky(Service):
        every = 0.001

        def __init__(self) -> None:
            super().__init__(store)
            self.calls = 0

        async def tick(self) -> None:
            self.calls += 1
            if self.calls <= 3:
                raise StoreUnavailable("away")

    shaky = Shaky()
    running = asyncio.create_task(shaky.run())
    async with asyncio.timeout(20):
        await shaky.wait_tick()
    running.cancel()
    said = [record.getMessage() for record in caplog.records if record.name == "mainspring.shaky"]
    assert len(said) == 2
    assert "failed; retrying" in said[0]
    assert "works again" in said[1]


async def test_two_rescuers_take_a_silent_worker_once(world: World, store: Store) -> None:
    job = await job_of(store, "silent")
    rows: list[WorkerRow] = [row for row in await store.workers() if row.id == "silent"]
    taken = [await store.rescue("silent", rows[0].number, Outcome.LOST) for _ in range(2)]
    assert [each.taken for each in taken] == [True, False]
    assert await state(store, job) is State.READY
