"""Large records: a turn has a bound in bytes where the engine needs one, and no job is lost or late."""

from __future__ import annotations

import pytest

from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, Hand, bucket, ids, job, put_in
from mainspring.worker.records import Claim, Want

__all__ = ["TestLargeRecords"]


@pytest.mark.asyncio
class TestLargeRecords:
    async def test_large_records_arrive_whole_and_in_order(self, store: Store) -> None:
        """However many bytes they have; a store that gives fewer claims because of them sets ``more``."""
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

    async def test_large_records_of_several_lanes(self, store: Store) -> None:
        """By priority over all lanes, also where the bytes end the turn; limited jobs keep to their limits."""
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
            said = await hand.turn(wants=[Want((LANE, "q/async"), 20)])
            claims += said.claims
            more = said.more
        assert ids(claims) == ids(jobs)

    async def test_claims_of_an_unread_reply_arrive_whole(self, store: Store) -> None:
        """After an outage a worker sends all its leases. The claims that it never received arrive whole."""
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
