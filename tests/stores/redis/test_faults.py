"""A server that is stopped, full, restarted or without its scripts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import redis.asyncio

from mainspring.errors import StoreFull, StoreUnavailable
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptReport, JobBatch, LogLine
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.testing import servers
from mainspring.testing.contract.hands import LANE, Hand, ids, job, lease, one, put_in, row, running, state
from mainspring.worker.records import Want

from .conftest import MakeStore

HURRY = 0.3


@asynccontextmanager
async def full(client: redis.asyncio.Redis) -> AsyncIterator[None]:
    """The server at its maxmemory."""
    await client.config_set("maxmemory", "1mb")
    try:
        yield
    finally:
        await client.config_set("maxmemory", "0")


class TestFrozen:
    async def test_a_stall_of_the_server_rescues_no_live_worker(
        self, own_server: servers.Valkey, own_store: Door
    ) -> None:
        """The heartbeat was sent into the stall, and its sender cancelled the call. It counts after the stall, and
        the rescue fails.
        """
        hand = await Hand(own_store).join()
        await put_in(own_store, *(job() for _ in range(8)))
        claims = await hand.take(8)
        seen, hurried = hand.beats, Hand(Door(own_store.inner, deadline=HURRY))
        hurried.name = hand.name
        own_server.freeze()
        try:
            with pytest.raises(StoreUnavailable):
                await hurried.beat()
        finally:
            own_server.thaw()
        async with asyncio.timeout(30):
            while (await own_store.workers())[0].number == seen:  # the server will read what lies in its socket
                pass
        assert not (await own_store.rescue(hand.name, seen, Outcome.LOST)).taken
        assert (await hand.turn(holds=claims)).gone == ()
        await hand.succeed(*claims)

    async def test_beat_and_rescue_both_sent_into_the_stall(
        self, own_server: servers.Valkey, own_store: Door, make_store: MakeStore
    ) -> None:
        """The server applies the call that it reads first; the other call fails."""
        other = make_store(own_server.url)
        await other.open()
        hand, claim = await running(own_store)
        own_server.freeze()
        beat = asyncio.create_task(hand.beat())
        rescue = asyncio.create_task(other.rescue(hand.name, hand.beats, Outcome.LOST))
        await asyncio.sleep(0)
        own_server.thaw()
        alive, said = await beat, await rescue
        assert alive is not said.taken
        assert await state(own_store, claim) == (State.RUNNING if alive else State.READY)
        await other.close()


class TestFull:
    async def test_a_full_server_refuses_enqueue_and_keeps_nothing_of_it(
        self, own_store: Door, own_client: redis.asyncio.Redis
    ) -> None:
        jobs = job(), job(delay=1_000_000), job(record=b"x" * 1000)
        async with full(own_client):
            with pytest.raises(StoreFull):
                await put_in(own_store, *jobs)
            with pytest.raises(StoreFull):
                own_store.enqueue_now(JobBatch(id=jobs[0].id, jobs=jobs))
            assert (await own_store.find(Query.everything())).jobs == ()
        assert all(each.created for each in await put_in(own_store, *jobs, retry=True))

    async def test_a_full_server_finishes_running_jobs(self, own_store: Door, own_client: redis.asyncio.Redis) -> None:
        """Acks, heartbeats, cancel orders and rescues work. No job is claimed."""
        jobs = [job() for _ in range(6)]
        child = job(after=jobs[:1])
        await put_in(own_store, *jobs, child)
        hand, lost = await Hand(own_store).join(), await Hand(own_store).join()
        first, second, third = await hand.take(3)
        (theirs,) = await lost.take(1)
        async with full(own_client):
            assert await hand.beat()
            said = await hand.turn(
                Ack.succeeded(lease(first), b"result"),
                Ack.failed(lease(second), b"{}", retry_in=0),
                wants=[Want((LANE,), 5)],
            )
            assert (said.claims, said.stale, said.already, said.full) == ((), (), (), True)
            asked = await hand.turn(wants=[Want((LANE,), 5)])  # nothing to report, a slot is free: no error either
            assert (asked.claims, asked.full) == ((), True)
            report = AttemptReport(
                id=third.id, token=third.token, progress=b"1", logs=(LogLine(1, "INFO", "x"),), items=((1, b"x"),)
            )
            assert await own_store.report(hand.name, [report]) == [True]
            await own_store.act(Action.CANCEL, Query(ids=(third.id,)))
            told = await hand.turn()
            assert ([order.id for order in told.orders], told.full) == ([third.id], False)
            assert (await own_store.promote()).promoted == 1
            assert (await own_store.rescue(lost.name, lost.beats, Outcome.LOST)).ready == (theirs.id,)
            assert (await own_store.retire(hand.name, Outcome.INTERRUPTED)).cancelled == (third.id,)
        assert [await state(own_store, each) for each in (first, second, third, theirs)] == [
            State.SUCCEEDED,
            State.READY,
            State.CANCELLED,
            State.READY,
        ]
        assert (await row(own_store, first)).result == b"result"
        assert await state(own_store, child) == State.READY


class TestScripts:
    async def test_scripts_are_sent_again_after_script_flush(
        self, own_store: Door, own_client: redis.asyncio.Redis
    ) -> None:
        await own_client.script_flush()
        made = await one(own_store)
        await own_client.script_flush()
        assert not own_store.enqueue_now(JobBatch(id=made.id, jobs=(made,)))[0].created
        hand = await Hand(own_store).join()
        assert ids(await hand.take(5)) == [made.id]


async def test_a_restart_loses_nothing_that_was_confirmed(make_store: MakeStore) -> None:
    """With an append-only file synced at each write: kill -9 of the server, and everything is where it was."""
    with servers.valkey(own=True, durable=True) as server:
        assert isinstance(server, servers.Valkey)
        store = make_store(server.url)
        await store.open()
        assert await store.durability() == "redis:aof-always"
        hand, claim = await running(store)
        waiting = await one(store)
        server.kill()
        with pytest.raises(StoreUnavailable):
            await store.workers()
        server.start()
        assert await hand.beat()
        await hand.succeed(claim)
        assert ids(await hand.take(5)) == [waiting.id]
        await store.close()
