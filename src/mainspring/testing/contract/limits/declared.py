"""Limits: declared by name, changed at run time, counted by key; never exceeded, and never left unused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Bucket, Limit, LimitRow
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, LANE, SECOND, Hand, bucket, ids, job, lease, one, put_in, row
from mainspring.worker.records import Claim, Want

__all__ = ["TestBucketRows", "TestDeclaredLimits", "TestHolders", "TestKeyedLanes"]


def tenant(key: object, size: int = 1) -> Bucket:
    return bucket("tenant", size, key=str(key))


async def everything(hand: Hand, n: int, *lanes: str) -> list[Claim]:
    """All jobs that can be claimed, however many turns the store needs."""
    found: list[Claim] = []
    more = True
    while more and len(found) < n:
        said = await hand.turn(wants=[Want(lanes or (LANE,), n - len(found))])
        found += said.claims
        more = said.more
    return found


DOORS = ["cancel", "delete", "reprioritise", "expire"]
"""By which a job that waits leaves its place, other than a claim."""


async def leave(store: Store, made: NewJob, door: str, clock: MovableClock) -> None:
    if door == "expire":
        clock.advance("2s")
        await store.promote()
    else:
        await store.act(Action(door), Query(ids=(made.id,)), priority=-5)


@pytest.mark.asyncio
class TestDeclaredLimits:
    async def test_a_limit_is_made_by_the_first_job_that_names_it(self, store: Store) -> None:
        await one(store, job(buckets=[bucket("gate", 2)]))
        await one(store, job(buckets=[bucket("gate", 9)]))
        assert await store.limits() == [LimitRow(limit=Limit(name="gate", size=2))]

    async def test_the_last_declaration_applies(self, store: Store, second_store: Store) -> None:
        await store.declare_limits([Limit(name="b", size=2), Limit(name="a", kind="rate", size=5, per=SECOND)])
        await second_store.declare_limits([Limit(name="b", size=3)])
        assert [each.limit for each in await store.limits()] == [
            Limit(name="a", kind="rate", size=5, per=SECOND),
            Limit(name="b", size=3),
        ]

    async def test_a_larger_size_applies_from_the_next_claim_on(self, store: Store, second_store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", 1)]) for _ in range(5)))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 1
        await second_store.declare_limits([Limit(name="gate", size=3)])
        assert len(await hand.take(9)) == 2

    async def test_no_job_starts_while_more_run_than_the_size(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", 3)]) for _ in range(9)))
        hand = await Hand(store).join()
        claims = await hand.take(9)
        await store.declare_limits([Limit(name="gate", size=1)])
        await hand.succeed(*claims[:2])
        assert await hand.take(9) == ()
        await hand.succeed(claims[2])
        assert len(await hand.take(9)) == 1

    async def test_a_size_set_by_hand_outlives_declarations(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", 3)]) for _ in range(9)))
        assert await store.set_limit_size("gate", 1)
        await store.declare_limits([Limit(name="gate", size=5)])
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 1
        assert await store.limits() == [LimitRow(limit=Limit(name="gate", size=5), size=1)]
        assert await store.set_limit_size("gate", None)
        assert len(await hand.take(9)) == 4

    async def test_a_size_of_zero_starts_no_job(self, store: Store) -> None:
        await one(store, job(buckets=[bucket("gate", 3)]))
        await store.set_limit_size("gate", 0)
        hand = await Hand(store).join()
        assert await hand.take(9) == ()
        await store.set_limit_size("gate", None)
        assert len(await hand.take(9)) == 1

    async def test_setting_or_forgetting_an_unknown_limit_returns_false(self, store: Store) -> None:
        assert not await store.set_limit_size("gate", 1)
        assert not await store.forget_limit("gate")

    async def test_a_forgotten_limit_lets_every_job_through(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", 1)]) for _ in range(3)))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 1
        assert await store.forget_limit("gate")
        assert len(await hand.take(9)) == 2
        assert await store.limits() == []

    @pytest.mark.parametrize("how", ["declare", "set_size", "forget"])
    async def test_more_capacity_wakes_listeners(self, store: Store, second_store: Store, how: str) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", 1)]) for _ in range(3)))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 1
        listener = await store.listen(hand.name, ["q"])
        while await listener.wait(0.1):
            pass
        match how:
            case "declare":
                await second_store.declare_limits([Limit(name="gate", size=3)])
            case "set_size":
                await second_store.set_limit_size("gate", 3)
            case _:
                await second_store.forget_limit("gate")
        assert await listener.wait(10)
        listener.close()

    @pytest.mark.parametrize("per", [0, SECOND], ids=["concurrency", "rate"])
    async def test_a_turn_names_the_queues_that_a_limit_held_back(self, store: Store, per: int) -> None:
        """So a worker does not take a queue for empty while a limit blocks its jobs."""
        gate = bucket("gate", 2, per=per)
        await put_in(store, *(job(queue=queue, buckets=[gate]) for queue in ("a", "b", "b")), job(queue="c"))
        await put_in(store, job(queue="d", buckets=[bucket("key", 1, key="7")]))
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((f"{queue}/any",), 9) for queue in "dabce"])
        assert [(claim.queue) for claim in said.claims] == ["d", "a", "b", "c"]
        assert said.held == ("b",)
        said = await hand.turn(wants=[Want(tuple(f"{queue}/any" for queue in "abcde"), 9)])
        assert (said.claims, said.held) == ((), ("b",))

    async def test_the_kind_of_a_limit_can_be_changed(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", 1)]) for _ in range(5)))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 1
        await store.declare_limits([Limit(name="gate", kind="rate", size=2, per=SECOND)])
        clock.advance("1s")
        assert len(await hand.take(9)) == 2


@pytest.mark.asyncio
class TestKeyedLanes:
    async def test_each_key_has_its_own_capacity(self, store: Store, second_store: Store) -> None:
        await put_in(store, *(job(buckets=[tenant(n % 3, 2)]) for n in range(12)))
        first, second = await Hand(store).join(), await Hand(second_store).join()
        got = [*await first.take(4), *await second.take(9)]
        assert len(got) == 6
        assert await first.take(9) == ()

    @pytest.mark.parametrize("key", ["a=b", "a,b", "it's {7} 🐛", "x" * 1000, "!?#~", " ", "A", "a"])
    async def test_keys_are_any_text(self, store: Store, key: str) -> None:
        jobs = [job(buckets=[tenant(key)]), job(buckets=[tenant("a")]), job(buckets=[tenant(key)])]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        assert len(await everything(hand, 9)) == (1 if key == "a" else 2)

    async def test_limits_and_keys_that_read_alike_are_different_buckets(self, store: Store) -> None:
        await put_in(store, job(buckets=[bucket("a", 1, key="b:c")]), job(buckets=[bucket("a:b", 1, key="c")]))
        assert len(await (await Hand(store).join()).take(9)) == 2

    async def test_priority_and_arrival_order_jobs_of_different_keys(self, store: Store) -> None:
        keys = (1, 1, 2, 3, 2, 1)
        jobs = [job(buckets=[tenant(key, 9)], priority=p) for key, p in zip(keys, (0, 5, 0, 5, 9, 0), strict=True)]
        plain = job(priority=5)
        await put_in(store, *jobs[:3], plain, *jobs[3:])
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids([jobs[4], jobs[1], plain, jobs[3], jobs[0], jobs[2], jobs[5]])

    @pytest.mark.parametrize("key", [7, 8])
    async def test_an_old_job_that_waited_for_capacity_comes_first(
        self, store: Store, clock: MovableClock, key: int
    ) -> None:
        """Freed capacity goes to the lane whose first job has the lowest order key."""
        await one(store, job(queue="own", buckets=[tenant(7), tenant(8)]))
        hand = await Hand(store).join()
        claim = await hand.take_one("own/any")
        old = await one(store, job(buckets=[tenant(key)], priority=-1))
        clock.advance("11h")
        await put_in(store, *(job(buckets=[tenant(each)], priority=9) for each in (7, 8, 7, 8)))
        assert await everything(hand, 9) == []
        await hand.succeed(claim)
        assert ids(await hand.take(1)) == [old.id]

    @pytest.mark.parametrize("door", DOORS)
    async def test_an_old_job_behind_one_that_left_the_lane_comes_first(
        self, store: Store, clock: MovableClock, door: str
    ) -> None:
        """The lane of the job that left has a younger job and does not come first any more."""
        await one(store, job(queue="own", buckets=[tenant(7)]))
        hand = await Hand(store).join()
        claim = await hand.take_one("own/any")
        gone = await one(store, job(buckets=[tenant(7)], priority=9, expires_in=SECOND if door == "expire" else None))
        old = await one(store, job(buckets=[tenant(7)]))
        clock.advance("10h")
        await one(store, job(buckets=[tenant(7)], priority=9))
        assert await everything(hand, 9) == []
        await leave(store, gone, door, clock)
        await hand.succeed(claim)
        assert ids(await hand.take(1)) == [old.id]

    async def test_age_is_compared_over_all_keys(self, store: Store, clock: MovableClock) -> None:
        old = await one(store, job(buckets=[tenant(1, 9)], priority=-50))
        clock.advance("51h")
        await put_in(store, *(job(buckets=[tenant(n, 9)]) for n in range(5)))
        hand = await Hand(store).join()
        assert ids(await hand.take(2))[0] == old.id

    async def test_a_full_key_holds_back_no_other_key(self, store: Store) -> None:
        flood = [job(buckets=[tenant("flood")], priority=100) for _ in range(300)]
        others = [job(buckets=[tenant(n)]) for n in range(5)]
        await put_in(store, *flood, *others)
        hand = await Hand(store).join()
        assert ids(await hand.take(6)) == ids([flood[0], *others])

    @pytest.mark.parametrize("limited", ["key", "gate"])
    async def test_keys_with_capacity_are_found_behind_many_full_keys(self, store: Store, limited: str) -> None:
        """A thousand full keys come first."""
        await store.declare_limits([Limit(name="tenant", size=1), Limit(name="gate", size=5000)])
        gate = [bucket("gate", 5000)] if limited == "gate" else []
        await put_in(store, *(job(buckets=[tenant(n), *gate]) for n in range(1000)))
        hand = await Hand(store).join()
        assert len(await everything(hand, 1000)) == 1000
        await put_in(store, *(job(buckets=[tenant(n), *gate], priority=100) for n in range(1000)))
        lonely = await one(store, job(buckets=[tenant("lonely"), *gate]))
        assert ids(await everything(hand, 5)) == [lonely.id]

    async def test_freed_capacity_goes_to_the_waiting_key(self, store: Store, second_store: Store) -> None:
        jobs = [job(buckets=[tenant(1)]) for _ in range(3)]
        await put_in(store, *jobs)
        first, second = await Hand(store).join(), await Hand(second_store).join()
        claim = await first.take_one()
        assert await second.take(9) == ()
        for following in jobs[1:]:
            await first.succeed(claim)
            (claim,) = await second.take(9)
            assert claim.id == following.id
            first, second = second, first

    @pytest.mark.parametrize("door", ["ack", "rescue", "retire"])
    @pytest.mark.parametrize("key", ["", "1"], ids=["gate", "key"])
    async def test_freed_capacity_wakes_listeners(self, store: Store, second_store: Store, door: str, key: str) -> None:
        """Of every queue with a job that waits for the capacity."""
        await put_in(store, *(job(queue=queue, buckets=[bucket("tenant", 1, key=key)]) for queue in "qab"))
        hand, other = await Hand(store).join(), await Hand(second_store).join()
        claim = await hand.take_one()
        assert await other.take(9, "a/any", "b/any") == ()
        listeners = [await second_store.listen(other.name, [queue]) for queue in "ab"]
        for listener in listeners:
            while await listener.wait(0.1):
                pass
        match door:
            case "ack":
                await hand.succeed(claim)
            case "rescue":
                await store.rescue(hand.name, hand.beats, Outcome.LOST)
            case _:
                await store.retire(hand.name, Outcome.INTERRUPTED)
        woken = await asyncio.gather(*(listener.wait(10) for listener in listeners))
        assert any(woken)
        for listener in listeners:
            listener.close()

    async def test_capacity_that_one_key_cannot_use_goes_to_the_next(self, store: Store) -> None:
        """Two keyed limits: the first job that waits for the free capacity is blocked by the other limit."""
        region, full = bucket("region", 1, key="r"), bucket("tenant", 1, key="full")
        holding, first = job(buckets=[region]), job(buckets=[full])
        stuck = [job(buckets=[region, full], priority=9) for _ in range(3)]
        good = job(buckets=[region, bucket("tenant", 1, key="good")])
        await put_in(store, holding, first)
        hand = await Hand(store).join()
        claims = await hand.take(9)
        await put_in(store, *stuck, good)
        assert await hand.take(9) == ()
        await hand.succeed(claims[0])
        assert ids(await everything(hand, 9)) == [good.id]
        await hand.succeed(claims[1])
        assert await hand.take(9) == ()

    async def test_empty_lanes_disappear_and_return(self, store: Store, second_store: Store) -> None:
        """A job that comes to a lane just emptied is found."""
        hand, other = await Hand(store).join(), await Hand(second_store).join()
        for turn in range(20):
            made = await one(store if turn % 2 else second_store, job(buckets=[tenant(turn % 2)]))
            claim = await hand.take_one()
            assert claim.id == made.id
            assert await other.take(9) == ()
            await hand.succeed(claim)

    async def test_cancelled_first_jobs_do_not_block_a_lane(self, store: Store) -> None:
        jobs = [job(buckets=[tenant(1, 9)], priority=n % 3) for n in range(9)]
        await put_in(store, *jobs)
        await store.act(Action.CANCEL, Query(ids=tuple(ids(jobs[:8]))))
        hand = await Hand(store).join()
        assert ids(await everything(hand, 9)) == [jobs[8].id]

    @pytest.mark.parametrize("door", DOORS)
    async def test_freed_capacity_wakes_a_job_behind_a_cancelled_first_job(
        self, store: Store, clock: MovableClock, door: str
    ) -> None:
        await put_in(store, job(queue="a", buckets=[tenant(1)]))
        hand, other = await Hand(store).join(), await Hand(store).join()
        holding = await hand.take_one("a/any")
        head, behind = job(buckets=[tenant(1)], expires_in=SECOND), job(buckets=[tenant(1)])
        await put_in(store, head, behind)
        assert await other.take(9) == ()
        listener = await store.listen(other.name, ["q"])
        while await listener.wait(0.1):
            pass
        await leave(store, head, door, clock)
        await hand.succeed(holding)
        assert await listener.wait(10)
        assert ids(await everything(other, 1)) == [behind.id]
        listener.close()

    @pytest.mark.parametrize("door", DOORS)
    async def test_no_job_waits_for_the_rate_of_a_cancelled_first_job(
        self, store: Store, clock: MovableClock, door: str
    ) -> None:
        """The cancelled job cost more than the capacity that is left; the jobs behind it cost less."""
        dear, cheap = (bucket("calls", 100, key="7", cost=cost, per=HOUR) for cost in (60, 1))
        first, head, behind = job(buckets=[dear]), job(buckets=[dear], expires_in=SECOND), job(buckets=[cheap])
        await put_in(store, first, head, behind)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == [first.id]
        await leave(store, head, door, clock)
        assert ids(await everything(hand, 9)) == [behind.id]

    async def test_reprioritised_jobs_are_found(self, store: Store) -> None:
        jobs = [job(buckets=[tenant(n, 9)]) for n in (1, 1, 2)]
        await put_in(store, *jobs)
        await store.act(Action.REPRIORITISE, Query(ids=(jobs[1].id,)), priority=50)
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids([jobs[1], jobs[0], jobs[2]])

    async def test_limited_jobs_return_to_their_lane(self, store: Store, clock: MovableClock) -> None:
        """Retried, put off, handed back, parked and suspected: each finds its lane again."""
        hand = await Hand(store).join()
        made = await one(store, job(buckets=[tenant(1)], crashes=9))
        ways: tuple[Callable[[Claim], Ack], ...] = (
            lambda claim: Ack.failed(lease(claim), b"{}", retry_in=SECOND),
            lambda claim: Ack.snoozed(lease(claim), delay=SECOND),
            lambda claim: Ack.interrupted(lease(claim)),
            lambda claim: Ack.crashed(lease(claim), b"{}"),
            lambda claim: Ack.returned(lease(claim), park=True),
        )
        for ack in ways:
            claim = await hand.take_one()
            await hand.turn(ack(claim))
            clock.advance("2s")
            await store.promote()
        assert (await hand.take_one()).id == made.id
        await hand.crash()
        clock.advance("1h")
        await store.promote()
        assert (await (await Hand(store).join()).take_one()).id == made.id

    async def test_capacity_stays_used_after_a_lost_reply(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[tenant(1)]) for _ in range(2)))
        hand = await Hand(store).join()
        claims = await hand.take(9)
        again = await hand.repeat()
        assert ids(again.claims) == ids(claims)
        assert len(await (await Hand(store).join()).take(9)) == 0

    @pytest.mark.parametrize("key", ["", "7"])
    async def test_limited_jobs_are_claimed_for_free_slots(self, store: Store, key: str) -> None:
        """Jobs claimed ahead of a free slot would use capacity without running."""
        limited = [job(buckets=[bucket("wide", 50, key=key)], priority=9) for _ in range(6)]
        plain = [job() for _ in range(6)]
        await put_in(store, *limited, *plain)
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want((LANE,), 2), Want((LANE,), 4, ahead=True)])
        assert ids(said.claims) == ids(limited[:2] + plain[:4])
        said = await hand.turn(wants=[Want((LANE,), 6, ahead=True)])
        assert ids(said.claims) == ids(plain[4:])
        assert len(await hand.take(9)) == 4

    async def test_racing_workers_never_exceed_a_key(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[tenant(n % 4, 2), bucket("gate", 5)]) for n in range(60)))
        hands = [await Hand(store).join() for _ in range(4)]
        done = 0
        while done < 60:
            taken = await asyncio.gather(*(hand.take(3) for hand in hands))
            running = [claim for claims in taken for claim in claims]
            assert len(running) <= 5
            for hand, claims in zip(hands, taken, strict=True):
                await hand.succeed(*claims)
            done += len(running)
            assert running, f"only {done} of 60 were handed out"
        assert (await store.count(Query.everything()))[State.SUCCEEDED] == 60


@pytest.mark.asyncio
class TestHolders:
    GATE = bucket("gate", 2)

    async def guest(self, store: Store, name: bytes, *buckets: Bucket, ttl: int = 30 * SECOND) -> bool:
        return (await store.hold(name, buckets or (self.GATE,), ttl, [Limit(name="gate", size=2)])).ok

    async def test_holders_and_jobs_share_the_capacity(self, store: Store) -> None:
        assert await self.guest(store, b"one")
        await put_in(store, *(job(buckets=[self.GATE]) for _ in range(3)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert await hand.take(9) == ()
        assert not await self.guest(store, b"two")
        await hand.succeed(claim)
        assert await self.guest(store, b"two")
        assert await hand.take(9) == ()
        assert await store.release(b"one")
        assert len(await hand.take(9)) == 1

    async def test_a_refused_hold_names_the_full_bucket(self, store: Store) -> None:
        for name in (b"one", b"two"):
            await self.guest(store, name)
        said = await store.hold(b"three", [self.GATE], SECOND)
        assert (said.ok, said.full, said.next_at) == (False, "gate", None)

    async def test_a_hold_gets_all_buckets_or_none(self, store: Store) -> None:
        await store.declare_limits([Limit(name="other", size=1)])
        assert (await store.hold(b"one", [Bucket("other")], SECOND)).ok
        assert not await self.guest(store, b"two", self.GATE, Bucket("other"))
        (found,) = await store.buckets([self.GATE])
        assert found.used == 0

    async def test_a_hold_ends_after_its_ttl(self, store: Store, clock: MovableClock) -> None:
        await self.guest(store, b"one", ttl=SECOND)
        await self.guest(store, b"two", ttl=60 * SECOND)
        await put_in(store, *(job(buckets=[self.GATE]) for _ in range(3)))
        hand = await Hand(store).join()
        assert await hand.take(9) == ()
        clock.advance("2s")
        assert len(await hand.take(9)) == 1
        assert not await store.release(b"one")

    async def test_holding_again_renews(self, store: Store, clock: MovableClock) -> None:
        for _ in range(5):
            said = await store.hold(b"one", [self.GATE], 2 * SECOND, [Limit(name="gate", size=2)])
            assert (said.ok, said.until) == (True, clock.now_us() + 2 * SECOND)
            clock.advance("1s")
        (found,) = await store.buckets([self.GATE])
        assert found.used == 1

    async def test_release_wakes_listeners_and_returns_true_once(self, store: Store, second_store: Store) -> None:
        for name in (b"one", b"two"):
            await self.guest(store, name)
        await one(store, job(buckets=[self.GATE]))
        hand = await Hand(store).join()
        assert await hand.take(9) == ()
        listener = await store.listen(hand.name, ["q"])
        while await listener.wait(0.1):
            pass
        assert await second_store.release(b"one")
        assert await listener.wait(10)
        assert not await second_store.release(b"one")
        assert len(await hand.take(9)) == 1
        listener.close()

    async def test_a_hold_counts_as_a_start_of_a_rate(self, store: Store, clock: MovableClock) -> None:
        calls = bucket("calls", 3, per=SECOND, cost=2)
        limits = [calls.declared] if calls.declared else []
        assert (await store.hold(b"one", [calls], SECOND, limits)).ok
        again = await store.hold(b"one", [calls], SECOND)
        assert again.ok, "the same guest starts nothing new"
        assert await store.release(b"one")
        said = await store.hold(b"two", [calls], SECOND)
        assert not said.ok
        assert said.next_at is not None
        clock.set(to_datetime(said.next_at))
        assert (await store.hold(b"two", [calls], SECOND)).ok


@pytest.mark.asyncio
class TestBucketRows:
    async def test_a_bucket_row_names_its_running_jobs(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[tenant(7, 2)]) for _ in range(5)))
        hand = await Hand(store).join()
        claims = await hand.take(9)
        (found,) = await store.buckets([Bucket("tenant", "7")])
        assert (found.name, found.limit, found.kind, found.size, found.used) == (
            "tenant=7",
            "tenant",
            "concurrency",
            2,
            2,
        )
        assert sorted(found.holders) == sorted(ids(claims))
        assert found.next_at is None

    async def test_a_job_row_names_its_buckets(self, store: Store) -> None:
        """While it lives, in any state and lane."""
        named = (Bucket("calls", "it's 7", 3), Bucket("gate"))
        made = await one(store, job(buckets=reversed(named), delay=SECOND))
        assert (await row(store, made)).buckets == named
        assert (await row(store, await one(store))).buckets == ()

    async def test_a_bucket_row_names_ten_jobs_at_most(self, store: Store) -> None:
        await put_in(store, *(job(buckets=[bucket("gate", 50)]) for _ in range(30)))
        await (await Hand(store).join()).take(30)
        (found,) = await store.buckets([Bucket("gate")])
        assert (found.used, len(found.holders)) == (30, 10)

    async def test_unknown_limits_are_left_out(self, store: Store) -> None:
        await store.declare_limits([Limit(name="gate", size=1)])
        rows = await store.buckets([Bucket("nobody"), Bucket("gate"), Bucket("gate", "new")])
        assert [(each.name, each.used) for each in rows] == [("gate", 0), ("gate=new", 0)]

    async def test_bucket_rows_agree_with_the_claim(self, store: Store) -> None:
        hand = await Hand(store).join()
        jobs: list[NewJob] = [job(buckets=[tenant(n % 2, 2), bucket("gate", 3)]) for n in range(8)]
        await put_in(store, *jobs)
        for _ in range(8):
            rows = await store.buckets([Bucket("gate"), Bucket("tenant", "0"), Bucket("tenant", "1")])
            room = {each.name: each.size - each.used for each in rows}
            may = room["gate"] > 0 and max(room["tenant=0"], room["tenant=1"]) > 0
            claims = await hand.take(1)
            assert bool(claims) is may
            if not claims:
                await hand.crash()
                hand = await Hand(store).join()
