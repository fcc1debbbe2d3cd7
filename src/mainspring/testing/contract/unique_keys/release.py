"""How long a job holds its unique key, which ends release it, and what users can do."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.errors import KeyTaken
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, Edge, Enqueued, Retention
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, HOUR, LANE, MINUTE, SECOND, Hand, lease, one, put_in, row, running

from .conflicts import is_free, keyed

__all__ = ["TestKeyRelease", "TestKeyWindows", "TestKeysByHand"]


@pytest.mark.asyncio
class TestKeyRelease:
    """While the job is live the key is held; each way to end lets it go."""

    async def test_a_job_in_any_live_state_holds_its_key(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        assert not await is_free(store)
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        assert not await is_free(store)
        await store.promote()
        again = await hand.take_one()
        await hand.turn(Ack.snoozed(lease(again), delay=0))
        assert not await is_free(store)
        await store.promote()
        await hand.take_one()
        await hand.crash()
        assert not await is_free(store)

    async def test_success_releases_the_key(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        await hand.succeed(claim)
        assert await is_free(store)

    async def test_death_releases_the_key(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        await hand.kill(claim)
        assert await is_free(store)

    async def test_a_cancelled_ack_releases_the_key(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        await hand.turn(Ack.cancelled(lease(claim)))
        assert await is_free(store)

    async def test_a_cancel_by_hand_releases_the_key(self, store: Store) -> None:
        made = await one(store, keyed())
        await store.act(Action.CANCEL, Query(ids=(made.id,)))
        assert await is_free(store)

    async def test_expiry_releases_the_key(self, store: Store, clock: MovableClock) -> None:
        await one(store, keyed(expires_in=SECOND))
        clock.advance("2s")
        await store.promote()
        assert await is_free(store)

    @pytest.mark.parametrize("conflict", ["return", "replace", "error"])
    async def test_an_expired_job_that_was_not_ended_yet_releases_the_key(
        self, store: Store, clock: MovableClock, conflict: Literal["return", "replace", "error"]
    ) -> None:
        """The second request would be lost if the reply named a job that can never run."""
        late = await one(store, keyed(expires_in=SECOND))
        clock.advance("2s")
        (said,) = await put_in(store, keyed(conflict))
        assert said.created
        ended = await row(store, late.id)
        assert (ended.state, ended.reason) == (State.CANCELLED, Reason.EXPIRED)

    async def test_a_started_job_past_its_expires_holds_the_key(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, keyed(expires_in=SECOND))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=HOUR))
        clock.advance("2s")
        assert not await is_free(store)
        assert (await row(store, claim)).state is State.RETRYING

    async def test_the_last_crash_releases_the_key(self, store: Store) -> None:
        hand, _ = await running(store, keyed(crashes=1))
        await hand.crash()
        assert await is_free(store)

    async def test_the_retirement_of_an_early_job_releases_the_key(self, store: Store) -> None:
        hand, _ = await running(store, keyed(early=True))
        await store.retire(hand.name, Outcome.INTERRUPTED)
        assert await is_free(store)

    async def test_the_end_of_a_parent_releases_the_key(self, store: Store) -> None:
        parent = await one(store)
        await one(store, msgspec.structs.replace(keyed(), after=(Edge(parent.id),)))
        await store.act(Action.CANCEL, Query(ids=(parent.id,)))
        assert await is_free(store)

    async def test_delete_releases_the_key(self, store: Store) -> None:
        """Also while its window is running."""
        waiting = await one(store, keyed(window=HOUR))
        await store.act(Action.DELETE, Query(ids=(waiting.id,)))
        assert await is_free(store)
        hand, claim = await running(store, keyed(window=HOUR))
        await hand.succeed(claim)
        await store.act(Action.DELETE, Query(ids=(claim.id,)))
        assert await is_free(store)


@pytest.mark.asyncio
class TestKeyWindows:
    async def test_an_ended_job_holds_the_key_until_its_window_is_over(self, store: Store, clock: MovableClock) -> None:
        """The window counts from the enqueue. The reply names the ended job."""
        hand, claim = await running(store, keyed(window=MINUTE))
        clock.advance("20s")
        await hand.succeed(claim)
        clock.advance("39s")
        assert await put_in(store, keyed()) == [Enqueued(claim.id, False)]
        with pytest.raises(KeyTaken):
            await put_in(store, keyed("error"))
        clock.advance("1s")
        assert await is_free(store)

    async def test_a_live_job_holds_the_key_after_its_window(self, store: Store, clock: MovableClock) -> None:
        await one(store, keyed(window=MINUTE))
        clock.advance("2h")
        assert not await is_free(store)

    async def test_a_job_with_a_running_window_is_not_pruned(self, store: Store, clock: MovableClock) -> None:
        """Otherwise an enqueue with the key would have no job to return."""
        hand, claim = await running(store, keyed(window=HOUR))
        await hand.succeed(claim)
        none = Retention(keep=0, keep_count=0, keep_at_least=0, keep_dead=0, keep_dead_count=0)
        clock.advance("59m")
        assert await store.prune(none) == 0
        clock.advance("1m")
        assert await store.prune(none) == 1

    async def test_a_window_that_was_taken_over_does_not_stop_pruning(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, keyed(window=HOUR))
        await hand.succeed(claim)
        await one(store, keyed("replace"))
        clock.advance("1s")
        assert await store.prune(Retention(keep=0, keep_count=0, keep_at_least=0)) == 1
        assert not await is_free(store)


@pytest.mark.asyncio
class TestKeysByHand:
    async def retry(self, store: Store, which: bytes) -> ActResult:
        return await store.act(Action.RETRY, Query(ids=(which,)))

    async def test_a_retry_takes_the_key_again(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        await hand.kill(claim)
        assert (await self.retry(store, claim.id)).done == (claim.id,)
        assert await put_in(store, keyed()) == [Enqueued(claim.id, False)]
        await hand.succeed(await hand.take_one())
        assert await is_free(store)

    async def test_a_retry_against_a_holder_changes_nothing(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        await hand.kill(claim)
        holder, before = await one(store, keyed()), await row(store, claim)
        said = await self.retry(store, claim.id)
        assert (said.done, said.refused, said.held) == ((), (), ((claim.id, holder.id),))
        assert await row(store, claim) == before
        assert await put_in(store, keyed()) == [Enqueued(holder.id, False)]

    async def test_an_ended_holder_with_a_window_is_a_holder(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, keyed())
        await hand.kill(claim)
        await put_in(store, keyed(window=MINUTE))
        second = await hand.take_one()
        await hand.succeed(second)
        assert (await self.retry(store, claim.id)).held == ((claim.id, second.id),)
        clock.advance("1m")
        assert (await self.retry(store, claim.id)).done == (claim.id,)

    async def test_a_retry_works_after_the_end_of_the_holder(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        await hand.kill(claim)
        await put_in(store, keyed())
        await hand.succeed(await hand.take_one())
        assert (await self.retry(store, claim.id)).done == (claim.id,)
        assert not await is_free(store)

    async def test_a_retried_superseded_job_needs_its_key(self, store: Store) -> None:
        old = await one(store, keyed())
        new = await one(store, keyed("replace"))
        assert (await self.retry(store, old.id)).held == ((old.id, new.id),)
        await store.act(Action.DELETE, Query(ids=(new.id,)))
        assert (await self.retry(store, old.id)).done == (old.id,)
        assert await put_in(store, keyed()) == [Enqueued(old.id, False)]

    async def test_a_retry_starts_no_new_window(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store, keyed(window=MINUTE))
        await hand.kill(claim)
        clock.advance("2m")
        await self.retry(store, claim.id)
        await hand.succeed(await hand.take_one())
        assert await is_free(store)

    async def test_one_of_two_jobs_with_one_key_is_retried(self, store: Store) -> None:
        hand, first = await running(store, keyed())
        await hand.kill(first)
        await put_in(store, keyed())
        second = await hand.take_one()
        await hand.kill(second)
        said = await store.act(Action.RETRY, Query(ids=(first.id, second.id)))
        assert len(said.done) == 1
        assert said.held == ((({first.id, second.id} - set(said.done)).pop(), said.done[0]),)

    async def test_retries_in_slices_end(self, store: Store) -> None:
        """Jobs whose key is held do not fill the slice of the next."""
        hand = await Hand(store).join()
        for n in range(4):
            await put_in(store, keyed(key=bytes([n]) * 16))
            await hand.kill(*await hand.take(1))
            await put_in(store, keyed(key=bytes([n]) * 16, delay=HOUR))
        free = await one(store)
        await hand.kill(*await hand.take(1, LANE))
        done: list[bytes] = []
        for _ in range(9):
            said = await store.act(Action.RETRY, Query.where(states=[State.DEAD]), limit=2)
            done += said.done
            if not said.more:
                break
        else:
            raise AssertionError("there is always more")
        assert done == [free.id]

    async def test_two_concurrent_retries_by_hand(self, store: Store, second_store: Store) -> None:
        for n in range(8):
            key = bytes([n]) * 16
            hand, first = await running(store, keyed(key=key))
            await hand.kill(first)
            await put_in(store, keyed(key=key))
            second = await hand.take_one()
            await hand.kill(second)
            both = await asyncio.gather(
                store.act(Action.RETRY, Query(ids=(first.id,))), second_store.act(Action.RETRY, Query(ids=(second.id,)))
            )
            assert sorted(len(said.done) for said in both) == [0, 1]
            assert sorted(len(said.held) for said in both) == [0, 1]
            await hand.succeed(await hand.take_one())
