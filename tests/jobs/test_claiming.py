"""What is claimed, in which order, and how much of it."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.breakers.declare import DeclaredBreaker, declare_breaker
from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.launch.services import build_services
from mainspring.limits.declare import BoundLimit, bind
from mainspring.options.table import resolve_options
from mainspring.queues.records import FairKey
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.stores.connect import connect
from mainspring.stores.door import Door
from mainspring.testing.contract.hands import Sized, bucket
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.loop import turn_loop, wakeups
from mainspring.worker.loop.turn_loop import TurnLoop
from mainspring.worker.records import Beat, Registration, Turn, TurnResult, Want
from mainspring.worker.supervise.signals import Exit
from mainspring.worker.worker import Worker
from tests.jobs.faulty import FaultyStore
from tests.jobs.world import LIMIT, SECOND, World, eventually, result
from tests.timing import patience


def _breaker(**given: Any) -> DeclaredBreaker:
    return declare_breaker("", resolve_options("breaker", given), given, "task 'look'")


def faulty(world: World) -> tuple[FaultyStore, Store]:
    store = FaultyStore(world.store)
    return store, store


@pytest.mark.row("Q5")
async def test_higher_priorities_come_first_and_equal_ones_in_order(world: World) -> None:
    order: list[int] = []

    async def note(n: int) -> None:
        order.append(n)

    task = world.task(note)
    priorities = [0, 50, -50, 100, 50, 0]
    await world.put(*(world.new_job(task, n, priority=p) for n, p in enumerate(priorities)))
    await world.drain(async_slots=1, thread_slots=0)
    assert order == [3, 1, 4, 0, 5, 2]


@pytest.mark.row("Q5", "Q7")
@pytest.mark.parametrize("key", [None, "acme"])
async def test_an_hour_of_age_counts_as_one_point_of_priority(world: World, store_url: str, key: str | None) -> None:
    """So an old job of a low priority does not starve while jobs of a higher priority come in."""
    order: list[int] = []

    async def note(n: int) -> None:
        order.append(n)

    def job(n: int, priority: int) -> NewJob:
        return replace(world.new_job(task, n, priority=priority), fair=key and FairKey(f"{key}{n}"))

    task = world.task(note)
    clock = MovableClock(datetime.now(UTC) - timedelta(hours=3, minutes=10))
    earlier = connect(store_url, durability="normal", clock=clock, deadline=patience(10))
    await earlier.open()
    try:
        await earlier.enqueue(JobBatch(id=new_id().bytes, jobs=(job(-1, -1),)))
    finally:
        await earlier.close()
    await world.put(*(job(n, n) for n in range(4)))
    await world.drain(async_slots=1, thread_slots=0)
    assert order == [3, -1, 2, 1, 0]


@pytest.mark.row("W1")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_the_concurrency_of_a_queue_is_never_exceeded(world: World, colour: str) -> None:
    lock = threading.Lock()
    now: dict[str, int] = {"few": 0, "many": 0}
    most: dict[str, int] = {"few": 0, "many": 0}

    def enter(queue: str) -> None:
        with lock:
            now[queue] += 1
            most[queue] = max(most[queue], now[queue])

    def leave(queue: str) -> None:
        with lock:
            now[queue] -= 1

    async def in_async(queue: str) -> None:
        enter(queue)
        await asyncio.sleep(0.002)
        leave(queue)

    def in_thread(queue: str) -> None:
        enter(queue)
        time.sleep(0.002)
        leave(queue)

    task = world.task(in_async if colour == "async" else in_thread)
    await world.put(*(world.new_job(task, q, queue=q) for _ in range(100) for q in ("few", "many")))
    await world.drain(queues=("few", "many"), concurrency={"few": 2})
    assert await world.counts() == {State.SUCCEEDED: 200}
    assert most["few"] <= 2
    assert most["many"] > 2


async def test_other_queues_use_the_slots_of_a_capped_queue_without_work(world: World) -> None:
    """All slots run jobs of the other queue although the capped queue could use them."""
    met = asyncio.Barrier(8)

    async def meet() -> None:
        async with asyncio.timeout(20):
            await met.wait()

    task = world.task(meet)
    await world.put(*(world.new_job(task, queue="open") for _ in range(8)))
    await world.drain(queues=("capped", "open"), concurrency={"capped": 8}, async_slots=8)
    assert await world.counts() == {State.SUCCEEDED: 8}


async def test_a_capped_queue_gets_its_turn_beside_a_backlog_of_short_jobs(world: World) -> None:
    """Jobs of the backlog that are claimed ahead never delay the capped queue until the backlog is over."""
    order: list[str] = []

    async def note(queue: str) -> None:
        order.append(queue)

    task = world.task(note)
    await world.put(*(world.new_job(task, "flood", queue="flood") for _ in range(3_000)))
    await world.put(*(world.new_job(task, "few", queue="few") for _ in range(5)))
    await world.drain(queues=("flood", "few"), concurrency={"few": 1}, async_slots=4, thread_slots=0)
    assert order.count("flood") == 3_000
    assert [n for n, queue in enumerate(order) if queue == "few"][-1] < 2_000


async def test_jobs_enqueued_by_name_do_not_wait_for_a_full_kind_of_slot(world: World) -> None:
    """Thread slots are free and async slots are not: the worker holds at most one async job that was enqueued by
    name.
    """
    store, passed = faulty(world)
    gate = asyncio.Event()

    async def waits() -> None:
        await gate.wait()

    task = world.task(waits)
    await world.put(*(world.new_job(task, kind="any") for _ in range(10)))
    running = await world.worker(store=passed, async_slots=1, thread_slots=2, poll=SECOND // 50).started()

    async def many_turns() -> bool | None:
        return True if len(store.turns) > 8 else None

    await eventually(many_turns, "many turns")
    assert (await world.counts())[State.RUNNING] <= 2
    gate.set()

    async def all_done() -> bool | None:
        return True if await world.counts() == {State.SUCCEEDED: 10} else None

    await eventually(all_done, "all succeed")
    assert await running.drained() == 0


async def test_a_task_without_a_slot_of_its_kind_is_reported_and_left_to_others(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    store, passed = faulty(world)

    def threaded() -> int:
        return 1

    job = await world.enqueue(world.task(threaded), kind="any")
    running = await world.worker(store=passed, thread_slots=0).started()

    async def parked() -> bool | None:
        row = await world.row(job)
        return True if row.state is State.READY and "?" in row.lane else None

    await eventually(parked, "the job is parked")
    sent = len(store.turns)

    async def later() -> bool | None:
        return True if len(store.turns) > sent + 3 else None

    await eventually(later, "some more turns")
    assert not any(turn.acks for turn in store.turns[sent:])
    assert "needs thread slots, and this worker has none" in caplog.text
    assert await running.drained() == 0
    await world.drain()
    assert result(await world.row(job)) == 1


@pytest.mark.row("W6")
async def test_claims_ahead_are_bounded_and_returned_when_unused(world: World) -> None:
    """Short jobs make the worker claim ahead. When the slots are then blocked, the other jobs become ready for
    other workers.
    """
    gate = asyncio.Event()

    async def short() -> None:
        return None

    async def long() -> None:
        await gate.wait()

    first, second = world.task(short), world.task(long)
    await world.put(*(world.new_job(first) for _ in range(40)))
    jobs = await world.put(*(world.new_job(second) for _ in range(40)))
    running = await world.worker(async_slots=2, thread_slots=0).started()

    async def given_back() -> bool | None:
        counts = await world.counts()
        done = counts == {State.SUCCEEDED: 40, State.RUNNING: 2, State.READY: 38}
        returned = [a for job in jobs for a in await world.attempts(job) if a.outcome is Outcome.INTERRUPTED]
        return True if done and returned else None

    await eventually(given_back, "only what runs is held")
    other = await world.worker(async_slots=4, thread_slots=0).started()

    async def shared() -> bool | None:
        return True if (await world.counts()).get(State.RUNNING) == 6 else None

    await eventually(shared, "another worker runs what was given back")
    gate.set()
    for job in jobs:
        await world.final(job)
    assert {(await world.row(job)).attempt for job in jobs} == {1}
    assert [await running.drained(), await other.drained()] == [0, 0]


@pytest.mark.row("W6")
@pytest.mark.parametrize("kind", ["early", "limited"])
async def test_ack_early_and_limited_jobs_are_never_held_ahead(world: World, kind: str) -> None:
    """While one runs, none waits for a slot. Jobs with early ack that came with a claim ahead were handed back
    unharmed.
    """
    waiting: list[int] = []

    async def short() -> None:
        return None

    async def early() -> None:
        dispatcher = running.worker._dispatcher
        assert dispatcher is not None
        line = dispatcher.pools["async"]._waiting  # type: ignore[attr-defined]  # the test looks inside
        waiting.append(sum(attempt.needs_slot_now for attempt in line))
        await asyncio.sleep(0.001)

    first, second = world.task(short), world.task(early, early=kind == "early")
    buckets = (bucket("wide", 50),) if kind == "limited" else ()
    await world.put(*(world.new_job(first) for _ in range(40)))
    jobs = await world.put(*(world.new_job(second, buckets=buckets) for _ in range(60)))
    running = world.worker(async_slots=2, thread_slots=0)
    for job in jobs:
        await world.final(job)
    assert await world.counts() == {State.SUCCEEDED: 100}
    assert waiting == [0] * 60
    returned = [a.outcome for job in jobs for a in await world.attempts(job)]
    assert set(returned) == ({Outcome.INTERRUPTED} if kind == "early" else set())
    assert await running.drained() == 0


@pytest.mark.parametrize("key", ["", "7"], ids=["unkeyed", "keyed"])
async def test_claims_ahead_do_not_keep_limited_jobs_waiting(world: World, key: str) -> None:
    """Limited jobs need a free slot, and jobs claimed ahead take each slot that becomes free."""
    started: list[str] = []

    async def short() -> None:
        started.append("short")
        await asyncio.sleep(0.001)

    async def limited() -> None:
        started.append("limited")

    first, second = world.task(short), world.task(limited)
    await world.put(*(world.new_job(first) for _ in range(300)))
    jobs = await world.put(*(world.new_job(second, buckets=(bucket("few", 5, key=key),)) for _ in range(3)))
    await world.put(*(world.new_job(first) for _ in range(1500)))
    running = world.worker(async_slots=2, thread_slots=0)
    for job in jobs:
        await world.final(job)
    assert started.count("short") < 1400, "they start about when it is their turn"
    assert await running.drained() == 0


async def test_limited_jobs_of_a_lost_reply_are_not_held_ahead(world: World) -> None:
    """The reply of a repeated turn does not say which claims were made for free slots, so all claims with limits
    start first.
    """
    store, passed = faulty(world)
    store.lose_every = 2
    waiting: list[int] = []

    async def short() -> None:
        return None

    async def limited() -> None:
        dispatcher = running.worker._dispatcher
        assert dispatcher is not None
        line = dispatcher.pools["async"]._waiting  # type: ignore[attr-defined]  # the test looks inside
        waiting.append(sum(attempt.limited for attempt in line))
        await asyncio.sleep(0.001)

    first, second = world.task(short), world.task(limited)
    jobs = []
    for _ in range(40):
        await world.put(*(world.new_job(first) for _ in range(5)))
        jobs += await world.put(world.new_job(second, buckets=(bucket("few", 50),)))
    running = world.worker(store=passed, async_slots=2, thread_slots=0)
    for job in jobs:
        await world.final(job)
    assert waiting == [0] * 40
    assert await running.drained() == 0


@pytest.mark.parametrize("fair", [None, FairKey("acme")])
@pytest.mark.parametrize("more", [True, False])
async def test_a_breaker_alone_does_not_make_a_body_guarded(world: World, more: bool, fair: FairKey | None) -> None:
    """The limit of its queue does, although the task does not know that limit."""
    seen: list[tuple[bool, bool]] = []

    async def look() -> None:
        turns = running.worker._turn_loop
        assert turns is not None
        seen.extend((attempt.limited, attempt.guarded) for attempt in turns.held.values())

    bounds = bind("look", (_breaker(failures=3),), "task 'look'")
    task = world.task(look, bounds=bounds, breaker=_breaker())
    own = bound_bucket(bounds)
    job = await world.enqueue(task, buckets=(own, bucket("queue/default", 5)) if more else (own,), fair=fair)
    running = world.worker()
    await world.final(job)
    assert seen == [(more, more)]
    assert await running.drained() == 0


def bound_bucket(bounds: tuple[BoundLimit, ...]) -> Sized:
    (bound,) = bounds
    return Sized(bound.limit.name, "", 1, bound.limit)


async def test_a_full_worker_requests_no_jobs(world: World) -> None:
    store, passed = faulty(world)
    gate = asyncio.Event()

    async def long() -> None:
        await gate.wait()

    jobs = await world.put(*(world.new_job(world.task(long)) for _ in range(5)))
    running = await world.worker(store=passed, async_slots=2, thread_slots=0, poll=SECOND // 20).started()

    async def many_turns() -> bool | None:
        return True if len(store.turns) > 3 and store.turns[-1].holds is not None else None

    await eventually(many_turns, "turns go on while the worker is full")
    assert store.turns[-1].wants == ()
    assert len(store.turns[-1].holds or ()) == 2
    gate.set()
    for job in jobs:
        await world.final(job)
    assert await running.drained() == 0


async def test_suspects_run_one_at_a_time(world: World) -> None:
    """A suspect is a job whose next crash would be its last."""
    store, passed = faulty(world)
    gate = asyncio.Event()
    now = most = 0

    async def careful() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await gate.wait()
        now -= 1

    task = world.task(careful)
    jobs = await world.put(*(replace(world.new_job(task), crashes=2) for _ in range(5)))
    (beaten,) = await world.store.beat([Beat("doomed", Registration(queues=("default",)))])
    await world.store.turn(Turn(worker="doomed", number=1, seen=0, wants=(Want(("default/async",), 5),)))
    await world.store.rescue("doomed", beaten.number, Outcome.CRASHED)
    assert {(await world.row(job)).crashes for job in jobs} == {1}
    running = await world.worker(store=passed, poll=SECOND // 50).started()

    async def many_turns() -> bool | None:
        return True if len(store.turns) > 8 else None

    await eventually(many_turns, "many turns")
    gate.set()

    async def all_done() -> bool | None:
        return True if await world.counts() == {State.SUCCEEDED: 5} else None

    await eventually(all_done, "all succeed")
    assert most == 1
    assert await running.drained() == 0


async def test_jobs_enqueued_by_name_run_in_either_kind_of_slot(world: World) -> None:
    async def one() -> str:
        return "async"

    def two() -> str:
        return "thread"

    jobs = [await world.enqueue(world.task(fn), kind="any") for fn in (one, two)]
    await world.drain()
    assert [result(await world.row(job)) for job in jobs] == ["async", "thread"]


async def test_a_job_that_expired_before_it_could_start_is_not_run(world: World) -> None:
    ran: list[int] = []

    async def late() -> None:
        ran.append(1)

    job = await world.enqueue(world.task(late), expires_in=1)
    await world.drain()
    row = await world.final(job)
    assert (row.state, row.reason, ran) == (State.CANCELLED, "expired", [])


async def test_a_job_that_expires_while_it_waits_for_a_slot_is_not_run(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was claimed ahead in time, but its slot became free too late."""
    monkeypatch.setattr("mainspring.worker.run.dispatch.UNUSED_AFTER", 3600.0)
    gate, begun = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    async def short() -> None:
        return None

    async def long() -> None:
        begun.set()
        await gate.wait()

    async def late() -> None:
        ran.append(1)

    await world.put(*(world.new_job(world.task(short)) for _ in range(40)))
    await world.put(world.new_job(world.task(long)))
    (job,) = await world.put(world.new_job(world.task(late), expires_in=int(patience(5) * SECOND)))
    running = world.worker(async_slots=1, thread_slots=0)
    await begun.wait()
    expires = (await world.until(job, State.RUNNING)).expires
    assert expires is not None

    async def past() -> bool | None:
        return True if time.time_ns() // 1000 > expires + SECOND else None

    await eventually(past, "the job has long expired")
    gate.set()
    row = await world.final(job)
    assert (row.state, row.reason, ran) == (State.CANCELLED, "expired", [])
    assert await running.drained() == 0


async def test_until_empty_waits_for_scheduled_jobs(world: World) -> None:
    """It does not wait for jobs of unknown tasks; the exit code says that jobs are left."""

    async def one() -> None:
        return None

    later = await world.enqueue(world.task(one), delay=SECOND // 2)
    stranger = await world.enqueue("who.knows")
    assert await world.drain() == Exit.LEFT
    assert (await world.row(later)).state is State.SUCCEEDED
    assert (await world.row(stranger)).state is State.READY


@pytest.mark.row("W7")
async def test_an_idle_worker_is_woken_by_an_enqueue(world: World) -> None:
    """The poll interval is a minute, so the wake-up must have caused the claim."""

    async def one() -> int:
        return 1

    task = world.task(one)
    running = await world.worker(poll=60 * SECOND).started()
    for _ in range(3):
        assert result(await world.final(await world.enqueue(task))) == 1
    assert await running.drained() == 0


@pytest.mark.row("W7")
async def test_a_wake_up_that_overtakes_the_reply_of_a_turn_is_not_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn found no job, the job arrived right after it, and its wake-up reached the worker before the reply."""

    async def one() -> int:
        return 1

    class Overtaken(FaultyStore):
        armed = False

        async def turn(self, turn: Turn) -> TurnResult:
            reply = await super().turn(turn)
            if self.armed and turn.wants:
                self.armed = False
                made.set_result(await world.enqueue(task))
                await woken.wait()
            return reply

    task = world.task(one)
    store: Any = Overtaken(world.store)
    running = await world.worker(store=store, poll=3600 * SECOND).started()
    idle = running.worker._turn_loop
    assert idle is not None

    async def out_of_work() -> bool | None:
        return idle.is_out_of_work or None

    await eventually(out_of_work, "the first turn found nothing")
    made: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    woken = asyncio.Event()
    store.armed = True
    idle.wake()

    def noted() -> None:
        TurnLoop.wake(idle)
        woken.set()

    monkeypatch.setattr(idle, "wake", noted)
    async with asyncio.timeout(LIMIT):
        job = await made
    assert result(await world.final(job)) == 1
    assert await running.drained() == 0


@pytest.mark.option("worker.poll")
async def test_without_any_wake_up_the_poll_finds_the_job(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """No wake-up is sent here, and idle turns are an hour apart."""
    monkeypatch.setattr(turn_loop, "IDLE_EVERY", 3_600.0)
    deaf = Deaf(world.store)
    app = Mainspring(world.url, poll="1h")
    done = asyncio.Event()

    @app.task(name="poll.work")
    async def work() -> None:
        done.set()

    async def heard() -> list[float] | None:
        return deaf.asked or None

    worker = Worker(app.parts(poll="50ms"), deaf, shared_state=SharedState.create(256), services=build_services)
    running = asyncio.create_task(worker.run())
    await worker.wait_started()
    await eventually(heard, "it listens")
    await work.aenqueue()
    async with asyncio.timeout(60):
        await done.wait()
    assert set(deaf.asked) == {0.05}
    worker.drain()
    assert await running == 0
    await app.aclose()


@pytest.mark.parametrize("is_always_woken", [True, False])
async def test_the_workers_of_a_large_fleet_poll_less_often_if_they_are_woken(
    world: World, *, is_always_woken: bool
) -> None:
    """All of them find a job whose wake-up was lost as soon as before. Without wake-ups, each polls as it was told."""
    await world.store.beat([Beat(f"idle{n}", Registration(lease=int(3600e6))) for n in range(200)])
    deaf = Deaf(world.store)
    deaf.is_always_woken = is_always_woken
    app = Mainspring(world.url, poll="50ms")

    async def asked_often() -> bool | None:
        return max(deaf.asked, default=0.0) > 0.2 or len(deaf.asked) > 60 or None

    worker = Worker(app.parts(), deaf, shared_state=SharedState.create(256), services=build_services)
    running = asyncio.create_task(worker.run())
    await worker.wait_started()
    await eventually(asked_often, "it knows the size of the fleet")
    assert (max(deaf.asked) > 0.05) is is_always_woken
    worker.drain()
    assert await running == 0
    await app.aclose()


@pytest.mark.parametrize(
    ("poll", "fleet", "expected"),
    [(2.0, 1, 2.0), (2.0, 40, 2.0), (2.0, 60, 3.0), (2.0, 1000, 5.0), (0.1, 1000, 2.5), (60.0, 1000, 60.0)],
)
def test_the_pause_between_two_polls_grows_with_the_fleet(poll: float, fleet: int, expected: float) -> None:
    pause = wakeups.poll_pause(poll, fleet)
    assert 0.9 * expected <= pause <= expected


class Deaf(Door):
    """A store whose listeners get no wake-up."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.inner)
        self.asked: list[float] = []
        """How long they were asked to wait."""
        self.is_always_woken = False
        """What they say of themselves."""

    async def listen(self, worker: str, queues: Any) -> Any:
        return _HearsNothing(self.asked, is_always_woken=self.is_always_woken)


class _HearsNothing:
    def __init__(self, asked: list[float], *, is_always_woken: bool = False) -> None:
        self._asked = asked
        self.is_always_woken = is_always_woken

    async def wait(self, timeout: float) -> bool:
        self._asked.append(timeout)
        await asyncio.sleep(timeout)
        return False

    def close(self) -> None: ...
