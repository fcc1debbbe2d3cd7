"""Limits when two transactions meet: no place is given twice, none lies idle, no open transaction is waited for."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import psycopg
import pytest

from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import QueueSettings
from mainspring.states import Action
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.constants import RECHECK_SLICE
from mainspring.testing.contract.hands import HOUR, LANE, Hand, bucket, ids, job, lease, limits_of, one, put_in, running
from mainspring.testing.contract.limits.resized import KEYS, taken, waiting
from mainspring.worker.records import Turn, TurnResult, Want
from tests.stores.postgres.sides import Sides

GATE = bucket("gate", 1)
TENANT = bucket("tenant", 1, key="7")


def turn(hand: Hand, *acks: Ack, n: int = 9) -> Turn:
    wants = (Want((LANE,), n),) if n else ()
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, acks=acks, wants=wants)


async def rows(store: PostgresStore, sides: Sides, columns: str = "lane, waits_for") -> list[Any]:
    side = await sides.open()
    found = await side.run(f"select {columns} from {store.schema}.keyed_lanes order by id")
    await side.commit()
    return found


async def followed(hand: Hand) -> TurnResult:
    """The last of the turns that it takes to look at everything."""
    said = await hand.turn(wants=[Want((LANE,), 9)])
    while said.more and not said.claims:
        said = await hand.turn(wants=[Want((LANE,), 9)])
    return said


async def resize_in_one_statement(store: PostgresStore, sides: Sides) -> None:
    """A client that is gone after the statement."""
    side = await sides.open()
    await side.run(f"select {store.schema}.set_limit_size_v1('tenant', 2)")
    await side.commit()


class TestParking:
    async def test_an_ack_that_waited_for_a_turn_opens_the_parked_lane(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store, job(queue="own", buckets=[TENANT]))
        waiting = await one(store, job(buckets=[TENANT]))
        other = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        assert (await first.turn(turn(other))).claims == ()
        ack = turn(hand, Ack.succeeded(lease(claim)), n=0)
        await sides.behind(first, second, lambda: second.turn(ack))
        assert await rows(store, sides, "waits_for") == [(None,)]
        assert ids((await followed(await Hand(store).join())).claims) == [waiting.id]

    async def test_a_lane_is_not_parked_while_its_capacity_is_being_released(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The turn skips the bucket, the reply says that there may be more, and the next turn claims the job."""
        hand, claim = await running(store, job(queue="own", buckets=[TENANT]))
        waiting = await one(store, job(buckets=[TENANT]))
        other = await Hand(store).join()
        side = await sides.open()
        await side.turn(turn(hand, Ack.succeeded(lease(claim)), n=0))
        said = await asyncio.wait_for(other.turn(wants=[Want((LANE,), 9)]), 30)
        assert (said.claims, said.more) == ((), True)
        await side.commit()
        assert ids((await followed(other)).claims) == [waiting.id]

    async def test_a_rescue_opens_a_lane_that_was_parked_meanwhile(self, store: PostgresStore, sides: Sides) -> None:
        hand, _ = await running(store, job(queue="own", buckets=[TENANT]))
        waiting = await one(store, job(buckets=[TENANT]))
        other = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.turn(turn(other))
        await sides.behind(first, second, lambda: second.rescue(hand.name, hand.beats))
        assert ids((await followed(await Hand(store).join())).claims) == [waiting.id]

    @pytest.mark.parametrize("why", ["stuck", "empty"])
    async def test_capacity_that_a_lane_cannot_use_goes_to_the_next_lane(self, store: PostgresStore, why: str) -> None:
        """One place, two lanes parked on it: the opened lane is full of another key by now, or empty."""
        region, good, bad = (
            bucket("region", 1, key="r"),
            bucket("tenant", 1, key="good"),
            bucket("tenant", 1, key="bad"),
        )
        hand, claim = await running(store, job(queue="own", buckets=[region]))
        first, second = job(buckets=[region, bad], priority=9), job(buckets=[region, good])
        await put_in(store, first, second)
        other = await Hand(store).join()
        assert (await followed(other)).claims == ()
        if why == "stuck":
            assert (await store.hold(b"guest", [bad], HOUR)).ok
        else:
            await store.act(Action.CANCEL, Query(ids=(first.id,)))
        await hand.succeed(claim)
        assert ids((await followed(other)).claims) == [second.id]

    async def test_a_full_lane_is_parked_after_one_read(self, store: PostgresStore, sides: Sides) -> None:
        await put_in(store, *(job(buckets=[TENANT]) for _ in range(3)))
        hand = await Hand(store).join()
        assert len(await hand.take(1)) == 1
        ((_, waits_for),) = await rows(store, sides)
        assert waits_for == "tenant=7"


class TestLanes:
    async def test_the_row_of_a_lane_is_kept_during_an_enqueue(self, store: PostgresStore, sides: Sides) -> None:
        made, coming = await one(store, job(buckets=[TENANT])), job(buckets=[TENANT])
        hand = await Hand(store).join()
        side = await sides.open()
        await side.enqueue(coming)
        (claim,) = await asyncio.wait_for(hand.take(9), 30)
        assert claim.id == made.id
        assert len(await rows(store, sides)) == 1
        await hand.succeed(claim)
        await side.commit()
        assert ids((await followed(hand)).claims) == [coming.id]

    async def test_an_enqueue_that_waited_for_the_deletion_of_a_lane_inserts_it_again(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        await one(store, job(buckets=[bucket("tenant", 5, key="7")]))
        hand, coming = await Hand(store).join(), job(buckets=[bucket("tenant", 5, key="7")])
        first, second = await sides.open(), await sides.open()
        assert len((await first.turn(turn(hand))).claims) == 1
        await sides.behind(first, second, lambda: second.enqueue(coming))
        assert ids((await followed(await Hand(store).join())).claims) == [coming.id]

    async def test_a_job_enqueued_between_read_and_lock_keeps_the_row_of_its_lane(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The claim found the lane empty. It waits before it locks the row, and reads again after that."""
        busy, short = bucket("tenant", 1, key="busy"), bucket("tenant", 5, key="short")
        await put_in(store, job(buckets=[busy]), job(buckets=[busy]), job(buckets=[short]))
        await store.declare_limits([Limit(name="tenant", size=1)])
        hand, coming = await Hand(store).join(), job(buckets=[short])
        first, second = await sides.open(), await sides.open()
        await first.run(f"select 1 from {store.schema}.keyed_lanes where lane like '%busy' for update")
        claiming = asyncio.create_task(second.turn(turn(hand)))
        await sides.until_blocked(first, second, claiming)
        await put_in(store, coming)
        await first.commit()
        claims = (await claiming).claims
        assert len(claims) == 2
        await second.commit()
        hand.number, hand.seen = 1, 1
        await hand.succeed(*claims)
        assert coming.id in ids((await followed(hand)).claims)

    async def test_a_lane_is_ordered_by_its_first_job(self, store: PostgresStore) -> None:
        """However many jobs before that one were cancelled."""
        wide = [bucket("tenant", 9, key=key) for key in "abc"]
        gone = [job(buckets=[wide[n % 2]]) for n in range(6)]
        late = [job(buckets=[wide[n]]) for n in (2, 1, 0)]
        await put_in(store, *gone, *late)
        await store.act(Action.CANCEL, Query(ids=tuple(ids(gone))))
        hand = await Hand(store).join()
        for each in late:
            assert ids(await hand.take(1)) == [each.id]

    async def test_the_row_of_an_empty_lane_is_deleted(self, store: PostgresStore, sides: Sides) -> None:
        await put_in(store, *(job(buckets=[bucket("tenant", 9, key=key)]) for key in "aab"))
        hand = await Hand(store).join()
        assert len((await followed(hand)).claims) == 3
        assert await rows(store, sides) == []

    async def test_an_open_transaction_of_a_caller_blocks_no_lane(
        self, store: PostgresStore, sides: Sides, postgres_url: str
    ) -> None:
        """It enqueued in an existing lane, in a new lane, and with a new limit: turns go on, and the row is deleted."""
        made = await one(store, job(buckets=[TENANT]))
        hand = await Hand(store).join()
        coming = [job(buckets=[TENANT]), job(buckets=[bucket("tenant", 1, key="new")]), job(buckets=[GATE])]
        limits = (Limit(name="gate", size=1),)
        with psycopg.connect(postgres_url) as connection:
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=tuple(coming), limits=limits), connection)
            (claim,) = await asyncio.wait_for(hand.take(9), 30)
            assert claim.id == made.id
            assert await rows(store, sides) == []
            await asyncio.wait_for(hand.succeed(claim), 30)
        assert sorted(ids((await followed(hand)).claims)) == sorted(ids(coming))

    @pytest.mark.parametrize("level", list(psycopg.IsolationLevel))
    async def test_jobs_of_callers_with_any_isolation_level_are_found(
        self, store: PostgresStore, postgres_url: str, level: psycopg.IsolationLevel
    ) -> None:
        await one(store, job(buckets=[TENANT]))
        hand, coming = await Hand(store).join(), job(buckets=[TENANT])
        with psycopg.connect(postgres_url) as connection:
            connection.isolation_level = level
            connection.execute(f"select * from {store.schema}.keyed_lanes")
            await hand.succeed(*(await hand.take(9)))
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(coming,)), connection)
        assert ids((await followed(hand)).claims) == [coming.id]

    async def test_duplicate_rows_of_a_lane_become_one(
        self, store: PostgresStore, sides: Sides, postgres_url: str
    ) -> None:
        wide = bucket("tenant", 9, key="7")
        await one(store, job(buckets=[wide]))
        with psycopg.connect(postgres_url) as connection:
            for _ in range(4):
                store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(job(buckets=[wide]),)), connection)
        assert len(await rows(store, sides)) == 5
        hand = await Hand(store).join()
        assert len(await hand.take(4)) == 4
        assert len(await rows(store, sides)) == 2, "four of the five were looked at"
        assert len(await hand.take(4)) == 1
        assert await rows(store, sides) == []

    async def test_a_lane_that_no_worker_claims_from_is_pruned(self, store: PostgresStore, sides: Sides) -> None:
        """The capacity that it was opened for goes to the next lane."""
        region, gone = bucket("region", 1, key="r"), job(queue="gone", buckets=[bucket("region", 1, key="r")])
        hand, claim = await running(store, job(queue="own", buckets=[region]))
        await put_in(store, gone, job(buckets=[region]))
        for lane in ("gone/any", LANE):
            assert await hand.take(1, lane) == ()
        await hand.succeed(claim)
        side = await sides.open()
        await side.run(f"delete from {store.schema}.jobs where id = %s returning 1", (gone.id,))
        await side.prune_others()
        await side.commit()
        assert [lane.partition("/")[0] for lane, _ in await rows(store, sides)] == ["q"]
        assert len(await hand.take(1)) == 1


class TestUnkeyedLimits:
    async def test_a_turn_does_not_wait_for_an_unkeyed_limit_that_is_known_to_be_full(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        hand, claim = await running(store, job(queue="own", buckets=[GATE]))
        plain, waiting = job(priority=-9), job(buckets=[GATE])
        await put_in(store, plain, waiting)
        other = await Hand(store).join()
        assert ids(await other.take(9)) == [plain.id]
        side = await sides.open()
        await side.turn(turn(hand, Ack.succeeded(lease(claim)), n=0))
        assert await asyncio.wait_for(other.take(9), 30) == ()
        await side.commit()
        assert ids(await other.take(9)) == [waiting.id]

    async def test_released_capacity_wakes_the_queues_that_recorded_a_wait(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The record is written under the lock that the releasing turn waits for."""
        hand, claim = await running(store, job(queue="own", buckets=[GATE]))
        await one(store, job(buckets=[GATE]))
        other = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.turn(turn(other))
        waiting = asyncio.create_task(second.run(f"select * from {store.schema}.lock_buckets_v1('{{gate}}')"))
        await sides.until_blocked(first, second, waiting)
        await first.commit()
        await waiting
        assert await second.run(f"select bucket, queue from {store.schema}.waiting_queues") == [("gate", "q")]
        await second.commit()
        listener = await store.listen(other.name, ["q"])
        await hand.succeed(claim)
        assert await listener.wait(10)
        listener.close()

    @pytest.mark.parametrize("mark", ["", "!", "?"])
    async def test_released_capacity_of_an_unkeyed_limit_wakes_keyed_lanes(
        self, store: PostgresStore, mark: str
    ) -> None:
        """Of every lane set with keys: ordinary lanes, suspects, parked lanes."""
        hand, claim = await running(store, job(queue="own", buckets=[GATE]))
        _, stopped = await running(store, job(buckets=[bucket("tenant", 1, key="7")], crashes=2))
        other = await Hand(store).join()
        await store.set_limit_size("tenant", 5)
        limited = await one(store, job(buckets=[GATE, TENANT], crashes=2))
        if mark:
            await store.set_limit_size("gate", 2)
            worker = await Hand(store).join()
            (taken,) = await worker.take(9)
            assert taken.id == limited.id != stopped.id
            if mark == "!":
                await worker.crash()
            else:
                await worker.turn(Ack.returned(lease(taken), park=True))
            await store.set_limit_size("gate", 1)
        said = await other.turn(wants=[Want((LANE,), 9)])
        assert said.claims == ()
        listener = await store.listen(other.name, ["q"])
        while await listener.wait(0.1):
            pass
        await hand.succeed(claim)
        assert await listener.wait(10)
        listener.close()
        assert ids((await followed(other)).claims) == [limited.id]

    async def test_two_turns_with_one_key_do_not_wait(self, store: PostgresStore, sides: Sides) -> None:
        """The second turn claims the other jobs and asks again."""
        mine, theirs = [job(buckets=[TENANT]) for _ in range(2)], job(buckets=[bucket("tenant", 1, key="8")])
        await put_in(store, *mine, theirs)
        here, there = await Hand(store).join(), await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        assert ids((await first.turn(turn(here, n=1))).claims) == [mine[0].id]
        said = await asyncio.wait_for(second.turn(turn(there)), 30)
        assert (ids(said.claims), said.more) == ([theirs.id], True)
        await first.commit()
        await second.commit()
        assert [worker.running for worker in await store.workers()] == [1, 1]

    async def test_turns_that_insert_the_same_buckets_do_not_deadlock(self, store: PostgresStore) -> None:
        hands = [await Hand(store).join() for _ in range(4)]
        for step in range(5):
            keys = [f"{step}-{n}" for n in range(40)]
            await put_in(
                store, *(job(buckets=[bucket("tenant", 1, key=key), bucket(f"gate{step}", 99)]) for key in keys)
            )
            got = 0
            while got < len(keys):
                said = await asyncio.gather(*(hand.take(7) for hand in hands))
                got += sum(map(len, said))
        assert sum(worker.running for worker in await store.workers()) == 200


class TestCosts:
    async def test_a_job_that_costs_too_much_delays_no_other_lane(self, store: PostgresStore, sides: Sides) -> None:
        """The first 20 jobs cost more than the unkeyed bucket has left: their lanes wait until it has enough."""
        gate = bucket("calls", 10, per=HOUR)
        await running(store, job(queue="own", buckets=[bucket("calls", 10, per=HOUR, cost=5)]))
        dear = bucket("calls", 10, per=HOUR, cost=6)
        await put_in(store, *(job(buckets=[dear, bucket("tenant", 1, key=str(n))]) for n in range(20)))
        cheap = await one(store, job(buckets=[gate, bucket("tenant", 1, key="cheap")]))
        hand = await Hand(store).join()
        found: list[bytes] = []
        said = await hand.turn(wants=[Want((LANE,), 2)])
        found += ids(said.claims)
        while said.more and len(found) < 2:
            said = await hand.turn(wants=[Want((LANE,), 2)])
            found += ids(said.claims)
        assert found == [cheap.id]
        assert {on for _, on in await rows(store, sides)} == {"calls"}
        promoted = await store.promote()
        assert promoted.next_due is not None


class TestChanges:
    async def test_a_turn_that_waited_for_a_release_gets_the_capacity(self, store: PostgresStore, sides: Sides) -> None:
        assert (await store.hold(b"guest", [GATE], HOUR, [Limit(name="gate", size=1)])).ok
        made = await one(store, job(buckets=[GATE]))
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        assert await first.release(b"guest")
        said = await sides.behind(first, second, lambda: second.turn(turn(hand)))
        assert ids(said.claims) == [made.id]

    async def test_a_declaration_waits_for_a_turn_that_has_read_the_limit(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """No job starts by the old size after the declaration is confirmed."""
        await put_in(store, *(job(buckets=[bucket("gate", 5)]) for _ in range(9)))
        hand, other = await Hand(store).join(), await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        assert len((await first.turn(turn(hand, n=2))).claims) == 2
        await sides.behind(first, second, lambda: second.declare(Limit(name="gate", size=2)))
        assert await other.take(9) == ()

    async def test_a_turn_that_waited_for_a_declaration_obeys_it(self, store: PostgresStore, sides: Sides) -> None:
        await put_in(store, *(job(buckets=[bucket("tenant", 1, key="7")]) for _ in range(9)))
        hand = await Hand(store).join()
        first, second = await sides.open(), await sides.open()
        await first.declare(Limit(name="tenant", size=3))
        said = await sides.behind(first, second, lambda: second.turn(turn(hand)))
        assert len(said.claims) == 3

    async def test_a_declaration_without_a_change_does_not_wait(self, store: PostgresStore, sides: Sides) -> None:
        """An open turn holds the lock of the limit. A declaration that waited for it would fail by its time limit."""
        await put_in(store, job(buckets=[GATE]))
        hand = await Hand(store).join()
        side = await sides.open()
        await side.turn(turn(hand))
        await asyncio.wait_for(store.declare_limits([Limit(name="gate", size=1)]), 30)
        assert (await store.buckets([GATE]))[0].size == 1
        await side.rollback()

    async def test_a_declaration_that_waits_for_a_producer_blocks_no_turn(
        self, store: PostgresStore, sides: Sides, postgres_url: str
    ) -> None:
        made = await one(store, job())
        hand = await Hand(store).join()
        first = await sides.open()
        await first.enqueue(job(buckets=[GATE]))
        declaring = asyncio.create_task(store.declare_limits([Limit(name="gate", size=3)]))
        await sides.until_waiting(1)
        assert ids(await asyncio.wait_for(hand.take(9), 30)) == [made.id]
        await first.commit()
        await declaring
        assert [row.limit.size for row in await store.limits()] == [3]


async def test_unusual_and_long_keys_have_buckets_too(store: PostgresStore) -> None:
    """The length of a name in an index is limited, and PostgreSQL stores no NUL."""
    keys = ["x" * 5000, "🐛" * 2000, "a\0b"]
    hand = await Hand(store).join()
    for key in keys:
        each = Bucket("tenant", key)
        await store.enqueue(
            JobBatch(
                id=new_id().bytes,
                jobs=(job(buckets=[each]), job(buckets=[each])),
                limits=(Limit(name="tenant", size=1),),
            )
        )
        assert len((await followed(hand)).claims) == 1
        (found,) = await store.buckets([each])
        assert (found.name, found.used, len(found.holders)) == (each.name, 1, 1)
        said = await store.hold(b"guest", [each], HOUR)
        assert (said.ok, said.full) == (False, each.name)


async def test_an_open_transaction_that_is_first_to_name_a_limit_or_queue_blocks_no_process(
    store: PostgresStore, postgres_owner_url: str
) -> None:
    """Neither a worker that declares it nor another producer. Both find it."""
    deep = (("q", QueueSettings(order="lifo")),)
    gate = bucket("new", 1)
    waiting = job(buckets=[gate])
    with psycopg.connect(postgres_owner_url) as late:
        store.enqueue_now(JobBatch(id=os.urandom(16), jobs=(waiting,), limits=limits_of([waiting]), queues=deep), late)
        await store.declare_limits([Limit(name="new", kind="concurrency", size=2)])
        await store.configure_queue("q", QueueSettings(order="fifo"), declared=True)
        await put_in(store, job(buckets=[gate]), job(buckets=[gate]))
    hand = await Hand(store).join()
    assert len(await hand.take(9)) == 2


class TestRechecks:
    async def test_a_change_rechecks_a_slice_of_waiting_lanes_in_its_own_step(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The client that changed the limit may end after this one statement."""
        tenants = [bucket("tenant", 1, key=str(n)) for n in range(5)]
        await put_in(store, *(job(buckets=[each]) for each in tenants for _ in range(2)))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 5
        assert (await followed(hand)).claims == ()
        assert {parked for _, parked in await rows(store, sides)} == {f"tenant={n}" for n in range(5)}
        await resize_in_one_statement(store, sides)
        assert {parked for _, parked in await rows(store, sides)} == {None}
        assert len(await hand.take(9)) == 5

    async def test_promotions_finish_an_interrupted_recheck(self, store: PostgresStore, sides: Sides) -> None:
        """The client that changed the limit is gone after the first slice of the waiting lanes was rechecked."""
        hand = await waiting(store)
        await resize_in_one_statement(store, sides)
        parked = [name for _, name in await rows(store, sides) if name is not None]
        assert len(parked) == KEYS - RECHECK_SLICE
        assert (await store.promote()).next_due is None
        assert await taken(hand) == KEYS
