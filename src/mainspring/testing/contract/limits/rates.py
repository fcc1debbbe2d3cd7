"""Rates: no window has more starts than the rate allows, and the next start is known to the microsecond."""

from __future__ import annotations

import random
from datetime import timedelta

import msgspec
import pytest

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob, Retention
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import FairKey
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.stores.shared.rates import SmoothRate
from mainspring.testing.contract.fair_keys.shares import of
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    MINUTE,
    SECOND,
    Hand,
    bucket,
    ids,
    job,
    lease,
    limits_of,
    one,
    put_in,
    running,
)
from mainspring.worker.records import TurnResult, Want

__all__ = ["TestCostsNamedTwice", "TestRates", "TestSlowedRates", "TestSmooth", "TestSmoothArithmetic"]

CALLS = bucket("calls", 3, per=10 * SECOND)


async def ask(hand: Hand, n: int = 99, lane: str = LANE) -> TurnResult:
    return await hand.turn(wants=[Want((lane,), n)])


async def limited(store: Store, n: int, *buckets: Bucket) -> Hand:
    await put_in(store, *(job(buckets=buckets or (CALLS,)) for _ in range(n)))
    return await Hand(store).join()


def to(clock: MovableClock, moment: int) -> None:
    clock.set(to_datetime(moment))


@pytest.mark.asyncio
class TestRates:
    async def test_a_window_has_starts_of_the_size_at_most(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        hand = await limited(store, 9)
        other = await Hand(second_store).join()
        began = clock.now_us()
        assert len(await hand.take(2)) == 2
        clock.advance("4s")
        said = await ask(other)
        assert len(said.claims) == 1
        said = await ask(hand)
        assert said.claims == ()
        assert said.next_at == began + 10 * SECOND
        to(clock, began + 10 * SECOND - 1)
        assert (await ask(hand)).claims == ()
        to(clock, began + 10 * SECOND)
        assert len((await ask(hand)).claims) == 2
        said = await ask(hand)
        assert (said.claims, said.next_at) == ((), began + 14 * SECOND)

    async def test_the_end_of_a_job_gives_no_capacity_back(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 9)
        first, second, third = await hand.take(3)
        await hand.turn(
            Ack.succeeded(lease(first)), Ack.interrupted(lease(second)), Ack.failed(lease(third), ERROR, retry_in=0)
        )
        await store.promote()
        assert (await ask(hand)).claims == ()
        clock.advance("10s")
        assert len((await ask(hand)).claims) == 3

    async def test_a_rescue_gives_no_capacity_back(self, store: Store) -> None:
        hand = await limited(store, 9)
        assert len(await hand.take(3)) == 3
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        assert (await ask(await Hand(store).join())).claims == ()

    async def test_no_attempt_is_used_up_by_waiting(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 4)
        for _ in range(5):
            await ask(hand)
        clock.advance("10s")
        (claim,) = (await ask(hand)).claims
        assert claim.attempt == 1

    async def test_a_repeated_turn_starts_nothing_twice(self, store: Store) -> None:
        hand = await limited(store, 9)
        assert len(await hand.take(2)) == 2
        assert len((await hand.repeat()).claims) == 2
        assert len(await hand.take(9)) == 1

    async def test_costs_add_up(self, store: Store, clock: MovableClock) -> None:
        costs = (2, 2, 1, 3)
        jobs = [job(buckets=[bucket("calls", 3, per=10 * SECOND, cost=cost)]) for cost in costs]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == [jobs[0].id], "the second does not fit, and nobody passes it in its lane"
        clock.advance("10s")
        assert ids(await hand.take(9)) == ids(jobs[1:3])
        clock.advance("10s")
        assert ids(await hand.take(9)) == [jobs[3].id]

    @pytest.mark.parametrize("key", ["", "7"])
    @pytest.mark.parametrize("fair", [None, of("a")], ids=["plain", "fair"])
    async def test_a_cheaper_job_of_lower_priority_does_not_overtake(
        self, store: Store, clock: MovableClock, key: str, fair: FairKey | None
    ) -> None:
        """Whatever comes behind it. Otherwise a costly job would never start."""

        def costs(cost: int, priority: int) -> NewJob:
            return job(buckets=[bucket("calls", 10, per=SECOND, key=key, cost=cost)], priority=priority, fair=fair)

        hand = await Hand(store).join()
        await put_in(store, costs(8, 0))
        assert len(await hand.take(9)) == 1
        cheap = [costs(1, 0) for _ in range(3)]
        await put_in(store, cheap[0], dear := costs(5, 9))
        for late in cheap[1:]:
            assert await hand.take(9) == ()
            await put_in(store, late)
        clock.advance("1s")
        await store.promote()
        assert ids(await hand.take(9)) == [dear.id, *ids(cheap)]

    async def test_a_cost_above_the_size_counts_as_the_whole_size(self, store: Store, clock: MovableClock) -> None:
        """So no job waits for ever."""
        dear = job(buckets=[bucket("calls", 3, per=10 * SECOND, cost=50)])
        await put_in(store, job(buckets=[CALLS]), dear)
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 1
        clock.advance("10s")
        assert ids(await hand.take(9)) == [dear.id]
        assert (await hand.turn(wants=[Want((LANE,), 1)])).claims == ()

    async def test_several_rates_apply_at_once(self, store: Store, clock: MovableClock) -> None:
        second, minute = bucket("second", 2, per=SECOND), bucket("minute", 5, per=MINUTE)
        hand = await limited(store, 20, second, minute)
        got = []
        for _ in range(5):
            got.append(len((await ask(hand)).claims))
            clock.advance("1s")
        assert got == [2, 2, 1, 0, 0]
        said = await ask(hand)
        assert said.next_at == clock.now_us() + 55 * SECOND

    async def test_a_rate_and_a_concurrency(self, store: Store) -> None:
        hand = await limited(store, 9, CALLS, bucket("gate", 2))
        claims = (await ask(hand)).claims
        assert len(claims) == 2
        said = await ask(hand)
        assert (said.claims, said.next_at) == ((), None), "nobody knows when a job ends"
        await hand.succeed(*claims)
        assert len((await ask(hand)).claims) == 1

    async def test_a_full_rate_holds_back_only_jobs_that_name_it(self, store: Store) -> None:
        hand = await limited(store, 9)
        await hand.take(3)
        plain = await one(store, job(priority=-50))
        assert ids((await ask(hand)).claims) == [plain.id]

    async def test_each_key_has_its_own_rate(self, store: Store, clock: MovableClock) -> None:
        for key in "ab":
            await put_in(store, *(job(buckets=[bucket("calls", 2, per=10 * SECOND, key=key)]) for _ in range(3)))
        hand = await Hand(store).join()
        assert len((await ask(hand)).claims) == 4
        assert (await ask(hand)).claims == ()
        began = clock.now_us()
        promoted = await store.promote()
        assert promoted.next_due is not None
        assert promoted.next_due <= began + 10 * SECOND
        to(clock, began + 10 * SECOND)
        await store.promote()
        assert len((await ask(hand)).claims) == 2

    async def test_promote_wakes_jobs_that_wait_for_the_rate_of_a_key(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        await put_in(store, *(job(buckets=[bucket("calls", 1, per=10 * SECOND, key="a")]) for _ in range(2)))
        hand = await Hand(store).join()
        assert len((await ask(hand)).claims) == 1
        assert (await ask(hand)).claims == ()
        listener = await store.listen(hand.name, ["q"])
        while await listener.wait(0.1):
            pass
        clock.advance("10s")
        await second_store.promote()
        assert await listener.wait(10)
        listener.close()
        assert len((await ask(hand)).claims) == 1

    async def test_no_extra_start_when_the_clock_goes_back(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 9)
        await hand.take(3)
        clock.set(clock.now() - timedelta(hours=1))
        assert (await ask(hand)).claims == ()

    @pytest.mark.parametrize("key", ["", "a"])
    @pytest.mark.parametrize("burst", [0, 5])
    async def test_a_step_of_the_clock_forward_and_back_closes_a_rate_for_one_window(
        self, store: Store, clock: MovableClock, burst: int, key: str
    ) -> None:
        """By the time of the store, which never goes back in some engines."""
        per = 10 * SECOND
        hand = await limited(store, 99, bucket("calls", 5, per=per, burst=burst, key=key))
        await store.promote()
        clock.advance("1h")
        await store.promote()
        while (await ask(hand)).claims:
            pass
        to(clock, clock.now_us() - 3600 * SECOND)
        await store.promote()
        assert (await ask(hand)).claims == ()
        to(clock, await store.now() + per)
        await store.promote()
        said = await ask(hand)
        while said.more and not said.claims:
            said = await ask(hand)
        assert len(said.claims) == 5
        assert (await ask(hand)).claims == ()

    async def test_a_pause_of_a_rate_keeps_its_length_when_the_clock_goes_back(
        self, store: Store, clock: MovableClock
    ) -> None:
        hand = await limited(store, 9)
        await store.promote()
        clock.advance("1h")
        await store.promote()
        claim = await hand.take_one()
        await hand.turn(Ack.snoozed(lease(claim), delay=0, slow=MINUTE))
        to(clock, clock.now_us() - 3600 * SECOND)
        await store.promote()
        assert (await ask(hand)).claims == ()
        to(clock, await store.now() + MINUTE + SECOND)
        await store.promote()
        assert (await ask(hand)).claims != ()

    async def test_the_whole_size_is_available_after_an_idle_window(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 99)
        for _ in range(4):
            assert len((await ask(hand)).claims) == 3
            clock.advance("1h")

    async def test_no_window_has_more_starts_than_the_size(self, store: Store, clock: MovableClock) -> None:
        """Random starts at random times: the rate never exceeds the size, and little of it is left unused."""
        size, per = 7, 2 * SECOND
        hand = await limited(store, 400, bucket("calls", size, per=per))
        dice, starts, began = random.Random(7), list[int](), clock.now_us()
        while clock.now_us() < began + 20 * SECOND:
            said = await ask(hand, dice.randint(1, 9))
            starts += [clock.now_us()] * len(said.claims)
            step = dice.choice((1_000, 130_000, 700_000))
            to(clock, min(clock.now_us() + step, said.next_at or 1 << 62))
        for moment in starts:
            assert sum(moment <= other < moment + per for other in starts) <= size
        assert len(starts) >= 0.95 * size * 10

    async def test_many_starts_are_counted_in_few_rows(self, store: Store, clock: MovableClock) -> None:
        """A start is stored with a precision of a thousandth of the window: never too many jobs start, and nearly
        all capacity is used.
        """
        wide = bucket("calls", 2_000, per=100 * SECOND)
        hand = await limited(store, 900, wide)
        for _ in range(300):
            await hand.take(3)
            clock.advance("0.01s")
        (row,) = await store.buckets([wide])
        assert row.used == 900
        clock.advance("96.9s")
        (row,) = await store.buckets([wide])
        assert row.used == 900
        clock.advance("3.3s")
        (row,) = await store.buckets([wide])
        assert row.used == 0

    async def test_a_changed_size_counts_earlier_starts(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 20)
        await hand.take(3)
        await store.declare_limits([Limit(name="calls", kind="rate", size=5, per=10 * SECOND)])
        assert len((await ask(hand)).claims) == 2
        await store.set_limit_size("calls", 1)
        clock.advance("10s")
        assert len((await ask(hand)).claims) == 1

    async def test_the_spent_cost_of_an_ack_replaces_the_cost_of_the_start(
        self, store: Store, clock: MovableClock
    ) -> None:
        hand = await limited(store, 20, bucket("calls", 10, per=10 * SECOND, cost=4))
        first, second = await hand.take(9)
        clock.advance("1s")
        await hand.turn(_spent(Ack.succeeded(lease(first)), 1), _spent(Ack.succeeded(lease(second)), 5))
        (row,) = await store.buckets([Bucket("calls")])
        assert row.used == 6
        assert len((await ask(hand)).claims) == 1

    async def test_a_bucket_row_shows_use_and_next_start(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 9)
        await hand.take(3)
        (row,) = await store.buckets([CALLS])
        assert (row.kind, row.size, row.used) == ("rate", 3, 3)
        assert row.next_at == clock.now_us() + 10 * SECOND

    async def test_old_starts_are_pruned(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 3)
        await hand.succeed(*await hand.take(3))
        clock.advance("1h")
        await store.prune(Retention())
        (row,) = await store.buckets([CALLS])
        assert row.used == 0
        assert (await store.count(Query.everything()))[State.SUCCEEDED] == 3


def _spent(ack: Ack, cost: int) -> Ack:
    return msgspec.structs.replace(ack, spent=(("calls", cost),))


@pytest.mark.asyncio
class TestSmooth:
    EVEN = bucket("calls", 10, per=SECOND, burst=1)

    async def test_starts_are_evenly_spaced(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 9, self.EVEN)
        for _ in range(4):
            said = await ask(hand)
            assert len(said.claims) == 1
            said = await ask(hand)
            assert (said.claims, said.next_at) == ((), clock.now_us() + SECOND // 10)
            to(clock, said.next_at or 0)

    async def test_a_burst_starts_at_once_after_idle_time(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 30, bucket("calls", 10, per=SECOND, burst=4))
        assert len((await ask(hand)).claims) == 4
        clock.advance("0.2s")
        assert len((await ask(hand)).claims) == 2
        clock.advance("1h")
        assert len((await ask(hand)).claims) == 4

    async def test_no_window_has_more_than_size_plus_burst(self, store: Store, clock: MovableClock) -> None:
        size, per, burst = 5, SECOND, 3
        hand = await limited(store, 200, bucket("calls", size, per=per, burst=burst))
        dice, starts = random.Random(3), list[int]()
        for _ in range(60):
            said = await ask(hand, dice.randint(1, 9))
            starts += [clock.now_us()] * len(said.claims)
            clock.advance(dice.choice((0.01, 0.13, 0.7)))
        for moment in starts:
            assert sum(moment <= other < moment + per for other in starts) <= size + burst


@pytest.mark.asyncio
class TestSmoothArithmetic:
    """Every engine counts in whole microseconds, as ``mainspring.stores.shared.rates.SmoothRate`` does."""

    RATES = (SmoothRate(7, SECOND, 5), SmoothRate(3, SECOND, 1), SmoothRate(450_000, MINUTE, 100_000))

    @pytest.mark.parametrize("rate", RATES)
    async def test_a_burst_fits_one_by_one(self, store: Store, rate: SmoothRate) -> None:
        """The time of each start is rounded up to a microsecond. That does not cost the last start of a burst."""
        starts = min(rate.burst, 20)
        named = bucket("calls", rate.size, per=rate.per, burst=starts)
        hand = await limited(store, starts + 1, named)
        assert [len((await ask(hand, 1)).claims) for _ in range(starts + 1)] == [1] * starts + [0]

    @pytest.mark.parametrize("rate", RATES)
    async def test_use_and_next_start_are_exact(self, store: Store, clock: MovableClock, rate: SmoothRate) -> None:
        """Random starts of holders and jobs, corrections and pauses, compared with the reference."""
        named = bucket("calls", rate.size, per=rate.per, burst=rate.burst)
        hand = await limited(store, 300, named)
        dice, tat = random.Random(rate.size), 0
        for step in range(80):
            now, cost = clock.now_us(), dice.choice((1, 1, 2, rate.size // 3, rate.size, 2 * rate.size))
            match dice.choice(("claim", "hold", "correct", "wait", "wait")):
                case "claim":
                    n = dice.randint(1, 3)
                    expected = min(n, rate.available(tat=tat, now=now))
                    assert len((await ask(hand, n)).claims) == expected
                    tat = rate.start(tat=tat, now=now, cost=1, n=expected) if expected else tat
                case "hold" | "correct" as what:
                    holder = step.to_bytes(16)
                    said = await store.hold(holder, [msgspec.structs.replace(named, cost=cost)], MINUTE)
                    assert said.ok == rate.fits(tat=tat, now=now, cost=cost)
                    if not said.ok:
                        assert said.next_at == rate.next_at(tat=tat, now=now, cost=cost)
                        continue
                    tat = rate.start(tat=tat, now=now, cost=cost)
                    if what == "correct":
                        spent = dice.randint(0, rate.size)
                        await store.release(holder, [("calls", spent)])
                        tat = rate.correct(tat=tat, now=now, cost=cost, spent=spent)
                case _:
                    clock.advance(
                        timedelta(microseconds=dice.choice((1, rate.time(1), rate.time(2) - 1, rate.per // 3)))
                    )
            (row,) = await store.buckets([named])
            now = clock.now_us()
            assert row.used == rate.used(tat=tat, now=now)
            assert row.next_at == rate.next_at(tat=tat, now=now, cost=1)


@pytest.mark.asyncio
class TestCostsNamedTwice:
    """A bucket that is named twice counts once, with the highest cost named."""

    TWICE = (bucket("calls", 10, per=10 * SECOND, cost=2), bucket("calls", 10, per=10 * SECOND, cost=3))

    @pytest.mark.parametrize("order", [1, -1])
    async def test_a_job_counts_a_bucket_named_twice_once(self, store: Store, order: int) -> None:
        hand = await limited(store, 9, *self.TWICE[::order])
        assert len((await ask(hand, 1)).claims) == 1
        (row,) = await store.buckets([CALLS])
        assert row.used == 3
        assert len((await ask(hand)).claims) == 2, "10 units are 3 starts of 3"

    @pytest.mark.parametrize("order", [1, -1])
    async def test_a_hold_counts_a_bucket_named_twice_once(self, store: Store, order: int) -> None:
        await store.declare_limits(limits_of([job(buckets=self.TWICE)]))
        assert (await store.hold(b"h" * 16, self.TWICE[::order], MINUTE)).ok
        (row,) = await store.buckets([CALLS])
        assert row.used == 3

    @pytest.mark.parametrize("order", [1, -1])
    async def test_a_handed_back_job_counts_a_bucket_named_twice_once(self, store: Store, order: int) -> None:
        await store.declare_limits(limits_of([job(buckets=self.TWICE)]))
        hand, claim = await running(store, job())
        await hand.turn(Ack.returned(lease(claim), buckets=self.TWICE[::order]))
        assert len((await ask(hand, 1)).claims) == 1
        (row,) = await store.buckets([CALLS])
        assert row.used == 3


@pytest.mark.asyncio
class TestSlowedRates:
    async def test_a_slowed_rate_starts_no_job(self, store: Store, clock: MovableClock) -> None:
        """The snoozed job is postponed without a failure, and all other jobs of its rate wait as long."""
        hand = await limited(store, 9)
        claim = await hand.take_one()
        until = clock.now_us() + 30 * SECOND
        await hand.turn(Ack.snoozed(lease(claim), delay=30 * SECOND, slow=30 * SECOND))
        said = await ask(hand)
        assert (said.claims, said.next_at) == ((), until)
        to(clock, until - 1)
        assert (await ask(hand)).claims == ()
        to(clock, until)
        await store.promote()
        assert len((await ask(hand)).claims) == 3

    async def test_slowing_gives_no_capacity_back(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 9)
        claim = await hand.take_one()
        await hand.turn(Ack.snoozed(lease(claim), delay=30 * SECOND, slow=SECOND))
        clock.advance("1s")
        (row,) = await store.buckets([CALLS])
        assert row.used == 1
        assert len((await ask(hand)).claims) == 2

    async def test_slowing_does_not_affect_concurrency_limits(self, store: Store) -> None:
        await put_in(store, job(buckets=[bucket("gate", 5)]), job(buckets=[bucket("gate", 5)]))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(Ack.snoozed(lease(claim), delay=SECOND, slow=SECOND))
        assert len((await ask(hand)).claims) == 1

    async def test_a_shorter_slowing_does_not_end_a_longer_one(self, store: Store, clock: MovableClock) -> None:
        hand = await limited(store, 9)
        first, second = await hand.take(2)
        now = clock.now_us()
        for claim, seconds in ((first, 30), (second, 5)):
            await hand.turn(Ack.snoozed(lease(claim), delay=seconds * SECOND, slow=seconds * SECOND))
        assert (await ask(hand)).next_at == now + 30 * SECOND
