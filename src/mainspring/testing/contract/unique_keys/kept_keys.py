"""Keys that are held after their job succeeded (``keep``), and the comparison of all arguments (``print``)."""

from __future__ import annotations

import asyncio
from typing import Literal
from uuid import UUID

import pytest

from mainspring.common.clock import MovableClock
from mainspring.errors import KeyConflict, KeyTaken
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, Enqueued, NewJob, Retention, UniqueKey
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, MINUTE, Hand, gone, job, lease, one, put_in, row, running, state

__all__ = ["TestKeptKeys", "TestPrints"]

KEY = b"k" * 16
ONE, TWO = b"1" * 16, b"2" * 16


def kept(
    fingerprint: bytes = ONE,
    *,
    keep: int = HOUR,
    conflict: Literal["return", "error"] = "return",
    own: int | None = None,
    expires_in: int | None = None,
    key: bytes = KEY,
) -> NewJob:
    return job(unique=UniqueKey(key, 0, conflict, keep=keep, print=fingerprint), keep=own, expires_in=expires_in)


@pytest.mark.asyncio
class TestKeptKeys:
    async def test_a_kept_key_answers_until_its_time_is_over(self, store: Store, clock: MovableClock) -> None:
        """The time counts from the end of the job, not from its enqueue."""
        hand, claim = await running(store, first := kept())
        clock.advance("3h")
        assert await put_in(store, kept()) == [Enqueued(first.id, False)]
        await hand.turn(Ack.succeeded(lease(claim), b'"well"'))
        clock.advance("59m")
        assert await put_in(store, kept()) == [Enqueued(first.id, False)]
        assert (await row(store, first)).result == b'"well"'
        clock.advance("2m")
        second = kept(TWO)
        assert await put_in(store, second) == [Enqueued(second.id, True)]

    @pytest.mark.parametrize("end", ["dead", "cancelled", "expired", "deleted"])
    async def test_any_end_but_success_releases_the_key_at_once(
        self, store: Store, clock: MovableClock, end: str
    ) -> None:
        first = await one(store, kept(expires_in=MINUTE if end == "expired" else None))
        if end == "dead":
            hand = await Hand(store).join()
            await hand.kill(await hand.take_one())
        elif end == "expired":
            clock.advance("2m")
        else:
            await store.act(Action.CANCEL if end == "cancelled" else Action.DELETE, Query(ids=(first.id,)))
        second = kept(TWO)
        assert await put_in(store, second) == [Enqueued(second.id, True)]

    @pytest.mark.parametrize("own", [None, 1])
    async def test_the_job_of_a_kept_key_is_not_pruned(
        self, store: Store, clock: MovableClock, own: int | None
    ) -> None:
        """Whatever its own retention is; then the job is deleted, and nothing remains."""
        hand, claim = await running(store, kept(own=own, keep=50 * HOUR))
        await hand.succeed(claim)
        retention = Retention(keep=MINUTE, keep_count=0, keep_at_least=0)
        clock.advance("49h")
        assert await store.prune(retention) == 0
        assert await put_in(store, kept()) == [Enqueued(claim.id, False)]
        clock.advance("2h")
        assert await store.prune(retention) == 1
        assert await gone(store, claim)
        assert (await put_in(store, kept(TWO)))[0].created

    async def test_a_dead_job_is_pruned_by_its_retention(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, kept(keep=50 * HOUR))
        await hand.kill(claim)
        clock.advance("2h")
        assert await store.prune(Retention(keep_dead=HOUR)) == 1

    async def test_a_kept_key_can_raise_key_taken(self, store: Store) -> None:
        hand, claim = await running(store, kept(conflict="error"))
        await hand.succeed(claim)
        with pytest.raises(KeyTaken) as taken:
            await put_in(store, kept(conflict="error"))
        assert taken.value.holder.bytes == claim.id

    async def test_a_job_retried_by_hand_keeps_its_key_again(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, kept())
        await hand.kill(claim)
        assert (await store.act(Action.RETRY, Query(ids=(claim.id,)))).done == (claim.id,)
        assert await put_in(store, kept()) == [Enqueued(claim.id, False)]
        with pytest.raises(KeyConflict):
            await put_in(store, kept(TWO))
        await hand.succeed(await hand.take_one())
        clock.advance("59m")
        assert await put_in(store, kept()) == [Enqueued(claim.id, False)]

    async def test_a_job_is_not_retried_while_another_holds_its_key(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, kept())
        await hand.kill(claim)
        second = await one(store, kept(TWO))
        await hand.succeed(await hand.take_one())
        assert (await store.act(Action.RETRY, Query(ids=(claim.id,)))).held == ((claim.id, second.id),)
        assert await store.act(Action.RETRY, Query(states=(State.DEAD,))) == ActResult()
        clock.advance("2h")
        assert (await store.act(Action.RETRY, Query(states=(State.DEAD,)))).done == (claim.id,)
        assert await put_in(store, kept()) == [Enqueued(claim.id, False)]
        await hand.succeed(await hand.take_one())
        assert (await put_in(store, kept(TWO)))[0].created


@pytest.mark.asyncio
class TestPrints:
    async def test_other_arguments_are_refused_while_the_key_is_held(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, kept())
        for _ in range(2):
            plain, other = job(), kept(TWO)
            with pytest.raises(KeyConflict) as refused:
                await put_in(store, plain, other)
            assert (refused.value.holder, refused.value.job) == (UUID(bytes=claim.id), UUID(bytes=other.id))
            assert [await gone(store, each) for each in (plain, other)] == [True] * 2
            assert await state(store, claim) in (State.RUNNING, State.SUCCEEDED)
            if await state(store, claim) == State.RUNNING:
                await hand.succeed(claim)
        clock.advance("2h")
        assert (await put_in(store, kept(TWO)))[0].created

    async def test_other_arguments_in_one_batch_are_refused(self, store: Store) -> None:
        first, same, aside = kept(), kept(), kept(TWO, key=b"o" * 16)
        with pytest.raises(KeyConflict) as refused:
            await put_in(store, first, kept(TWO))
        assert refused.value.holder.bytes == first.id
        assert await gone(store, first)
        said = await put_in(store, first, same, aside)
        assert said == [Enqueued(first.id, True), Enqueued(first.id, False), Enqueued(aside.id, True)]

    async def test_a_repeat_returns_its_own_job(self, store: Store) -> None:
        made = await one(store, kept())
        for retry in (True, False):
            assert await put_in(store, made, retry=retry) == [Enqueued(made.id, False)]

    async def test_a_hundred_producers_with_one_print_make_one_job(self, store: Store, second_store: Store) -> None:
        jobs = [kept() for _ in range(100)]
        places = [store, second_store] * 50
        said = await asyncio.gather(*(put_in(place, each) for place, each in zip(places, jobs, strict=True)))
        assert sum(each.created for (each,) in said) == 1
        assert len({each.id for (each,) in said}) == 1
