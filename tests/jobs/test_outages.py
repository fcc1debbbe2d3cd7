"""A store that fails, loses replies or gives a worker up: nothing is lost, nothing doubled."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

import pytest
from msgspec.structs import replace

from mainspring.errors import StoreConflict, StoreError, StoreFull, StoreUnavailable
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import Reason, State
from mainspring.worker.records import RescueResult, Turn
from tests.jobs.test_claiming import faulty
from tests.jobs.world import LIMIT, SECOND, World, error, eventually, result


async def give_up(world: World, worker: str) -> RescueResult:
    """Rescue a worker that is well, as one that was cut off would be; its own beats may come in between."""

    async def rescued() -> RescueResult | None:
        (row,) = [row for row in await world.store.workers() if row.id == worker]
        done = await world.store.rescue(worker, row.number, Outcome.LOST)
        return done if done.taken else None

    return await eventually(rescued, "the worker is given up")


@pytest.mark.row("R12", "B22")
async def test_an_outage_interrupts_no_body_and_loses_no_ack(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """Bodies end while the store is away, and their acks arrive afterwards. The log has one line at the begin and
    one at the end.
    """
    store, passed = faulty(world)
    gate, begun = threading.Event(), threading.Semaphore(0)
    runs: Counter[int] = Counter()

    async def on_loop(n: int) -> int:
        runs[n] += 1
        begun.release()
        await asyncio.to_thread(gate.wait, 20)
        return n

    def in_thread(n: int) -> int:
        runs[n] += 1
        begun.release()
        gate.wait(20)
        return n

    one, two = world.task(on_loop), world.task(in_thread)
    jobs = await world.put(*(world.new_job(one if n % 2 else two, n) for n in range(8)))
    running = await world.worker(store=passed).started()
    for _ in jobs:
        assert await asyncio.to_thread(begun.acquire, True, 20)
    store.down = True
    gate.set()

    async def noticed() -> bool | None:
        return True if store.failed > 6 else None

    await eventually(noticed, "the outage is noticed")
    store.down = False
    rows = [await world.final(job) for job in jobs]
    assert [result(row) for row in rows] == list(range(8))
    assert set(runs.values()) == {1}

    async def told() -> list[str] | None:
        said = [r.getMessage() for r in caplog.records if r.getMessage().startswith("the store ")]
        return said if said and "works again" in said[-1] else None

    first, last = await eventually(told, "the end of the outage is told")
    assert "the store failed while " in first
    assert "the store works again after" in last
    assert await running.drained() == 0


@pytest.mark.row("B21")
@pytest.mark.parametrize("every", [1, 2, 3])
async def test_lost_replies_of_turns_neither_lose_nor_repeat_jobs(world: World, every: int) -> None:
    """Each lost turn is repeated with its number and content; every job runs once."""
    store, passed = faulty(world)
    runs: Counter[int] = Counter()

    async def once(n: int) -> int:
        runs[n] += 1
        return n

    task = world.task(once)
    jobs = await world.put(*(world.new_job(task, n) for n in range(50)))
    seen: set[int] = set()

    def lose_first(turn: Turn) -> Turn:
        if turn.number % every == 0 and turn.number not in seen:
            store.lose.add("turn")
        seen.add(turn.number)
        return turn

    store.twist = lose_first
    running = await world.worker(store=passed, async_slots=4).started()
    rows = [await world.final(job) for job in jobs]
    assert [result(row) for row in rows] == list(range(50))
    assert set(runs.values()) == {1}
    assert {row.attempt for row in rows} == {1}
    assert await running.drained() == 0
    assert store.failed > 0
    contents: dict[int, set[Turn]] = {}
    for turn in store.turns:
        contents.setdefault(turn.number, set()).add(turn)
    assert all(len(same) == 1 for same in contents.values())


@pytest.mark.row("B21")
@pytest.mark.parametrize("call", ["beat", "promote", "report", "retire", "listen", "count"])
async def test_a_lost_reply_of_any_other_call_has_no_effect(world: World, call: str) -> None:
    store, passed = faulty(world)
    store.lose.add(call)

    async def once(n: int) -> int:
        return n

    task = world.task(once)
    jobs = await world.put(*(world.new_job(task, n, delay=n % 2) for n in range(10)))
    assert await world.worker(store=passed, until_empty=True).end() == 0
    assert [result(await world.row(job)) for job in jobs] == list(range(10))


@pytest.mark.row("W4")
async def test_a_worker_declared_lost_fences_its_bodies_and_continues_with_a_new_id(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The jobs run again elsewhere or here. Outcomes of the old bodies are not reported."""
    ended = asyncio.Event()
    runs = 0

    async def waits() -> str:
        nonlocal runs
        runs += 1
        if runs > 1:
            return "second"
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            ended.set()
            raise
        return "first"

    job = await world.enqueue(world.task(waits))
    running = await world.worker().started()
    await world.until(job, State.RUNNING)
    old = running.worker.id
    assert (await give_up(world, old)).ready == (job,)
    final = await world.final(job)
    assert (result(final), final.attempt, runs) == ("second", 1, 2)
    assert ended.is_set()
    assert running.worker.id != old
    assert [a.outcome for a in await world.attempts(job)] == [Outcome.LOST]
    assert await running.drained() == 0
    assert "came too late" not in caplog.text


async def test_on_lost_causes_a_turn_at_once(world: World) -> None:
    """The reply of a heartbeat says that the worker is lost: it registers again and claims jobs."""

    async def one() -> int:
        return 1

    task = world.task(one)
    running = await world.worker().started()
    old = running.worker.id
    await give_up(world, old)
    running.worker.on_lost()

    async def renamed() -> bool | None:
        return True if running.worker.id != old else None

    await eventually(renamed, "a new id")
    assert result(await world.final(await world.enqueue(task))) == 1
    assert await running.drained() == 0


async def test_only_the_job_whose_lease_is_gone_is_fenced(world: World) -> None:
    """The store took one job away from the worker. The digest of the held jobs shows the difference."""
    gate, cancelled = asyncio.Event(), asyncio.Event()

    async def waits(n: int) -> int:
        try:
            await gate.wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return n

    task = world.task(waits)
    kept, gone = await world.put(world.new_job(task, 0), world.new_job(task, 1))
    running = await world.worker().started()
    await world.until(gone, State.RUNNING)
    turn_loop = running.worker._turn_loop
    assert turn_loop is not None

    async def put_off() -> bool | None:
        acks = (Ack.snoozed(turn_loop.held[gone].lease, delay=3600 * SECOND),)
        try:
            await world.store.turn(
                Turn(worker=turn_loop.environment.worker, number=turn_loop._number, seen=turn_loop._number, acks=acks)
            )
        except StoreConflict:  # the worker's own turn came first
            return None
        return True

    await eventually(put_off, "the job is put off")
    async with asyncio.timeout(LIMIT):
        await cancelled.wait()
    gate.set()
    assert result(await world.final(kept)) == 0
    assert await running.drained() == 0
    row = await world.row(gone)
    assert (row.state, [a.outcome for a in await world.attempts(gone)]) == (State.SCHEDULED, [Outcome.SNOOZED])


async def test_an_ack_that_cannot_be_stored_is_replaced_and_blocks_no_other_ack(world: World) -> None:
    store, passed = faulty(world)

    async def one(n: int) -> int:
        return n

    task = world.task(one, retries=5)
    jobs = await world.put(*(world.new_job(task, n) for n in range(10)))

    def spoil(turn: Turn) -> Turn:
        """The ack of one job says what no ack can say."""
        acks = tuple(replace(a, to=State.READY) if a.id == jobs[3] and a.result else a for a in turn.acks)
        return replace(turn, acks=acks)

    store.twist = spoil
    assert await world.worker(store=passed, until_empty=True).end() == 0
    rows = [await world.row(job) for job in jobs]
    assert [row.state for row in rows] == [State.SUCCEEDED] * 3 + [State.DEAD] + [State.SUCCEEDED] * 6
    assert (rows[3].reason, error(rows[3]).message) == (Reason.NOT_RETRYABLE, "the result cannot be stored")


async def test_a_worker_whose_turns_are_refused_takes_a_new_id(world: World) -> None:
    """Another process used the same id. After some tries the worker continues with a new id."""
    store, passed = faulty(world)

    async def one() -> int:
        return 1

    task = world.task(one)
    running = await world.worker(store=passed).started()
    old = running.worker.id
    stolen = Turn(worker=old, number=1_000_000, seen=999_999)
    await world.store.turn(stolen)

    async def renamed() -> bool | None:
        return True if running.worker.id != old else None

    await eventually(renamed, "a new id")
    assert result(await world.final(await world.enqueue(task))) == 1
    assert await running.drained() == 0
    assert len(store.turns) < 100


@pytest.mark.parametrize("error", [StoreUnavailable, StoreFull])
async def test_a_refused_turn_counts_as_a_try(world: World, error: type[StoreError]) -> None:
    """Otherwise the supervisor would take the worker for stuck. Its jobs run on."""
    store, passed = faulty(world)
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    job = await world.enqueue(world.task(work))
    running = await world.worker(store=passed).started()
    await world.until(job, State.RUNNING)
    store.error, store.refuse = error, "turn"
    board = running.worker._shared_state

    async def refused() -> bool | None:
        return store.failed >= 1 or None

    await eventually(refused, "a turn is refused")
    before = board.tried

    async def tried() -> bool | None:
        return board.tried > before or None

    await eventually(tried, "the board shows another try")
    store.refuse = ""
    gate.set()
    assert (await world.final(job)).state is State.SUCCEEDED
    assert await running.drained() == 0
