"""Drain and stop: finish, hand back without blame, flush, never hang."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from mainspring.errors import StoreUnavailable
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from mainspring.testing.contract.hands import bucket
from mainspring.worker.lease.shared_state import Phase
from mainspring.worker.records import Turn
from tests.jobs.test_claiming import faulty
from tests.jobs.world import SECOND, World, error, eventually, result


@pytest.mark.row("X1")
async def test_drain_finishes_running_jobs_and_claims_no_more(world: World) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    async def waits() -> str:
        begun.set()
        await gate.wait()
        return "finished"

    task = world.task(waits)
    first = await world.enqueue(task)
    running = await world.worker().started()
    await begun.wait()
    running.worker.drain()
    second = await world.enqueue(task)
    gate.set()
    assert await running.end() == 0
    assert result(await world.row(first)) == "finished"
    assert (await world.row(second)).state is State.READY
    assert running.worker._shared_state.phase == Phase.DONE
    assert running.worker.id not in {row.id for row in await world.store.workers()}


@pytest.mark.row("X2")
@pytest.mark.parametrize("how", ["drain", "stop"])
async def test_a_job_that_does_not_finish_is_handed_back_without_a_crash(world: World, how: str) -> None:
    """Async and thread bodies are ended. The exit code says whether the drain limit or a stop ended them."""
    begun = threading.Semaphore(0)

    async def on_loop() -> None:
        begun.release()
        await asyncio.sleep(20)

    def in_thread() -> None:
        begun.release()
        for _ in range(20_000):
            threading.Event().wait(0.001)

    jobs = [await world.enqueue(world.task(fn)) for fn in (on_loop, in_thread)]
    running = await world.worker(drain=SECOND // 10).started()
    for _ in jobs:
        assert await asyncio.to_thread(begun.acquire, True, 20)
    code = await (running.drained() if how == "drain" else running.stopped())
    assert code == (3 if how == "drain" else 4)
    for job in jobs:
        row = await world.row(job)
        assert (row.state, row.attempt) == (State.READY, 0)
        assert [a.outcome for a in await world.attempts(job)] == [Outcome.INTERRUPTED]


@pytest.mark.row("X3")
async def test_a_stop_during_a_drain_does_not_wait_for_its_limit(world: World) -> None:
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.sleep(20)

    job = await world.enqueue(world.task(waits))
    running = await world.worker(drain=3600 * SECOND).started()
    await begun.wait()
    running.worker.drain()
    assert await running.stopped() == 4
    assert (await world.row(job)).state is State.READY


@pytest.mark.row("X3")
async def test_a_thread_that_does_not_end_does_not_block_the_stop(world: World) -> None:
    """Without a supervisor its job is handed back at the end. With a supervisor the supervisor handles the job."""
    release, begun = threading.Event(), threading.Semaphore(0)

    def stubborn() -> None:
        begun.release()
        while not release.is_set():
            try:
                release.wait(20)
            except BaseException:  # noqa: BLE001 - the rude handler that this test is about
                continue

    task = world.task(stubborn)
    for supervised, state in ((False, State.READY), (True, State.RUNNING)):
        job = await world.enqueue(task)
        running = await world.worker(supervised=supervised, grace=SECOND // 5).started()
        assert await asyncio.to_thread(begun.acquire, True, 20)
        assert await running.stopped() == 4
        assert (await world.row(job)).state is state
        if not supervised:
            from mainspring.jobs.query import Query
            from mainspring.states import Action

            await world.store.act(Action.CANCEL, Query.of(job))
    release.set()


@pytest.mark.row("X3")
async def test_a_store_that_is_away_does_not_block_the_stop(world: World) -> None:
    """The flush of the last acks has its own limit. The jobs are rescued after the lease."""
    store, passed = faulty(world)
    begun = asyncio.Event()

    async def waits() -> None:
        begun.set()
        await asyncio.sleep(20)

    await world.enqueue(world.task(waits))
    running = await world.worker(store=passed, grace=SECOND // 5).started()
    await begun.wait()
    store.down = True
    assert await running.stopped() == 4


@pytest.mark.row("W6")
async def test_an_ack_early_job_that_began_is_dead_after_a_stop(world: World) -> None:
    begun = asyncio.Event()

    async def once() -> None:
        begun.set()
        await asyncio.sleep(20)

    job = await world.enqueue(world.task(once, early=True, retries=5))
    running = await world.worker().started()
    await begun.wait()
    assert await running.stopped() == 4
    row = await world.row(job)
    assert (row.state, row.reason) == (State.DEAD, Reason.NOT_RETRYABLE)
    assert "worker stopped" in error(row).message


@pytest.mark.row("W6")
async def test_claims_ahead_are_returned_at_drain(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, and not after the running jobs have finished or the drain limit has passed."""
    monkeypatch.setattr("mainspring.worker.run.dispatch.UNUSED_AFTER", 3600.0)
    gate, begun = asyncio.Event(), asyncio.Event()

    async def short() -> None:
        return None

    async def long() -> None:
        begun.set()
        await gate.wait()

    first, second = world.task(short), world.task(long)
    await world.put(*(world.new_job(first) for _ in range(40)))
    jobs = await world.put(*(world.new_job(second) for _ in range(20)))
    running = await world.worker(async_slots=1, thread_slots=0).started()
    await begun.wait()
    running.worker.drain()
    rows = [await world.until(job, State.READY) for job in jobs[1:]]
    assert {row.attempt for row in rows} == {0}
    gate.set()
    assert await running.end() == 0
    assert (await world.row(jobs[0])).state is State.SUCCEEDED


@pytest.mark.row("X3")
async def test_a_worker_that_waits_for_its_store_can_be_stopped(world: World) -> None:
    store, passed = faulty(world)
    running = world.worker(store=passed, grace=SECOND // 5)
    store.down = True

    async def waits() -> bool | None:
        return True if store.failed > 1 or running.task.done() else None

    await eventually(waits, "the store was asked")
    store_open_failed = running.task.done()
    assert not store_open_failed or isinstance(running.task.exception(), StoreUnavailable)
    if not store_open_failed:
        assert await running.drained() == 0


async def test_claims_that_arrive_after_the_drain_began_are_returned_unstarted(world: World) -> None:
    ran: list[int] = []

    async def one() -> None:
        ran.append(1)

    store, passed = faulty(world)
    jobs = await world.put(*(world.new_job(world.task(one)) for _ in range(5)))

    def drain_meanwhile(turn: Turn) -> Turn:
        if turn.wants:
            assert running.worker._drain is not None
            running.worker._drain.drain()
        return turn

    store.twist = drain_meanwhile
    running = world.worker(store=passed)
    assert await running.end() == 0
    assert ran == []
    assert [((await world.row(job)).state, (await world.row(job)).attempt) for job in jobs] == [(State.READY, 0)] * 5


async def test_a_drain_before_the_start_is_obeyed(world: World) -> None:
    running = world.worker()
    running.worker.drain()
    assert await running.end() == 0


@pytest.mark.row("B22")
async def test_a_low_lease_ends_guarded_bodies_only(world: World) -> None:
    """Strict and limited jobs are handed back without a crash, started jobs with early ack are dead, ordinary jobs
    run on.
    """
    gate, begun = asyncio.Event(), threading.Semaphore(0)

    async def ordinary() -> str:
        begun.release()
        await gate.wait()
        return "finished"

    async def strict() -> None:
        begun.release()
        if begun_before:
            return
        begun_before.append(1)
        await asyncio.sleep(20)

    async def early() -> None:
        begun.release()
        await asyncio.sleep(20)

    async def limited() -> None:
        begun.release()
        if not begun_limited:
            begun_limited.append(1)
            await asyncio.sleep(20)

    begun_before: list[int] = []
    begun_limited: list[int] = []
    plain = await world.enqueue(world.task(ordinary))
    fenced = await world.enqueue(world.task(strict, strict=True))
    once = await world.enqueue(world.task(early, early=True))
    sharing = await world.enqueue(world.task(limited), buckets=(bucket("gate", 1),))
    running = await world.worker().started()
    for _ in range(4):
        assert await asyncio.to_thread(begun.acquire, True, 20)
    running.worker.on_lease_low()
    dead = await world.final(once)
    again = await world.final(fenced)
    assert (dead.state, dead.reason, error(dead).type) == (
        State.DEAD,
        Reason.NOT_RETRYABLE,
        "mainspring.errors.Fenced",
    )
    assert (again.state, again.attempt) == (State.SUCCEEDED, 1)
    assert [a.outcome for a in await world.attempts(fenced)] == [Outcome.INTERRUPTED]
    assert (await world.final(sharing)).state is State.SUCCEEDED
    assert [a.outcome for a in await world.attempts(sharing)] == [Outcome.INTERRUPTED]
    assert (await world.row(plain)).state is State.RUNNING
    gate.set()
    assert result(await world.final(plain)) == "finished"
    assert await world.attempts(plain) == []
    assert await running.drained() == 0


async def test_a_stop_after_the_end_has_no_effect(world: World) -> None:
    """The worker ended by itself, and its shared state is gone."""
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: troubles.append(context))
    running = world.worker(until_empty=True)
    assert await running.end() == 0
    running.worker._shared_state.close()
    running.worker.drain()
    running.worker.stop()
    await asyncio.sleep(0)
    assert troubles == []
