"""What a worker does once its store answers again, and what others can see while only its turns fail."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.cli.control.workers import worker_table
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.launch.services import build_services
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, lease, one, state
from mainspring.worker.lease.heartbeat_thread import HeartbeatThread
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.loop import turn_loop
from mainspring.worker.loop.turn_loop import TurnLoop
from mainspring.worker.manager import WorkerInfo
from mainspring.worker.records import Turn
from mainspring.worker.retry_log import Outage
from mainspring.worker.run.attempt import RunEnvironment
from mainspring.worker.supervise import kill_rules
from mainspring.worker.worker import Worker
from tests.jobs.faulty import FaultyStore
from tests.jobs.test_claiming import faulty
from tests.jobs.test_poll import WakesNobody
from tests.jobs.world import SECOND, Running, World, eventually, result


async def test_after_a_failed_turn_the_worker_sends_its_leases_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would send them after thirty years in this test, which is longer than any machine has run."""
    monkeypatch.setattr(turn_loop, "ORDERS_EVERY", 1e9)
    store, passed = faulty(world)
    gate = asyncio.Event()

    async def waits() -> None:
        await gate.wait()

    job = await world.enqueue(world.task(waits))
    running = await world.worker(store=passed, poll=3600 * SECOND).started()
    row = await world.until(job, State.RUNNING)
    inner = running.worker._turn_loop
    assert inner is not None

    async def held_here() -> bool | None:
        return bool(inner.held) or None

    await eventually(held_here, "the reply that brought the job is heard")  # so the lost one is that of a later turn
    store.lose.add("turn")
    inner.turn_now()

    async def asked() -> Turn | None:
        return next((turn for turn in store.turns if turn.holds and turn.number > 2), None)

    held = await eventually(asked, "a turn that names the leases")
    assert held.holds == ((job, row.token),)
    gate.set()
    await world.final(job)
    assert await running.drained() == 0


async def test_after_an_outage_the_worker_finds_jobs_whose_wake_up_was_lost(world: World) -> None:
    """No wake-up arrives, and the poll interval is an hour."""
    store: Any = FaultyStore(cast("Store", WakesNobody(world.store)))

    async def one() -> int:
        return 1

    task = world.task(one)
    running = await world.worker(store=store, poll=3600 * SECOND).started()
    inner = running.worker._turn_loop
    assert inner is not None

    async def out_of_work() -> bool | None:
        return inner.is_out_of_work or None

    await eventually(out_of_work, "nothing is left to ask for")
    job = await world.enqueue(task)
    store.lose.add("turn")
    inner.turn_now()
    assert result(await world.final(job)) == 1
    assert await running.drained() == 0


async def test_a_worker_with_heartbeats_but_without_turns_reports_claiming_false(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault-17: the connection of its turns is cut, and that of its heartbeats is not."""
    monkeypatch.setattr(kill_rules, "SLOWEST_TURNS", 0.0)
    store: Any = FaultyStore(world.store)
    app, board = Mainspring(world.url), SharedState.create(256)
    parts = app.parts(lease="3s", poll="100ms")
    beater = functools.partial(HeartbeatThread, parts.store, settings=parts.settings, shared_state=board)
    running = Running(Worker(parts, store, shared_state=board, services=build_services, heartbeats=beater))
    world.running.append(running)
    await running.started()

    def says(claiming: bool) -> Callable[[], Awaitable[WorkerInfo | None]]:
        async def look() -> WorkerInfo | None:
            (info,) = await app.workers.alist()
            return info if info.claiming is claiming else None

        return look

    assert "not claiming" not in str(worker_table([await eventually(says(True), "it claims")]).rows)
    store.refuse = "turn"
    cut_off = await eventually(says(False), "it says that it claims nothing")
    assert not cut_off.lost
    assert "not claiming" in str(worker_table([cut_off]).rows)
    store.refuse = ""
    await eventually(says(True), "it says that it claims again")
    assert await running.drained() == 0
    await app.aclose()
    board.close()


@pytest.mark.parametrize("trouble", [True, False])
async def test_a_job_whose_ack_a_restored_store_lost_runs_again(
    world: World, monkeypatch: pytest.MonkeyPatch, trouble: bool
) -> None:
    """The ack was confirmed, and then the store went back to an earlier state: a failover, or a restored backup."""
    monkeypatch.setattr(turn_loop, "RESYNC_EVERY", 1e9 if trouble else 0.2)
    store: Any = FaultyStore(world.store)
    forgotten: list[bytes] = []
    runs = 0

    def forget(turn: Turn) -> Turn:
        if forgotten or not turn.acks:
            return turn
        forgotten.extend(ack.id for ack in turn.acks)
        return replace(turn, acks=())

    async def one() -> int:
        nonlocal runs
        runs += 1
        return runs

    store.twist = forget
    task = world.task(one)
    running = await world.worker(store=store).started()
    job = await world.enqueue(task)

    inner = running.worker._turn_loop
    assert inner is not None

    async def set_back() -> bool | None:
        return (forgotten and inner.is_empty) or None

    await eventually(set_back, "the worker believes that its ack was stored")
    if trouble:
        store.lose.add("turn")
    found = await world.final(job)
    assert (result(found), runs, found.attempt) == (2, 2, 1)
    assert await running.drained() == 0


async def test_an_end_that_another_thread_stores_at_this_moment_does_not_fence_the_job(world: World) -> None:
    """The heartbeat thread has stored the end, and its answer comes after the reply of the loop's turn, which says that
    the lease is not valid any more. The job is not with another worker: hooks and the log must get its end.
    """
    store = world.store
    made, hand = await one(store), await Hand(store).join()
    claim = await hand.take_one()
    loop = TurnLoop(
        store, cast("Any", None), cast("Any", None), RunEnvironment(""), Outage(logging.getLogger()),
        register=cast("Any", None), due_soon=lambda _: None,
    )  # fmt: skip
    loop.environment.worker, loop._number = hand.name, hand.number
    ack, taken_away = Ack.succeeded(lease(claim)), Lease(new_id().bytes, 1)
    repeated = loop.repeat_with_acks([ack])
    assert repeated is not None
    unread = await store.turn(repeated)
    assert await state(store, made) is State.SUCCEEDED
    following = Turn(worker=hand.name, number=hand.number + 1, seen=hand.number, holds=(ack.lease, taken_away))
    answer = await loop._sender.send(following)
    assert answer.reply.gone == (taken_away,)
    loop.record_saved(repeated, unread)
    assert loop.repeat_with_acks([ack]) is None, "the store has it"
    last = await loop._sender.send(
        replace(following, number=hand.number + 2, seen=hand.number + 1, acks=(ack,), holds=None)
    )
    assert last.reply.stale == ()
    assert not loop._sender.saved
    assert not loop._sender.sending
