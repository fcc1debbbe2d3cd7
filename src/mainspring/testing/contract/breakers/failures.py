"""Breakers: failures of all workers together open them, jobs wait meanwhile, and probes close them again."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from mainspring.breakers.records import FOREVER, BreakerRow, BreakerSwap
from mainspring.breakers.swap import count_lost_worker
from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Limit, LimitRow
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    MINUTE,
    SECOND,
    Hand,
    Sized,
    bucket,
    ids,
    job,
    lease,
    put_in,
    row,
)
from mainspring.worker.records import Claim, Turn, TurnResult, Want

__all__ = ["TestBreakersOfJobs"]

NAME = "payments:breaker"
OPEN_FOR = 30 * SECOND
THRICE = Limit(name=NAME, kind="breaker", size=1, per=OPEN_FOR, burst=3)
HALF = Limit(name=NAME, kind="breaker", size=1, per=OPEN_FOR, burst=10, share=500_000, span=MINUTE)


def guard(limit: Limit = THRICE) -> Sized:
    return Sized(limit.name, declared=limit)


async def guarded(store: Store, n: int = 20, limit: Limit = THRICE) -> list[NewJob]:
    jobs = [job(buckets=[guard(limit)]) for _ in range(n)]
    await put_in(store, *jobs)
    return jobs


def failure(claim: Claim, fault: str = "ValueError: no") -> Ack:
    return Ack.failed(lease(claim), ERROR, retry_in=3600 * SECOND, fault=fault)


def success(claim: Claim) -> Ack:
    return Ack.succeeded(lease(claim))


async def fail(hand: Hand, *claims: Claim) -> TurnResult:
    said = await hand.turn(*map(failure, claims))
    assert not said.stale
    return said


async def look(store: Store) -> BreakerRow:
    (found,) = await store.buckets([guard()])
    assert found.breaker is not None
    return found.breaker


async def opened(store: Store, limit: Limit = THRICE) -> Hand:
    """A worker that has failed as often as it takes."""
    await guarded(store, limit=limit)
    hand = await Hand(store).join()
    await fail(hand, *await hand.take(limit.burst))
    assert (await look(store)).state == "open"
    return hand


@pytest.mark.asyncio
class TestBreakersOfJobs:
    async def test_a_breaker_opens_with_the_last_failure_in_a_row_of_two_workers(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        await guarded(store)
        first, second = await Hand(store).join(), await Hand(second_store).join()
        mine, others = await first.take(2), await second.take(2)
        await fail(first, mine[0])
        await fail(second, others[0])
        assert (await look(store)).state == "closed"
        (still,) = await second.take(1)
        await fail(second, others[1])
        now = clock.now_us()
        found = BreakerRow(
            name=NAME, state="open", failures=3, opened=now, until=now + OPEN_FOR, error="ValueError: no"
        )
        assert second.changed == [found]
        assert await look(store) == await look(second_store) == found
        assert await first.take(9) == await second.take(9) == ()
        await first.succeed(mine[1])
        await second.succeed(still)
        assert (await look(store)).state == "open", "what was claimed before goes on and does not matter"

    @pytest.mark.parametrize("ahead", [False, True], ids=["now", "ahead"])
    async def test_a_turn_that_opens_a_breaker_claims_none_of_its_jobs(
        self, store: Store, clock: MovableClock, ahead: bool
    ) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        claims = await hand.take(3)
        await fail(hand, claims[0])
        said = await hand.turn(*map(failure, claims[1:]), wants=[Want((LANE,), 9, ahead=ahead)])
        assert (await look(store)).state == "open"
        assert said.claims == ()
        assert ahead or said.next_at == clock.now_us() + OPEN_FOR

    async def test_a_turn_that_closes_a_breaker_claims_its_jobs(self, store: Store, clock: MovableClock) -> None:
        hand = await opened(store)
        clock.advance("30s")
        (probe,) = await hand.take(9)
        said = await hand.turn(success(probe), wants=[Want((LANE,), 9)])
        assert (await look(store)).state == "closed"
        assert len(said.claims) == 9

    async def test_a_success_between_forgets_the_failures(self, store: Store, second_store: Store) -> None:
        await guarded(store)
        first, second = await Hand(store).join(), await Hand(second_store).join()
        claims = await first.take(6)
        await fail(first, *claims[:2])
        assert (await look(store)).failures == 2
        await second.succeed(*await second.take(1))
        assert await look(store) == BreakerRow(name=NAME)
        await fail(first, *claims[2:4])
        assert (await look(store)).state == "closed"
        await fail(first, claims[4])
        assert (await look(store)).state == "open"

    async def test_an_open_breaker_holds_jobs_back_and_returns_its_end(self, store: Store, clock: MovableClock) -> None:
        hand = await opened(store)
        plain = job()
        await put_in(store, plain)
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert ids(said.claims) == [plain.id]
        assert said.next_at == clock.now_us() + OPEN_FOR
        clock.advance("29.999999s")
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert (said.claims, said.next_at) == ((), clock.now_us() + 1)
        clock.advance("0.000001s")
        assert len(await hand.take(9)) == 1

    async def test_waiting_jobs_do_not_change_while_a_breaker_is_open(self, store: Store) -> None:
        hand = await opened(store)
        (waiting,) = await guarded(store, 1)
        before = await row(store, waiting)
        assert await hand.take(9) == ()
        assert await row(store, waiting) == before
        assert (before.attempt, before.state) == (0, State.READY)

    async def test_only_acks_with_a_fault_count(self, store: Store) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        for _ in range(2):
            claims = [lease(claim) for claim in await hand.take(6)]
            await hand.turn(
                Ack.failed(claims[0], ERROR, retry_in=3600 * SECOND),
                Ack.dead(claims[1], ERROR, Reason.NOT_RETRYABLE),
                Ack.snoozed(claims[2], delay=3600 * SECOND, slow=SECOND),
                Ack.cancelled(claims[3]),
                Ack.returned(claims[4]),
                Ack.interrupted(claims[5]),
            )
        assert await look(store) == BreakerRow(name=NAME)

    async def test_deaths_and_timeouts_with_a_fault_count(self, store: Store) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        a, b, c = (lease(claim) for claim in await hand.take(3))
        await hand.turn(
            Ack.dead(a, ERROR, Reason.RETRIES_EXHAUSTED, fault="a"),
            Ack.failed(b, ERROR, retry_in=SECOND, timed_out=True, fault="b"),
            Ack.dead(c, ERROR, Reason.TIMED_OUT, timed_out=True, fault="c"),
        )
        assert (await look(store)).state == "open"

    async def test_a_repeated_turn_counts_once(self, store: Store) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        claims = await hand.take(2)
        await fail(hand, *claims)
        await hand.repeat()
        await hand.turn(*map(failure, claims))
        assert (await look(store)).failures == 2

    async def test_acks_do_not_count_by_themselves(self, store: Store) -> None:
        """The worker counts: the store writes the rows that the turn carries, and reads no fault."""
        await guarded(store)
        hand = await Hand(store).join()
        claims = await hand.take(5)
        said = await store.turn(
            Turn(worker=hand.name, number=2, seen=1, acks=(*map(failure, claims[:3]), success(claims[3])))
        )
        assert (said.breakers, said.stale) == ((), ())
        await store.retire(hand.name, Outcome.CRASHED, [failure(claims[4])])
        assert await look(store) == BreakerRow(name=NAME)

    async def test_a_turn_writes_a_row_only_if_its_number_is_the_expected_one(
        self, store: Store, second_store: Store
    ) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        first = BreakerSwap(name=NAME, rev=7, doc='{"failures":1}')
        unknown = BreakerSwap(name="other:breaker", rev=8)
        said = await store.turn(Turn(worker=hand.name, number=1, seen=0, breakers=(unknown, first)))
        assert [(row.name, row.rev, row.until, row.doc) for row in said.breakers] == [(NAME, 7, 0, first.doc)]
        late = BreakerSwap(name=NAME, rev=9, open_for=OPEN_FOR)
        (found,) = await second_store.swap_breakers([late])
        assert (found.rev, found.until) == (7, 0)
        good = replace(late, expected=7)
        (opened,) = await second_store.swap_breakers([good])
        assert (opened.rev, opened.until - opened.now) == (9, OPEN_FOR)
        assert (await second_store.swap_breakers([good]))[0] == opened, "a repeat changes nothing"
        said = await store.turn(replace(hand.last, number=1, breakers=(first, BreakerSwap(name="x:breaker"))))
        assert [row.rev for row in said.breakers] == [9], "so does the repeat of a turn"

    async def test_a_change_without_a_moment_leaves_the_state(self, store: Store, clock: MovableClock) -> None:
        await store.declare_limits([THRICE])
        (first,) = await store.swap_breakers([BreakerSwap(name=NAME, rev=1, open_for=FOREVER)])
        assert (first.until, first.opened) == (FOREVER, clock.now_us())
        clock.advance("1s")
        (second,) = await store.swap_breakers([BreakerSwap(name=NAME, expected=1, rev=2, doc="x")])
        assert (second.until, second.opened, second.doc) == (FOREVER, first.opened, "x")
        (third,) = await store.swap_breakers([BreakerSwap(name=NAME, expected=2, rev=3, open_for=0)])
        assert (third.until, third.opened, third.doc) == (0, 0, "")
        assert (third.size, third.per, third.burst, third.share, third.span) == (1, OPEN_FOR, 3, 0, 0)

    @pytest.mark.parametrize("cause", [Outcome.LOST, Outcome.CRASHED])
    async def test_a_lost_worker_is_one_failure(self, store: Store, cause: Outcome) -> None:
        """However many of its jobs are guarded."""
        await guarded(store, 40)
        told: list[BreakerRow] = []
        for n in range(3):
            hand = await Hand(store).join()
            assert len(await hand.take(4)) == 4
            assert (await look(store)).failures == n
            told += await count_lost_worker(store, await store.rescue(hand.name, hand.beats, cause), cause)
            assert not (await store.rescue(hand.name, hand.beats, cause)).taken
        found = await look(store)
        assert (found.state, found.failures) == ("open", 3)
        assert cause.value in found.error
        assert told == [found]

    @pytest.mark.parametrize("cause", [Outcome.CRASHED, Outcome.INTERRUPTED])
    async def test_retired_workers_count_if_they_crashed(self, store: Store, cause: Outcome) -> None:
        await guarded(store)
        hand = await Hand(store).join()
        guilty, *_ = await hand.take(3)
        acks = [failure(guilty)]
        retired = await store.retire(hand.name, cause, acks)
        await count_lost_worker(store, retired, cause, acks)
        assert (await look(store)).failures == 1 + (cause is Outcome.CRASHED)

    @pytest.mark.parametrize("end", ["crashes", "cancel order", "ack"])
    async def test_a_crash_counts_by_a_job_that_ends_with_it(self, store: Store, end: str) -> None:
        """The job is in history when its breaker is looked up."""
        made = job(buckets=[guard()], crashes=1 if end == "crashes" else 3)
        await put_in(store, made)
        hand = await Hand(store).join()
        (claim,) = await hand.take(1)
        if end == "cancel order":
            await store.act(Action.CANCEL, Query(ids=(made.id,)))
        acks = [Ack.dead(lease(claim), ERROR, Reason.TIMED_OUT, fault="Timeout: x")] if end == "ack" else []
        retired = await store.retire(hand.name, Outcome.CRASHED, acks)
        await count_lost_worker(store, retired, Outcome.CRASHED, acks)
        assert (await row(store, made)).state is (State.CANCELLED if end == "cancel order" else State.DEAD)
        assert (await look(store)).failures == 1

    async def test_failures_that_race_count_once_each(self, store: Store, second_store: Store) -> None:
        many = Limit(name=NAME, kind="breaker", size=1, per=OPEN_FOR, burst=1000)
        await guarded(store, 60, many)
        hands = [await Hand(each).join() for each in (store, second_store) * 3]
        claims = await asyncio.gather(*(hand.take(10) for hand in hands))
        await asyncio.gather(*(fail(hand, *mine) for hand, mine in zip(hands, claims, strict=True)))
        assert (await look(store)).failures == sum(map(len, claims))

    async def test_jobs_with_a_limit_and_a_breaker_obey_both(self, store: Store, clock: MovableClock) -> None:
        both = [job(buckets=[guard(), bucket("tenant", 2, key=str(n % 2)), bucket("gate", 3)]) for n in range(12)]
        await put_in(store, *both)
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert len(claims) == 3
        await fail(hand, *claims)
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert (said.claims, said.next_at) == ((), clock.now_us() + OPEN_FOR)
        clock.advance("30s")
        (probe,) = await hand.take(9)
        await hand.succeed(probe)
        assert len(await hand.take(9)) == 3

    async def test_the_last_declaration_applies(self, store: Store) -> None:
        await guarded(store)
        """For a worker with the row that it reads next: the row of the store shows the options."""
        hand, other = await Hand(store).join(), await Hand(store).join()
        claims, others = await hand.take(3), await other.take(1)
        await fail(hand, *claims[:2])
        wider = Limit(name=NAME, kind="breaker", size=2, per=SECOND, burst=4, share=0)
        await store.declare_limits([wider])
        assert await store.limits() == [LimitRow(limit=wider)]
        await fail(other, *others)
        assert (await look(store)).state == "closed"
        await fail(hand, claims[2])
        assert (await look(store)).until == (await store.now()) + SECOND
        await store.declare_limits([HALF])
        assert await store.limits() == [LimitRow(limit=HALF)]

    async def test_a_forgotten_breaker_lets_every_job_through(self, store: Store) -> None:
        hand = await opened(store)
        assert await store.forget_limit(NAME)
        assert len(await hand.take(5)) == 5
        assert await store.buckets([guard()]) == []
        await store.declare_limits([THRICE])
        assert await look(store) == BreakerRow(name=NAME)
