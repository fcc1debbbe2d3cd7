"""Half open breakers and the results of their probes; breakers with a share of failures."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from mainspring.breakers.counting import BreakerEnd
from mainspring.breakers.records import BreakerRow
from mainspring.breakers.swap import count_lost_worker, trip
from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.limits.records import Limit
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, SECOND, Hand, ids, lease
from mainspring.worker.records import Want

from .failures import HALF, NAME, OPEN_FOR, THRICE, fail, failure, guard, guarded, look, opened, success

__all__ = ["TestBreakersWithShares", "TestProbes"]


@pytest.mark.asyncio
class TestProbes:
    @pytest.mark.parametrize("probes", [1, 3])
    async def test_exactly_size_probes_run_over_all_workers(
        self, store: Store, second_store: Store, clock: MovableClock, probes: int
    ) -> None:
        await opened(store, Limit(name=NAME, kind="breaker", size=probes, per=OPEN_FOR, burst=3))
        await guarded(store, 40)
        hands = [await Hand(each).join() for each in (store, second_store) * 4]
        clock.advance("30s")
        taken = await asyncio.gather(*(hand.take(5) for hand in hands))
        assert sum(map(len, taken)) == probes
        (found,) = await store.buckets([guard()])
        assert (found.used, found.size, len(found.holders)) == (probes, probes, probes)
        assert found.breaker is not None
        assert found.breaker.state == "half_open"

    async def test_jobs_that_ran_before_are_no_probes(self, store: Store, clock: MovableClock) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        claims = await hand.take(8)
        await fail(hand, *claims[:3])
        clock.advance("30s")
        (probe,) = await hand.take(9)
        await hand.succeed(claims[3])
        await fail(hand, claims[4])
        assert (await look(store)).state == "half_open", "only probes decide"
        await hand.succeed(probe)
        assert await look(store) == BreakerRow(name=NAME)

    async def test_a_token_ahead_of_the_clock_makes_no_probe(self, store: Store, clock: MovableClock) -> None:
        """The clock was set back after a first claim, so the next token is later than the end of the open breaker."""
        await guarded(store, 4)
        hand = await Hand(store).join()
        clock.advance("1h")
        (early,) = await hand.take(1)
        await hand.turn(Ack.returned(lease(early)))
        clock.set(clock.now() - timedelta(hours=1))
        claims = await hand.take(4)
        (again,) = [claim for claim in claims if claim.id == early.id]
        assert again.token > early.token
        await fail(hand, *[claim for claim in claims if claim is not again])
        assert (await look(store)).state == "open"
        await hand.turn(success(again))
        assert (await look(store)).state == "open"

    @pytest.mark.parametrize("passed", [10, 60])
    async def test_a_step_of_the_clock_forward_and_back_keeps_the_time_that_is_left(
        self, store: Store, clock: MovableClock, passed: int
    ) -> None:
        """By the time of the store, which never goes back in some engines. The breaker opens while the clock is ahead:
        it becomes half open when the rest of its 30 s is over, not when the clock is there again."""
        await store.promote()
        clock.advance("1h")
        hand = await opened(store)
        await guarded(store, 3)
        clock.advance(f"{passed}s")
        await store.promote()
        clock.set(clock.now() - timedelta(hours=1))
        await store.promote()
        rest = max(0, OPEN_FOR - passed * SECOND)
        row = await look(store)
        assert row.opened is not None
        assert row.until is not None
        assert row.opened <= await store.now()
        assert row.until <= await store.now() + rest
        assert row.state == ("open" if rest else "half_open")
        assert len(await hand.take(3)) == (0 if rest else 1)
        clock.set(to_datetime(await store.now() + rest))
        assert (await look(store)).state == "half_open"
        assert len(await hand.take(3)) == (1 if rest else 0)

    async def test_a_breaker_that_is_open_until_it_is_reset_stays_open_when_the_clock_goes_back(
        self, store: Store, clock: MovableClock
    ) -> None:
        await store.promote()
        clock.advance("1h")
        await store.promote()
        await guarded(store, 3)
        await trip(store, NAME, None)
        clock.set(clock.now() - timedelta(hours=1))
        await store.promote()
        clock.advance("30m")
        row = await look(store)
        assert (row.state, row.until) == ("open", None)
        assert await (await Hand(store).join()).take(3) == ()

    async def test_the_success_of_a_probe_closes_the_breaker(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        hand = await opened(store)
        other = await Hand(second_store).join()
        clock.advance("30s")
        said = await hand.turn(wants=[Want((LANE,), 9)])
        await hand.turn()
        assert [each.state for each in hand.changed] == ["open", "half_open"]
        assert await other.take(9) == ()
        await hand.turn(success(*said.claims))
        assert hand.changed[2:] == [BreakerRow(name=NAME)]
        assert len(await other.take(9)) == 9

    async def test_the_failure_of_a_probe_opens_the_breaker_again(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        hand = await opened(store)
        other = await Hand(second_store).join()
        clock.advance("35s")
        (probe,) = await hand.take(9)
        assert (await other.turn(wants=[Want((LANE,), 9)])).next_at is None
        clock.advance("1s")
        await fail(hand, probe)
        assert [(each.state, each.until) for each in hand.changed[1:]] == [
            ("half_open", clock.now_us() - 6 * SECOND),
            ("open", clock.now_us() + OPEN_FOR),
        ]
        assert (await other.turn(wants=[Want((LANE,), 9)])).next_at == clock.now_us() + OPEN_FOR
        clock.advance("30s")
        assert len(await other.take(9)) == 1

    @pytest.mark.parametrize("cause", [Outcome.LOST, Outcome.CRASHED])
    async def test_a_lost_probe_opens_the_breaker_again(
        self, store: Store, clock: MovableClock, cause: Outcome
    ) -> None:
        hand, other = await opened(store), await Hand(store).join()
        clock.advance("30s")
        assert len(await hand.take(9)) == 1
        await count_lost_worker(store, await store.rescue(hand.name, hand.beats, cause), cause)
        assert (await look(store)).until == clock.now_us() + OPEN_FOR
        assert await other.take(9) == ()
        clock.advance("30s")
        assert len(await other.take(9)) == 1

    async def test_a_lost_job_from_before_that_probes_already_is_no_failed_probe(
        self, store: Store, clock: MovableClock
    ) -> None:
        """Its claim by the lost worker counts, not the new one: it was before the breaker opened."""
        await guarded(store, 4)
        lost, hand = await Hand(store).join(), await Hand(store).join()
        (old,) = await lost.take(1)
        await fail(hand, *await hand.take(3))
        clock.advance("30s")
        rescued = await store.rescue(lost.name, lost.beats, Outcome.LOST)
        (probe,) = await hand.take(9)
        assert probe.id == old.id
        await count_lost_worker(store, rescued, Outcome.LOST)
        assert (await look(store)).state == "half_open"
        await hand.succeed(probe)
        assert (await look(store)).state == "closed"

    async def test_a_probe_with_another_end_frees_its_capacity(self, store: Store, clock: MovableClock) -> None:
        hand, other = await opened(store), await Hand(store).join()
        clock.advance("30s")
        for ack in (Ack.snoozed, Ack.cancelled, Ack.returned, Ack.interrupted):
            (probe,) = await hand.take(9)
            assert await other.take(9) == ()
            await hand.turn(ack(lease(probe)))
        assert (await look(store)).state == "half_open"
        await hand.take(1)
        await store.retire(hand.name, Outcome.INTERRUPTED)
        assert len(await other.take(9)) == 1

    @pytest.mark.parametrize("end", ["success", "failure", "nothing"])
    async def test_the_end_of_a_probe_wakes_listeners(
        self, store: Store, second_store: Store, clock: MovableClock, end: str
    ) -> None:
        """Also its failure: listeners have to learn when the next probe can run."""
        hand, other = await opened(store), await Hand(second_store).join()
        clock.advance("30s")
        (probe,) = await hand.take(1)
        assert await other.take(9) == ()
        listener = await second_store.listen(other.name, ["q"])
        while await listener.wait(0.1):
            pass
        acks = {"success": success(probe), "failure": failure(probe), "nothing": Ack.cancelled(lease(probe))}
        await hand.turn(acks[end])
        assert await listener.wait(10)
        listener.close()

    async def test_a_probe_counts_after_a_lost_reply(self, store: Store, clock: MovableClock) -> None:
        hand = await opened(store)
        clock.advance("30s")
        claims = await hand.take(9)
        assert ids((await hand.repeat()).claims) == ids(claims)
        assert len(claims) == 1


@pytest.mark.asyncio
class TestBreakersWithShares:
    async def test_a_rate_breaker_opens_after_enough_calls_with_too_many_failures(self, store: Store) -> None:
        await guarded(store, 40, HALF)
        hand = await Hand(store).join()
        claims = await hand.take(20)
        hand.counts.add(BreakerEnd("success", claims[0].token, 5), claims[0].lane)
        await fail(hand, *claims[:4])
        found = await look(store)
        assert (found.state, found.failures, found.calls) == ("closed", 4, 9)
        await fail(hand, claims[4])
        found = await look(store)
        assert (found.state, found.failures, found.calls) == ("open", 5, 10)

    async def test_successes_keep_a_rate_breaker_closed(self, store: Store, second_store: Store) -> None:
        await guarded(store, 40, HALF)
        hand, other = await Hand(store).join(), await Hand(second_store).join()
        claims = await hand.take(20)
        await hand.succeed(claims[0])
        other.counts.add(BreakerEnd("success", claims[0].token, 11), claims[0].lane)
        await other.turn()
        await fail(hand, *claims[1:12])
        found = await look(store)
        assert (found.state, found.failures, found.calls) == ("closed", 11, 23)
        await fail(hand, claims[12])
        assert (await look(store)).state == "open"

    async def test_a_repeated_turn_counts_successes_once(self, store: Store) -> None:
        await guarded(store, 40, HALF)
        hand = await Hand(store).join()
        claim, _ = await hand.take(2)
        hand.counts.add(BreakerEnd("success", claim.token, 5), f"{claim.lane},unknown:breaker")
        await hand.turn(failure(claim))
        await hand.repeat()
        assert (await look(store)).calls == 6

    async def test_ends_older_than_the_window_do_not_count(self, store: Store, clock: MovableClock) -> None:
        await guarded(store, 60, HALF)
        hand = await Hand(store).join()
        claims = await hand.take(40)
        await fail(hand, *claims[:9])
        clock.advance("53s")
        assert (await look(store)).failures == 9
        clock.advance("7s")
        assert await look(store) == BreakerRow(name=NAME)
        await fail(hand, *claims[9:18])
        assert (await look(store)).state == "closed"
        await fail(hand, claims[18])
        assert (await look(store)).state == "open"

    async def test_counts_of_a_window_are_no_failures_in_a_row(self, store: Store) -> None:
        """The options were changed from ``rate=`` to ``failures=``."""
        await guarded(store, 40, HALF)
        hand = await Hand(store).join()
        claims = await hand.take(20)
        await hand.succeed(*claims[:5])
        await fail(hand, *claims[5:9])
        assert (await look(store)).failures == 4
        await store.declare_limits([THRICE])
        assert (await look(store)) == BreakerRow(name=NAME)
        other = await Hand(store).join()
        await fail(other, *await other.take(2))
        found = await look(store)
        assert (found.state, found.failures) == ("closed", 2)
        await fail(other, *await other.take(1))
        assert (await look(store)).state == "open"

    async def test_counts_start_again_after_the_breaker_closed(self, store: Store, clock: MovableClock) -> None:
        hand = await opened(store, HALF)
        clock.advance("30s")
        await hand.succeed(*await hand.take(9))
        assert await look(store) == BreakerRow(name=NAME)
