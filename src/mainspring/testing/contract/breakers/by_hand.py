"""Breakers that are opened and closed by hand, and reports of work that is no job."""

from __future__ import annotations

import pytest

from mainspring.breakers.counting import BreakerEnd
from mainspring.breakers.records import BreakerRow
from mainspring.breakers.swap import count_now, reset, trip
from mainspring.common.clock import MovableClock
from mainspring.limits.records import Limit
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, MINUTE, SECOND, Hand
from mainspring.worker.records import Want

from .failures import HALF, NAME, OPEN_FOR, THRICE, fail, guard, guarded, look, opened

__all__ = ["TestBreakersByHand", "TestReportsOfOtherWork"]


async def count(store: Store, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
    """Count successes and then perhaps a failure, as a guarded block does. Returns the breaker if it has changed."""
    ends = [BreakerEnd("success", started, good)] if good else []
    changed = await count_now(store, NAME, [*ends, *([BreakerEnd("failure", started, error=fault)] if fault else [])])
    return changed[-1] if changed else None


@pytest.mark.asyncio
class TestBreakersByHand:
    async def test_a_tripped_breaker_is_half_open_after_its_time(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        assert await trip(second_store, NAME, MINUTE)
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert (said.claims, said.next_at) == ((), clock.now_us() + MINUTE)
        found = await look(store)
        assert (found.state, found.tripped, found.failures) == ("open", True, 0)
        clock.advance("1m")
        assert len(await hand.take(9)) == 1

    async def test_a_tripped_breaker_without_a_time_is_open_until_reset(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        await trip(second_store, NAME, None)
        clock.advance("365d")
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert (said.claims, said.next_at) == ((), None)
        assert (await look(store)).until is None
        listener = await store.listen(hand.name, ["q"])
        while await listener.wait(0.1):
            pass
        assert await reset(second_store, NAME) is not None
        assert await listener.wait(10)
        listener.close()
        assert await look(store) == BreakerRow(name=NAME)
        assert len(await hand.take(9)) == 9

    async def test_a_reset_forgets_failures(self, store: Store) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        claims = await hand.take(5)
        await fail(hand, *claims[:2])
        await reset(store, NAME)
        await fail(hand, *claims[2:4])
        assert (await look(store)).failures == 2

    async def test_a_shorter_trip_replaces_a_longer_one(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        hand = await opened(store)
        await trip(second_store, NAME, SECOND)
        assert (await hand.turn(wants=[Want((LANE,), 9)])).next_at == clock.now_us() + SECOND

    async def test_tripping_or_resetting_an_unknown_breaker_returns_none(self, store: Store) -> None:
        await store.declare_limits([Limit(name="gate", size=1)])
        for name in (NAME, "gate"):
            assert await trip(store, name, None) is None
            assert await reset(store, name) is None
        assert await count(store, 0, fault="x") is None


@pytest.mark.asyncio
class TestReportsOfOtherWork:
    """Work that is no job reports its results, and uses capacity as a holder."""

    async def test_reported_failures_count_together_with_failures_of_jobs(
        self, store: Store, clock: MovableClock
    ) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        await fail(hand, *await hand.take(2))
        said = await count(store, clock.now_us(), fault="OSError: away")
        assert said == await look(store)
        assert said is not None
        assert (said.state, said.failures, said.error) == ("open", 3, "OSError: away")

    async def test_a_reported_success_forgets_failures(self, store: Store, clock: MovableClock) -> None:
        await store.declare_limits([THRICE])
        for _ in range(2):
            assert await count(store, clock.now_us(), fault="x") is None
        assert await count(store, clock.now_us(), good=1) is None
        assert await look(store) == BreakerRow(name=NAME)

    async def test_a_hold_is_a_probe(self, store: Store, second_store: Store, clock: MovableClock) -> None:
        hand = await opened(store)
        said = await second_store.hold(b"g" * 16, [guard()], MINUTE)
        assert (said.ok, said.next_at) == (False, clock.now_us() + OPEN_FOR)
        clock.advance("30s")
        said = await second_store.hold(b"g" * 16, [guard()], MINUTE)
        assert said.ok
        probing = await count_now(second_store, NAME, [BreakerEnd("start", said.now)])
        assert [each.state for each in probing] == ["half_open"]
        assert await count_now(second_store, NAME, [BreakerEnd("start", said.now)]) == []
        assert await hand.take(9) == ()
        closed = await count(second_store, said.now, good=1)
        assert closed == BreakerRow(name=NAME)
        await second_store.release(b"g" * 16)
        assert len(await hand.take(9)) == 9

    async def test_an_ended_hold_frees_its_probe(self, store: Store, clock: MovableClock) -> None:
        hand = await opened(store)
        clock.advance("30s")
        assert (await store.hold(b"g" * 16, [guard()], MINUTE)).ok
        assert await hand.take(9) == ()
        clock.advance("1m")
        assert len(await hand.take(9)) == 1

    async def test_work_that_began_before_the_opening_does_not_close_it(
        self, store: Store, clock: MovableClock
    ) -> None:
        began = clock.now_us()
        await opened(store)
        clock.advance("30s")
        assert await count(store, began, good=1) is None
        assert await count(store, began, fault="x") is None
        assert (await look(store)).state == "half_open"
        again = await count(store, clock.now_us(), fault="x")
        assert again is not None
        assert again.state == "open"

    async def test_several_successes_in_one_report(self, store: Store, clock: MovableClock) -> None:
        await store.declare_limits([HALF])
        await count(store, clock.now_us(), good=5)
        for _ in range(4):
            await count(store, clock.now_us(), fault="x")
        assert (await look(store)).state == "closed"
        assert await count(store, clock.now_us(), fault="x") is not None
