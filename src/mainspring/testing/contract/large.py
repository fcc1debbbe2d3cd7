"""Large records: a turn is bounded in bytes as the engine needs it, and nothing is lost or late for it."""

from __future__ import annotations

import pytest

from mainspring.stores.base import Store
from mainspring.worker.records import Claim, Want

from .hands import LANE, Hand, bucket, ids, job, put_in

__all__ = ["TestLarge"]


@pytest.mark.asyncio
class TestLarge:
    async def test_they_come_whole_and_in_order(self, store: Store) -> None:
        """However many bytes there are; a store that gives fewer than were wanted for their sake says so."""
        sizes = [10, 900_000, 70_000, 700, 400_000] * 3
        jobs = [job(record=bytes([65 + n]) * size) for n, size in enumerate(sizes)]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        claims: list[Claim] = []
        more = True
        while more:
            said = await hand.turn(wants=[Want((LANE,), 20)])
            again = await hand.repeat()
            assert (again.claims, again.more) == (said.claims, said.more)
            claims += said.claims
            more = said.more
        assert [(claim.id, claim.record) for claim in claims] == [(each.id, each.record) for each in jobs]

    async def test_from_several_lanes(self, store: Store) -> None:
        """By priority over all lanes, also where bytes end the turn; those with a limit keep to it."""
        gate = bucket("gate", 3)
        jobs = [
            job(
                record=b"x" * 500_000,
                priority=9 - n,
                buckets=[gate] if n % 3 == 0 else (),
                kind="any" if n % 2 else "async",
            )
            for n in range(9)
        ]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        claims: list[Claim] = []
        more = True
        while more:
            said = await hand.turn(wants=[Want((LANE, "q/async"), 20, 1)])
            claims += said.claims
            more = said.more
        assert ids(claims) == ids(jobs)

    async def test_leases_that_are_named_need_not_come_again(self, store: Store) -> None:
        """After trouble a worker asks for all that it holds: what it has not heard of comes, whole."""
        known, unknown = job(record=b"k" * 300_000), job(record=b"u" * 300_000)
        await put_in(store, known)
        hand = await Hand(store).join()
        held = await hand.take(1)
        await put_in(store, unknown)
        await hand.take(1)
        hand.seen = 0
        said = await hand.turn(holds=held)
        assert [claim.record for claim in said.claims if claim.id != known.id] == [unknown.record]
        assert not said.gone
