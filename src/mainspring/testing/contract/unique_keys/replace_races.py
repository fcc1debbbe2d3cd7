"""Concurrent enqueues under one key, and claims."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.jobs.query import Query
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, put_in, row

from .replace import MODES, KeyMode, latest, living, said

__all__ = ["TestReplaceRaces"]


@pytest.mark.asyncio
class TestReplaceRaces:
    @pytest.mark.parametrize("mode", MODES)
    async def test_a_hundred_replacing_producers_make_one_job(
        self, store: Store, second_store: Store, mode: KeyMode
    ) -> None:
        jobs = [latest(mode, record=b"%d" % n) for n in range(100)]
        places = [store, second_store] * 50
        replies = await asyncio.gather(*(said(place, each) for place, each in zip(places, jobs, strict=True)))
        assert sum(each.created for each in replies) == 1
        (holder,) = {each.id for each in replies}
        assert sum((await store.count(Query.everything())).values()) == 1
        assert (await row(store, holder)).record in {each.record for each in jobs}

    @pytest.mark.parametrize("mode", MODES)
    async def test_the_last_arguments_run_when_a_claim_races(
        self, store: Store, second_store: Store, mode: KeyMode
    ) -> None:
        """Workers claim while producers enqueue: the arguments of the last enqueue run last."""
        hand = await Hand(second_store).join()
        ran: list[bytes] = []

        async def work(until: asyncio.Event) -> None:
            while not until.is_set() or await living(store):
                await second_store.act(Action.RUN_NOW, Query(states=(State.SCHEDULED,)))
                for claim in await hand.take(9):
                    ran.append(claim.record)
                    await hand.succeed(claim)

        done = asyncio.Event()
        worker = asyncio.create_task(work(done))
        for n in range(40):
            await put_in(store, latest(mode, window=1, record=b"%d" % n))
        done.set()
        await asyncio.wait_for(worker, 60)
        assert ran[-1] == b"39"
        assert ran == sorted(ran, key=int)
        assert len(set(ran)) == len(ran)
