"""One worker does the services for the fleet; the others notice late work, and take over when the leader has died.

No test waits: the clock of the store and the clock of the workers are moved together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from msgspec.structs import replace

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id, raw_id
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.schedules.plan import ScheduleStep, new_plan, trigger
from mainspring.schedules.service import Scheduler
from mainspring.schedules.swap import swap_row
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.testing.contract.hands import Hand
from mainspring.worker.lease import death_lock
from mainspring.worker.records import Beat, Registration
from mainspring.worker.services import leader as leading
from mainspring.worker.services.base import Service
from mainspring.worker.services.leader import JOBS, SCHEDULES, Leader
from mainspring.worker.services.promoter import Promoter
from mainspring.worker.services.rescuer import Rescuer
from tests.schedules.scheduled import plan_of, put, what
from tests.unit.schedule_samples import JOB, definition

LEASE = 15.0
RECOVERY = 21.0
"""Seconds in which the jobs of a dead worker are to be ready again."""


class Counting:
    """A store that counts the calls through its door."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._store, name)


class Crew:
    """One worker with its services, which run when the test says so."""

    def __init__(self, store: Store, name: str, now: Callable[[], float]) -> None:
        self.name = name
        self.wire = Counting(store)
        wired = cast("Store", self.wire)
        self.promoter = Promoter(wired, lambda: None)
        self.scheduler = Scheduler(wired)
        self.rescuer = Rescuer(wired, lambda: name, now=now, is_alone=lambda: self.leader.fleet <= 1)
        led: dict[str, list[Service]] = {JOBS: [self.promoter, self.rescuer], SCHEDULES: [self.scheduler]}
        self.leader = Leader(
            wired, lambda: name, led, promoter=self.promoter, scheduler=self.scheduler, now=now,
            watch_host=self.rescuer.watch_host,
        )  # fmt: skip
        self.look_at = self.sweep_at = 0.0
        self.promote_at = self.schedule_at = float("inf")
        self.now = now
        self.promoter.tick_in = self._promote_in  # type: ignore[method-assign]  # the clock of the test, not that of the loop
        self.scheduler.tick_in = self._schedule_in  # type: ignore[method-assign]

    def _promote_in(self, seconds: float) -> None:
        self.promote_at = min(self.promote_at, self.now() + seconds)

    def _schedule_in(self, seconds: float) -> None:
        self.schedule_at = min(self.schedule_at, self.now() + seconds)

    @property
    def leads(self) -> bool:
        return self.promoter.leads

    def asked(self, service: Promoter | Scheduler | Rescuer) -> bool:
        """Whether the service was asked to tick; asks once."""
        event = service._asked
        was = event.is_set()
        event.clear()
        return was

    async def step(self, now: float) -> None:
        """Do what is due at this moment, as the loops of the services do it."""
        if now >= self.look_at:
            self.look_at = now + await self.leader.tick()
        if self.asked(self.promoter) or now >= self.promote_at:
            self.promote_at = float("inf")
            pause = await self.promoter.tick()
            if not self.promoter._rests(pause):
                self._promote_in(pause)
        if self.asked(self.scheduler) or now >= self.schedule_at:
            self.schedule_at = float("inf")
            pause = await self.scheduler.tick()
            if not self.scheduler._rests(pause):
                self._schedule_in(pause)
        if self.asked(self.rescuer) or (self.rescuer.leads and now >= self.sweep_at):
            self.sweep_at = now + await self.rescuer.tick()


class World:
    """The store, its clock and the clock of all workers."""

    def __init__(self, store: Store, clock: MovableClock) -> None:
        self.store = store
        self.clock = clock
        self.time = 1000.0
        self.crews: list[Crew] = []

    async def join(self, name: str, info: bytes = b"") -> Crew:
        await self.store.beat([Beat(name, Registration(queues=("q",), lease=int(LEASE * 1e6), info=info))])
        crew = Crew(self.store, name, lambda: self.time)
        self.crews.append(crew)
        await crew.step(self.time)
        return crew

    async def run(
        self, seconds: float, *, until: Callable[[], Awaitable[bool]] | None = None, step: float = 0.05
    ) -> float:
        """Move both clocks, and let each crew do its work. Returns how many seconds passed."""
        began = self.time
        beats = began
        while self.time - began < seconds:
            self.time += step
            self.clock.advance(step)
            if self.time - beats >= 5:
                beats = self.time
                await self.store.beat([Beat(crew.name) for crew in self.crews])
            for crew in self.crews:
                await crew.step(self.time)
            if until is not None and await until():
                break
        return self.time - began

    async def enqueue(self, delay: float) -> bytes:
        job = new_id().bytes
        given = NewJob(id=job, task="t", queue="q", delay=int(delay * 1e6))
        await self.store.enqueue(JobBatch(id=job, jobs=(given,)))
        return job

    async def is_ready(self, job: bytes) -> bool:
        return (await self.store.find(Query.of(job))).jobs[0].state is State.READY


@pytest.fixture(autouse=True)
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory for lock files of its own: the workers of other tests are on other hosts."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))


@pytest.fixture
async def world(store_url: str) -> AsyncIterator[World]:
    clock = MovableClock()
    store = connect(store_url, durability="normal", clock=clock)
    await store.open()
    yield World(store, clock)
    await store.close()


async def test_the_first_worker_leads_and_the_others_only_look(world: World) -> None:
    first, second = await world.join("first"), await world.join("second")
    assert (first.leads, second.leads) == (True, False)
    await world.run(20)
    assert (first.leads, second.leads) == (True, False)
    assert set(second.wire.calls) == {"lead"}


async def test_an_idle_worker_makes_about_one_call_a_second(world: World) -> None:
    """Beside its heartbeats and turns: the leader sweeps and looks, and each other worker only looks."""
    crews = [await world.join(f"w{n}") for n in range(3)]
    for crew in crews:
        crew.wire.calls.clear()
    await world.run(30)
    leader, *others = [sum(crew.wire.calls.values()) for crew in crews]
    assert leader <= 30 + 2 * 11  # a look each second; a heartbeat and a look at all workers every 3 s
    assert max(others) <= 30 / 0.9 + 1


async def test_a_large_fleet_shares_its_looks(world: World) -> None:
    await world.store.beat([Beat(f"idle{n}", Registration(lease=int(3600e6))) for n in range(200)])
    await world.join("first")
    other = await world.join("other")
    other.wire.calls.clear()
    await world.run(25)
    assert set(other.wire.calls) == {"lead"}
    assert 25 / leading.SLOWEST - 1 <= other.wire.calls["lead"] <= 25 / leading.SLOWEST / 0.9 + 1


@pytest.mark.parametrize("delay", [0.1, 0.9, 1.5, 4.0])
@pytest.mark.parametrize("others", [1, 3])
async def test_a_due_job_is_ready_within_a_second_when_the_leader_has_died(
    world: World, delay: float, others: int
) -> None:
    """Also before another worker leads."""
    dead = await world.join("dead")
    for n in range(others):
        await world.run(0.3)
        await world.join(f"other{n}")
    await world.run(2)
    world.crews.remove(dead)
    job = await world.enqueue(delay)
    late = await world.run(10, until=lambda: world.is_ready(job)) - delay
    assert -0.001 <= late <= 1.0


async def test_another_worker_leads_within_a_sweep_and_a_look(world: World) -> None:
    dead, other = await world.join("dead"), await world.join("other")
    await world.run(5)
    world.crews.remove(dead)

    async def leads() -> bool:
        return other.leads

    assert await world.run(20, until=leads) <= 3.0 + 1.05


async def test_jobs_of_the_leader_and_of_a_worker_that_died_with_it_are_rescued_in_time(world: World) -> None:
    dead, also_dead = await world.join("dead"), await world.join("also dead")
    await world.join("other")
    await world.run(7)
    world.crews.remove(dead)
    world.crews.remove(also_dead)

    async def lost() -> bool:
        return sum(row.lost for row in await world.store.workers()) == 2

    assert await world.run(40, until=lost) <= RECOVERY


@pytest.mark.parametrize("is_leader", [True, False])
async def test_a_worker_of_the_same_host_rescues_at_its_next_look_whoever_leads(world: World, is_leader: bool) -> None:
    """The leader may be on another host, which has no proof of the death; or it is the leader that has died."""
    lock = death_lock.DeathLock.create()
    info = msgspec.json.encode(lock.facts())

    async def without_proof() -> float:
        return 3.0

    if not is_leader:
        leader = await world.join("leader of another host")
        leader.rescuer.tick = without_proof  # type: ignore[method-assign]  # its sweeps find no lock file
    dead = await world.join("dead", info)
    other = await world.join("other")
    await world.run(2)
    assert "rescue" not in other.wire.calls
    world.crews.remove(dead)
    lock.close()

    async def rescued() -> bool:
        return any(row.id == "dead" and row.lost for row in await world.store.workers())

    assert await world.run(10, until=rescued) <= 1.05
    assert other.wire.calls["rescue"] == 1


async def test_a_lock_file_of_a_dead_worker_of_another_store_causes_few_sweeps(world: World) -> None:
    await world.join("first")
    second = await world.join("second")
    await world.run(10)
    before = second.wire.calls["workers"]
    lock = death_lock.DeathLock.create()
    lock.close()
    await world.run(30)
    assert 1 <= second.wire.calls["workers"] - before <= death_lock.REPORTS
    lock.close(unlink=True)


async def test_a_leader_that_retires_is_replaced_at_the_next_look(world: World) -> None:
    first, second = await world.join("first"), await world.join("second")
    await world.run(3)
    world.crews.remove(first)
    await world.store.retire("first", Outcome.INTERRUPTED)
    await world.run(1.05)
    assert second.leads


async def test_a_leader_promotes_a_due_job_by_itself(world: World) -> None:
    first, second = await world.join("first"), await world.join("second")
    job = await world.enqueue(2.5)
    await world.run(4, until=lambda: world.is_ready(job))
    assert first.wire.calls["promote"] >= 1
    assert second.wire.calls["promote"] == 0


async def test_the_leader_ticks_its_parts_when_the_clock_was_set_back(world: World) -> None:
    first = await world.join("first")
    await world.run(3)
    before = first.wire.calls["due_schedules"]
    first.leader._ahead = (first.leader._ahead or 0.0) + 3600  # as if the store's clock had been an hour ahead
    await world.run(1.2)
    assert first.wire.calls["due_schedules"] == before + 1


async def put_waiting(store: Store) -> None:
    """``d`` waits for a success of ``a``, which has not run yet."""
    now = await store.now()
    await put(store, "a", new_plan(definition(mode="triggered"), now))
    await put(store, "d", new_plan(definition(mode="continuous", depends_on=("a",)), now))


async def is_waiting(store: Store) -> bool:
    return (await plan_of(store, "d")).waiting is not None


async def run_dependency(store: Store) -> None:
    """A run of ``a`` succeeds, in a worker that is no scheduler."""
    (row,) = await store.schedules(["a"])
    made = trigger("a", await plan_of(store, "a"), await store.now(), {}, raw_id, {})
    assert isinstance(made, ScheduleStep)
    assert (await swap_row(store, row, made)).ok
    hand = await Hand(store, tasks=[JOB.task]).join()
    await hand.succeed(await hand.take_one())


async def test_only_the_leader_looks_at_a_schedule_that_waits(world: World) -> None:
    first = await world.join("first")
    await put_waiting(world.store)
    await world.run(2)
    assert await is_waiting(world.store)
    others = [await world.join(f"other{n}") for n in range(3)]
    for crew in others:
        crew.wire.calls.clear()
    first.wire.calls.clear()
    await world.run(20)
    assert [set(crew.wire.calls) for crew in others] == [{"lead"}] * 3
    assert first.wire.calls["due_schedules"] >= 19
    assert first.wire.calls["swap_schedule"] == 0


async def test_a_leader_without_a_waiting_schedule_does_not_read_schedules(world: World) -> None:
    first = await world.join("first")
    await put(world.store, "a", mode="triggered")
    await world.run(2)
    first.wire.calls.clear()
    await world.run(10)
    assert first.wire.calls["due_schedules"] == 0


async def test_the_leader_starts_a_schedule_that_waited_within_a_second(world: World) -> None:
    await world.join("first")
    await world.join("second")
    await put_waiting(world.store)
    await world.run(5)
    await run_dependency(world.store)

    async def started() -> bool:
        return not await is_waiting(world.store)

    assert await world.run(10, until=started) <= 1.05


@pytest.mark.parametrize("others", [1, 3])
async def test_another_worker_starts_a_schedule_that_waited_when_the_leader_has_died(world: World, others: int) -> None:
    dead = await world.join("dead")
    for n in range(others):
        await world.join(f"other{n}")
    await put_waiting(world.store)
    await world.run(5)
    assert await is_waiting(world.store)
    world.crews.remove(dead)
    await run_dependency(world.store)

    async def started() -> bool:
        return not await is_waiting(world.store)

    assert await world.run(20, until=started) <= 3.0 + 1.05


async def test_a_schedule_that_waits_does_not_hide_a_late_one(world: World) -> None:
    """The other workers fire the late one before one of them leads."""
    dead = await world.join("dead")
    await world.join("other")
    await put_waiting(world.store)
    await world.run(5)
    now = await world.store.now()
    await put(world.store, "late", replace(new_plan(definition(), now), due=now + 500_000))
    world.crews.remove(dead)

    async def fired() -> bool:
        return bool(await what(world.store, "late"))

    assert await world.run(10, until=fired) <= 0.5 + 1.0 + 0.05


async def test_another_scheduler_takes_up_what_the_leader_leaves(world: World) -> None:
    """The leader may be of an older version, which cannot read the row."""

    async def reads_nothing() -> float:
        return 1.0

    first, second = await world.join("first"), await world.join("second")
    await put_waiting(world.store)
    await world.run(3)
    first.scheduler.tick = reads_nothing  # type: ignore[method-assign]
    await run_dependency(world.store)

    async def started() -> bool:
        return not await is_waiting(world.store)

    assert await world.run(60, until=started) <= leading.OWN_LOOK + 1.05
    assert second.wire.calls["swap_schedule"] >= 1
