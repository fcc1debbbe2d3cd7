"""Opening, closing, migrating; namespaces; the durability class."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.errors import StoreUnavailable
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, bucket, job, lease, one, put_in, row, running, state

__all__ = ["TestNamespaces", "TestOpenAndMigrate"]


@pytest.mark.asyncio
class TestOpenAndMigrate:
    async def test_open_can_be_called_twice(self, store: Store) -> None:
        """The second call must not raise, and the store still works."""
        await store.open()
        await one(store)

    async def test_close_can_be_called_twice(self, second_store: Store) -> None:
        """The second call must not raise."""
        await second_store.close()
        await second_store.close()

    async def test_after_close_every_call_is_unavailable(self, store: Store, second_store: Store) -> None:
        await second_store.close()
        with pytest.raises(StoreUnavailable):
            await one(second_store)
        with pytest.raises(StoreUnavailable):
            await second_store.count(Query.everything())
        await one(store)

    async def test_jobs_outlive_the_client_that_enqueued_them(self, store: Store, second_store: Store) -> None:
        made = await one(second_store)
        await second_store.close()
        assert await state(store, made) == State.READY

    async def test_migrating_again_changes_nothing(self, store: Store) -> None:
        made = await one(store)
        before, after = await store.migrate()
        assert before == after
        assert await state(store, made) == State.READY

    async def test_two_clients_may_migrate_at_once(self, store: Store, second_store: Store) -> None:
        assert await store.migrate() == await second_store.migrate()

    async def test_the_durability_class_can_be_read(self, store: Store) -> None:
        said = await store.durability()
        assert said.startswith(f"{store.engine}:")

    async def test_two_clients_see_the_same(self, store: Store, second_store: Store) -> None:
        made = await one(store)
        assert await row(second_store, made) == await row(store, made)


@pytest.mark.asyncio
class TestNamespaces:
    async def test_jobs_of_another_namespace_are_not_there(self, store: Store, elsewhere: Store) -> None:
        """The same id may live in both."""
        made = await one(store)
        assert (await elsewhere.find(Query(ids=(made.id,)))).jobs == ()
        assert sum((await elsewhere.count(Query.everything())).values()) == 0
        assert await put_in(elsewhere, job(id=made.id, priority=9), retry=True) == [Enqueued(made.id, True)]
        assert (await row(store, made)).priority == 0

    async def test_no_call_changes_jobs_of_another_namespace(
        self, store: Store, elsewhere: Store, clock: MovableClock
    ) -> None:
        ready, later = await one(store), await one(store, job(delay=5))
        hand = await Hand(elsewhere).join()
        assert await hand.take(5) == ()
        assert (await elsewhere.act(Action.CANCEL, Query(ids=(ready.id,)))).done == ()
        clock.advance("1s")
        assert (await elsewhere.promote()).promoted == 0
        assert await state(store, later) == State.SCHEDULED

    async def test_namespaces_have_separate_workers(self, store: Store, elsewhere: Store) -> None:
        hand, claim = await running(store)
        assert await elsewhere.workers() == []
        assert not (await elsewhere.rescue(hand.name, hand.beats, Outcome.LOST)).taken
        assert await state(store, claim) == State.RUNNING
        stranger = Hand(elsewhere)
        stranger.name = hand.name
        assert not await stranger.beat()

    async def test_namespaces_have_separate_buckets(self, store: Store, elsewhere: Store) -> None:
        gate = bucket("gate", 1)
        for place in (store, elsewhere):
            await one(place, job(buckets=[gate]))
        here, there = await Hand(store).join(), await Hand(elsewhere).join()
        assert len(await here.take(5)) == len(await there.take(5)) == 1

    async def test_a_token_of_another_namespace_is_stale(self, store: Store, elsewhere: Store) -> None:
        hand, claim = await running(store)
        await one(elsewhere, job(id=claim.id))
        stranger = await Hand(elsewhere).join()
        said = await stranger.turn(Ack.succeeded(lease(claim)))
        assert said.stale == ((claim.id, claim.token),)
        assert await state(store, claim) == State.RUNNING
        await hand.succeed(claim)
