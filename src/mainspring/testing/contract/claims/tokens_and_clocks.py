"""The store decides time and order: tokens only grow, and the clocks of clients decide nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, HOUR, SECOND, Hand, job, lease, one, row, running, state

__all__ = ["TestClocks", "TestTokens"]


def step_back(clock: MovableClock, hours: int = 1) -> None:
    clock.set(to_datetime(clock.now_us()) - timedelta(hours=hours))


@pytest.mark.asyncio
class TestTokens:
    async def test_a_token_is_the_stores_time_or_one_more_than_the_last(
        self, store: Store, clock: MovableClock
    ) -> None:
        hand, claim = await running(store)
        assert claim.token == clock.now_us()
        await hand.turn(Ack.interrupted(lease(claim)))
        again = await hand.take_one(f"{claim.queue}/any")
        assert again.token == claim.token + 1
        await hand.turn(Ack.interrupted(lease(again)))
        clock.advance("1s")
        assert (await hand.take_one(f"{claim.queue}/any")).token == clock.now_us()

    async def test_tokens_grow_after_every_way_back_to_ready(self, store: Store) -> None:
        hand, claim = await running(store, job(crashes=9))
        tokens = [claim.token]
        for back in ("interrupted", "failed", "rescued", "retired"):
            match back:
                case "interrupted":
                    await hand.turn(Ack.interrupted(lease(claim)))
                case "failed":
                    await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
                case "rescued":
                    await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
                case _:
                    await store.retire(hand.name, Outcome.INTERRUPTED)
            await store.promote()
            hand = await Hand(store).join()
            claim = await hand.take_one()
            tokens.append(claim.token)
        assert tokens == sorted(set(tokens))

    async def test_tokens_grow_when_the_clock_goes_back(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.interrupted(lease(claim)))
        step_back(clock)
        again = await hand.take_one(f"{claim.queue}/any")
        assert again.token > claim.token

    async def test_a_waiting_job_shows_its_last_token(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.snoozed(lease(claim), delay=SECOND))
        assert (await row(store, claim)).token == claim.token


@pytest.mark.asyncio
class TestClocks:
    async def test_now_is_the_time_by_which_the_store_decides(self, store: Store, clock: MovableClock) -> None:
        assert await store.now() == clock.now_us()
        clock.advance("5s")
        assert await store.now() == clock.now_us() == (await store.promote()).now

    async def test_a_clock_that_goes_back_loses_nothing(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        step_back(clock)
        assert await hand.beat()
        await hand.succeed(claim)
        made = await one(store)
        assert (await hand.take_one()).id == made.id

    async def test_a_clock_that_leaps_rescues_no_job(self, store: Store, clock: MovableClock) -> None:
        """A rescue compares numbers of heartbeats. Time alone takes no job from its owner."""
        hand, claim = await running(store)
        clock.advance("240h")
        await store.promote()
        assert await hand.beat()
        await hand.succeed(claim)

    async def test_order_is_by_arrival_whatever_the_ids_say(self, store: Store) -> None:
        """A producer whose clock is an hour off makes ids from another time; its jobs do not overtake others."""
        first = await one(store)
        past = await one(store, job(id=(1).to_bytes(6, "big") + b"\x70" + bytes(9)))
        future = await one(store, job(id=b"\xff" * 6 + b"\x7f" + bytes(9)))
        last = await one(store)
        hand = await Hand(store).join()
        assert [claim.id for claim in await hand.take(4)] == [first.id, past.id, future.id, last.id]

    async def test_the_stores_clock_decides_not_the_machines(self, store: Store, clock: MovableClock) -> None:
        """The store's time is an hour ahead of this process: due, delay and expiry follow the store."""
        clock.advance("1h")
        made = await one(store, job(delay=SECOND, expires_in=HOUR))
        found = await row(store, made)
        assert (found.enqueued, found.due) == (clock.now_us(), clock.now_us() + SECOND)
        assert (await store.promote()).promoted == 0
        clock.advance("1s")
        assert (await store.promote()).promoted == 1
        assert await state(store, made) == State.READY
