"""The server is frozen for a while: no live worker is rescued."""

from __future__ import annotations

import asyncio
import os

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import State
from mainspring.stores.postgres import PostgresStore
from mainspring.testing import servers
from mainspring.testing.contract.hands import Hand, job, lease, put_in, state

FREEZE = float(os.environ.get("MAINSPRING_TEST_FREEZE", "3"))
"""Seconds that the server really stands still; 20 by hand or at night."""


async def test_a_heartbeat_sent_into_a_freeze_defeats_the_rescue() -> None:
    """The rescue compares numbers of heartbeats and not ages: by the store's clock all leases have ended, and no
    job is taken. The heartbeat was sent into the freeze and is applied first. The rescuer read the number before
    it, so its comparison fails.
    """
    with servers.postgres(own=True) as server:
        store, rescuer = PostgresStore(server.url), PostgresStore(server.url)
        await store.open()
        await store.migrate()
        await rescuer.open()
        await put_in(store, *(job() for _ in range(8)))
        hand = await Hand(store).join()
        claims = await hand.take(8)
        (seen,) = await rescuer.workers()

        server.freeze()
        beat = asyncio.create_task(hand.beat())
        done, _ = await asyncio.wait([beat], timeout=FREEZE)
        assert not done, "the server answered while it was frozen"
        server.thaw()

        assert await beat
        (now,) = await rescuer.workers()
        assert now.number == seen.number + 1
        said = await rescuer.rescue(seen.id, seen.number, Outcome.LOST)
        assert (said.taken, said.ready) == (False, ())
        assert [await state(store, claim) for claim in claims] == [State.RUNNING] * 8
        await hand.turn(*(Ack.succeeded(lease(claim)) for claim in claims))
        assert [await state(store, claim) for claim in claims] == [State.SUCCEEDED] * 8
        await store.close()
        await rescuer.close()


async def test_a_turn_sent_into_a_freeze_and_cancelled_is_repeated_safely() -> None:
    """The client reached its deadline, and the server committed later: the repeat returns the same claims."""
    with servers.postgres(own=True) as server:
        store = PostgresStore(server.url)
        await store.open()
        await store.migrate()
        await put_in(store, *(job() for _ in range(8)))
        hand = await Hand(store).join()

        server.freeze()
        turn = asyncio.create_task(hand.take(5))
        done, _ = await asyncio.wait([turn], timeout=0.5)
        assert not done, "the server is frozen"
        turn.cancel()
        server.thaw()
        await asyncio.wait([turn])

        again = await hand.repeat()
        assert len(again.claims) == 5
        (worker,) = await store.workers()
        assert worker.running == 5
        await store.close()
