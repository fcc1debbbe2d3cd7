"""Stream items: each has a number, and only the owner of a valid lease stores one."""

from __future__ import annotations

import pytest

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptReport
from mainspring.states import Action
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, Hand, job, lease, one, running
from mainspring.worker.records import Claim

__all__ = ["TestStreamItems"]


async def send(hand: Hand, claim: Claim, *items: tuple[int, bytes]) -> bool:
    (stored,) = await hand.store.report(hand.name, [AttemptReport(id=claim.id, token=claim.token, items=items)])
    return stored


@pytest.mark.asyncio
class TestStreamItems:
    async def test_items_come_in_the_order_of_their_numbers(self, store: Store, second_store: Store) -> None:
        """Whatever the order of their arrival; the bytes may be anything."""
        hand, claim = await running(store)
        assert await send(hand, claim, (1, b""), (10, b"\x00\xff"))
        assert await send(hand, claim, (2, b'"two"'))
        assert await second_store.items(claim.id) == [(1, b""), (2, b'"two"'), (10, b"\x00\xff")]

    async def test_items_after_a_number(self, store: Store) -> None:
        hand, claim = await running(store)
        items = [(n, b"%d" % n) for n in range(1, 31)]
        await send(hand, claim, *items)
        assert await store.items(claim.id, limit=10) == items[:10]
        assert await store.items(claim.id, 10, limit=10) == items[10:20]
        assert await store.items(claim.id, 29) == items[29:]
        assert await store.items(claim.id, 30) == []
        assert await store.items(claim.id, limit=0) == []

    async def test_a_later_attempt_replaces_items_by_number(self, store: Store) -> None:
        hand, claim = await running(store)
        await send(hand, claim, (1, b"old"), (2, b"old"))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        again = await hand.take_one(f"{claim.queue}/any")
        assert await store.items(claim.id) == [(1, b"old"), (2, b"old")]
        await send(hand, again, (1, b"new"))
        assert await store.items(claim.id) == [(1, b"new"), (2, b"old")]

    async def test_a_repeated_report_changes_nothing(self, store: Store) -> None:
        hand, claim = await running(store)
        for _ in range(2):
            assert await send(hand, claim, (1, b"x"), (2, b"y"))
        assert await store.items(claim.id) == [(1, b"x"), (2, b"y")]

    async def test_items_of_an_ended_job_stay(self, store: Store) -> None:
        hand, claim = await running(store)
        await send(hand, claim, (1, b"x"))
        await hand.succeed(claim)
        assert await store.items(claim.id) == [(1, b"x")]

    async def test_items_without_a_valid_lease_are_refused(self, store: Store) -> None:
        """Neither of another worker, nor of the earlier owner, nor after the end."""
        old, claim = await running(store)
        thief = await Hand(store).join()
        assert not await send(thief, claim, (1, b"thief"))
        await store.rescue(old.name, old.beats, Outcome.LOST)
        retaken = await thief.take_one(f"{claim.queue}/any")
        assert await send(thief, retaken, (1, b"new"))
        assert not await send(old, claim, (1, b"old"), (2, b"old"))
        await thief.succeed(retaken)
        assert not await send(thief, retaken, (1, b"late"), (2, b"late"))
        assert await store.items(claim.id) == [(1, b"new")]

    async def test_a_retry_by_hand_begins_with_an_empty_stream(self, store: Store) -> None:
        hand, claim = await running(store)
        await send(hand, claim, (1, b"x"), (2, b"y"))
        await hand.succeed(claim)
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert await store.items(claim.id) == []

    async def test_delete_deletes_the_items(self, store: Store) -> None:
        hand, claim = await running(store)
        await send(hand, claim, (1, b"x"))
        await hand.succeed(claim)
        await store.act(Action.DELETE, Query(ids=(claim.id,)))
        await one(store, job(id=claim.id))
        assert await store.items(claim.id) == []

    async def test_items_of_an_unknown_job(self, store: Store) -> None:
        assert await store.items(b"\x01" * 16) == []
