"""Which ready job is claimed: by its order key, made of arrival and priority, and never an expired job."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import timedelta

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow, NewJob, order_key
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, SECOND, Hand, bucket, ids, job, lease, one, put_in, row, state
from mainspring.worker.records import Claim, Want

__all__ = ["TestAge", "TestClaimOrder", "TestOrderOfKeyedLanes"]


@pytest.mark.asyncio
class TestClaimOrder:
    async def test_higher_priority_comes_first(self, store: Store) -> None:
        low, high, normal = job(priority=-50), job(priority=100), job()
        await put_in(store, low, high, normal)
        hand = await Hand(store).join()
        assert ids(await hand.take(3)) == ids([high, normal, low])

    async def test_equal_priority_goes_by_arrival(self, store: Store) -> None:
        """By the store's order of arrival. The ids are made by clients and do not decide."""
        second, first = job(), job()
        await one(store, first)
        await one(store, second)
        hand = await Hand(store).join()
        assert (await hand.take_one()).id == first.id
        assert (await hand.take_one()).id == second.id

    async def test_a_claim_carries_the_job(self, store: Store, clock: MovableClock) -> None:
        made = await one(store, job(priority=9, record=b"body", expires_in=60 * SECOND))
        clock.advance("1s")
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert (claim.id, claim.task, claim.queue, claim.lane, claim.record) == (made.id, made.task, "q", LANE, b"body")
        assert (claim.priority, claim.attempt, claim.epoch, claim.crashes) == (9, 1, (await row(store, made)).epoch, 0)
        assert (claim.enqueued, claim.expires) == (clock.now_us() - SECOND, clock.now_us() + 59 * SECOND)
        assert (claim.turn, claim.early, claim.token) == (1, False, clock.now_us())

    async def test_a_claimed_job_runs_under_its_worker(self, store: Store, clock: MovableClock) -> None:
        made = await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        found = await row(store, made)
        assert (found.state, found.worker, found.token, found.attempt) == (State.RUNNING, hand.name, claim.token, 1)
        assert found.started == clock.now_us()

    async def test_a_job_is_handed_out_once(self, store: Store, second_store: Store) -> None:
        await put_in(store, *(job() for _ in range(3)))
        here, there = await Hand(store).join(), await Hand(second_store).join()
        taken = ids(await here.take(2)) + ids(await there.take(2)) + ids(await here.take(2))
        assert len(taken) == len(set(taken)) == 3

    async def test_a_turn_claims_no_more_than_wanted(self, store: Store) -> None:
        await put_in(store, *(job() for _ in range(5)))
        hand = await Hand(store).join()
        assert len(await hand.take(2)) == 2
        assert await hand.take(0) == ()

    async def test_a_turn_claims_only_from_the_named_lanes(self, store: Store) -> None:
        other, kin = job(queue="other"), job(kind="async")
        wanted = job()
        await put_in(store, other, kin, wanted)
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == [wanted.id]
        assert ids(await hand.take(5, "other/any", "q/async")) == ids([other, kin])

    async def test_a_queue_with_a_common_prefix_is_another_queue(self, store: Store) -> None:
        made = await one(store, job(queue="q2"))
        hand = await Hand(store).join()
        assert await hand.take(5, LANE) == ()
        assert ids(await hand.take(5, "q2/any")) == [made.id]

    async def test_named_lanes_are_merged(self, store: Store) -> None:
        """Several lanes of one want are ordered together, by priority and arrival."""
        jobs = [job(kind=kind, priority=priority) for priority in (0, 5) for kind in ("async", "any", "async", "any")]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        claims = await hand.take(8, "q/async", "q/any")
        assert ids(claims) == ids(jobs[4:] + jobs[:4])

    async def test_limited_lanes_are_merged_with_their_base_lane(self, store: Store) -> None:
        """A limit changes how many jobs run, and not their order."""
        gate = bucket("gate", 5)
        jobs = [job(), job(buckets=[gate]), job(), job(buckets=[gate]), job(priority=1, buckets=[gate])]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == ids([jobs[4], *jobs[:4]])

    async def test_wants_are_served_one_after_the_other(self, store: Store) -> None:
        """Each want has its own number of jobs; the same lane may be in several wants."""
        left, right, both = job(kind="async"), job(kind="thread"), [job() for _ in range(3)]
        await put_in(store, *both, left, right)
        hand = await Hand(store).join()
        said = await hand.turn(wants=[Want(("q/async", LANE), 2), Want(("q/thread", LANE), 2)])
        assert ids(said.claims) == ids([both[0], both[1], both[2], right])
        assert ids(await hand.take(5, "q/async")) == [left.id]

    async def test_a_job_that_is_ready_again_comes_after_waiting_jobs(self, store: Store) -> None:
        """Each entry into ready gives a new ``seq``."""
        first, second = job(), job()
        await put_in(store, first, second)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(Ack.interrupted(lease(claim)))
        assert ids(await hand.take(2)) == ids([second, first])

    async def test_an_expired_job_is_never_handed_out(self, store: Store, clock: MovableClock) -> None:
        """Also if no promotion ran since, and also if it is the first job of its lane."""
        stale, fresh = job(expires_in=5 * SECOND, priority=50), job()
        await put_in(store, stale, fresh)
        clock.advance("6s")
        hand = await Hand(store).join()
        assert ids(await hand.take(5)) == [fresh.id]
        await store.promote()
        assert await state(store, stale) == State.CANCELLED

    async def test_many_expired_jobs_do_not_hide_others(self, store: Store, clock: MovableClock) -> None:
        await put_in(store, *(job(expires_in=SECOND) for _ in range(300)))
        fresh = await one(store)
        clock.advance("2s")
        hand = await Hand(store).join()
        got: list[bytes] = []
        for _ in range(20):  # a turn may look at a bounded number of heads; those that follow go on
            got += ids(await hand.take(1))
        assert got == [fresh.id]


@pytest.mark.asyncio
class TestAge:
    """One point of priority is worth an hour of age, so the lowest priority never starves."""

    async def test_a_job_that_is_older_by_more_hours_than_points_comes_first(
        self, store: Store, clock: MovableClock
    ) -> None:
        old = await one(store, job(priority=-1))
        clock.advance("3h")
        newer, urgent = await one(store, job(priority=1)), await one(store, job(priority=4))
        hand = await Hand(store).join()
        assert ids(await hand.take(3)) == ids([urgent, old, newer])

    async def test_each_point_is_worth_one_hour(self, store: Store, clock: MovableClock) -> None:
        made = []
        for priority in (0, 2, 5, 3):
            made.append(await one(store, job(priority=priority)))
            clock.advance("90m")
        hand = await Hand(store).join()
        assert ids(await hand.take(4)) == ids([made[2], made[1], made[0], made[3]]), "at 0, -0.5, -2 and 1.5 hours"

    @pytest.mark.parametrize("n", [1, 2, 7, 40])
    async def test_jobs_of_many_priorities_and_ages_are_merged(self, store: Store, clock: MovableClock, n: int) -> None:
        """Over several claims, lanes, kinds of limits, and more jobs than one claim takes."""
        gate, placed = bucket("gate", 100), list[tuple[float, NewJob]]()
        for hour in range(12):
            for points in (0, 3, 7):
                kind, buckets = (("any", ()), ("async", ()), ("any", (gate,)))[(hour + points) % 3]
                made = await one(store, job(kind=kind, buckets=buckets, priority=points))
                placed.append((hour - points, made))
            clock.advance("1h")
            clock.advance("10s")
        hand = await Hand(store).join()
        got: list[bytes] = []
        while claims := await hand.take(n, "q/any", "q/async"):
            got += ids(claims)
        expected = sorted(range(len(placed)), key=lambda at: (placed[at][0] + at // 3 / 360, at))
        assert got == [placed[at][1].id for at in expected]

    async def test_age_is_counted_from_the_entry_into_ready(self, store: Store, clock: MovableClock) -> None:
        """A scheduled job, a retry and a job that was released are as old as their last entry."""
        delayed = await one(store, job(delay=90 * 60 * SECOND))
        clock.advance("1h")
        waiting = await one(store)
        clock.advance("1h")
        await store.promote()
        hand = await Hand(store).join()
        assert ids(await hand.take(2)) == ids([waiting, delayed])

    async def test_a_job_that_is_given_back_has_no_age(self, store: Store, clock: MovableClock) -> None:
        old = await one(store)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        clock.advance("2h")
        urgent = await one(store, job(priority=1))
        await hand.turn(Ack.interrupted(lease(claim)))
        assert ids(await hand.take(2)) == ids([urgent, old])

    async def test_a_new_priority_keeps_the_age(self, store: Store, clock: MovableClock) -> None:
        old = await one(store, job(priority=-5))
        clock.advance("2h")
        newer = await one(store, job(priority=1))
        hand = await Hand(store).join()
        await store.act(Action.REPRIORITISE, Query(ids=(old.id,)), priority=0)
        assert ids(await hand.take(1)) == [old.id]
        assert ids(await hand.take(1)) == [newer.id]

    async def test_age_keeps_the_limits(self, store: Store, clock: MovableClock) -> None:
        gate = bucket("gate", 1)
        first, second = await one(store, job(buckets=[gate])), await one(store, job(buckets=[gate]))
        clock.advance("9h")
        plain = await one(store, job(priority=5))
        hand = await Hand(store).join()
        assert ids(await hand.take(3)) == ids([first, plain])
        assert (await state(store, second)) == State.READY

    async def test_jobs_of_one_moment_keep_their_order(self, store: Store) -> None:
        """The clock does not move between them."""
        jobs = [await one(store) for _ in range(20)]
        more = [job() for _ in range(30)]
        await put_in(store, *more)
        hand = await Hand(store).join()
        assert ids(await hand.take(50)) == ids([*jobs, *more])

    async def test_a_clock_that_goes_back_keeps_the_order(self, store: Store, clock: MovableClock) -> None:
        jobs = [await one(store)]
        for hours in (-3, 1, -1):
            clock.set(clock.now() + timedelta(hours=hours))
            jobs.append(await one(store))
        hand = await Hand(store).join()
        assert ids(await hand.take(4)) == ids(jobs)


def place(row: JobRow) -> tuple[int, int]:
    """The place of a ready job in the order of the claims."""
    return order_key(row.seq, row.priority), row.seq


def first_of_each_lane(rows: Iterable[JobRow], busy: Iterable[str]) -> list[bytes]:
    """The jobs that a claim hands out if one job of each lane may run."""
    taken = set(busy)
    found: list[bytes] = []
    for each in sorted(rows, key=place):
        if each.lane not in taken:
            taken.add(each.lane)
            found.append(each.id)
    return found


@pytest.mark.asyncio
class TestOrderOfKeyedLanes:
    """Of the lanes whose key has capacity, the one with the lowest order key is first, whatever happened to its jobs
    while they waited."""

    async def _open_first(self, store: Store, *keys: str) -> tuple[list[NewJob], list[NewJob]]:
        """For each key, two jobs of priority 50 and 1 that have waited for a third one, which has ended."""
        only = [bucket("only", 1, key=key) for key in keys]
        hand = await Hand(store).join()
        await put_in(store, *(job(buckets=[each]) for each in only))
        claims = await hand.take(len(keys))
        urgent, usual = ([job(priority=n, buckets=[each]) for each in only] for n in (50, 1))
        await put_in(store, *urgent, *usual)
        assert await hand.take(1) == ()
        await hand.succeed(*claims)
        return urgent, usual

    async def test_the_cancelled_first_job_of_a_key_does_not_hide_the_next_one(self, store: Store) -> None:
        [urgent], [usual] = await self._open_first(store, "a")
        await store.act(Action.CANCEL, Query(ids=(urgent.id,)), limit=1)
        other = await one(store, job(buckets=[bucket("only", 1, key="b")]))
        hand = await Hand(store).join()
        assert [ids(await hand.take(1)) for _ in range(2)] == [[usual.id], [other.id]]

    async def test_first_jobs_that_have_moved_do_not_hide_others(self, store: Store, clock: MovableClock) -> None:
        """Each key has a later job of the priority of its cancelled first job."""
        urgent, usual = await self._open_first(store, "a", "b")
        clock.advance("60h")
        later = [job(priority=50, buckets=[bucket("only", 1, key=key)]) for key in "ab"]
        await put_in(store, *later)
        await store.act(Action.CANCEL, Query(ids=(*ids(urgent), usual[0].id)), limit=3)
        hand = await Hand(store).join()
        assert [ids(await hand.take(1)) for _ in range(2)] == [[usual[1].id], [later[0].id]]

    @pytest.mark.parametrize("seed", [5, 8, 9])
    async def test_a_random_walk_keeps_the_order(self, store: Store, clock: MovableClock, seed: int) -> None:
        """Jobs of three keys come, end and get other priorities, while two workers claim."""
        draw = random.Random(100 + seed)
        hands = [await Hand(store).join() for _ in range(2)]
        running: list[tuple[Hand, Claim]] = []
        for _ in range(150):
            match draw.choice(["put", "put", "take", "take", "end", "clock", "priority"]):
                case "put":
                    only = bucket("only", 1, key=draw.choice("abc"))
                    await one(store, job(priority=draw.choice([-50, 0, 0, 1, 50]), buckets=[only]))
                case "clock":
                    clock.advance(draw.choice([0.01, 60, 3700, 9000]))
                case "end" if running:
                    hand, claim = running.pop(draw.randrange(len(running)))
                    await hand.succeed(claim)
                case "priority":
                    rows = (await store.find(Query(states=(State.READY,)))).jobs
                    which = tuple(each.id for each in draw.sample(rows, min(1, len(rows))))
                    await store.act(Action.REPRIORITISE, Query(ids=which), priority=draw.choice([-50, 0, 1, 50]))
                case "take":
                    hand, n = draw.choice(hands), draw.choice([1, 2, 3])
                    rows = (await store.find(Query(states=(State.READY,)))).jobs
                    expected = first_of_each_lane(rows, [claim.lane for _, claim in running])[:n]
                    claims: list[Claim] = []
                    more = True
                    while more and len(claims) < n:
                        said = await hand.turn(wants=[Want((LANE,), n - len(claims))])
                        claims += said.claims
                        more = said.more
                    assert ids(claims) == expected
                    running += [(hand, claim) for claim in claims]
