"""The statements that limits cost on SQLite, and cases that only its lanes with keys have."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.query import Query
from mainspring.jobs.records import Retention
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import FairKey
from mainspring.states import Action
from mainspring.stores.base import NUMBERS_KEPT
from mainspring.stores.sqlite import SqliteStore, limits
from mainspring.stores.sqlite.jobs.claim import wants
from mainspring.stores.sqlite.limits import waiting
from mainspring.worker.records import Claim, Turn, Want

from .helpers import Worker, batch, job, jobs, succeeded

SECOND = 1_000_000
TABLES = ("limits", "lanes", "job_holds", "starts", "rates", "holders", "waiting_queues", "rechecks")
FREE = "-- deletes the jobs whose end wakes no waiting job"
"""The statement that reads limits only for jobs that have limits."""
ONE = Limit(name="tenant", size=1)
CALLS = Limit(name="calls", kind="rate", size=1, per=10 * SECOND)


def tenant(key: object) -> tuple[Bucket, ...]:
    return (Bucket("tenant", str(key)),)


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest_asyncio.fixture
async def store(path: Path, clock: MovableClock) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(str(path), durability="normal", clock=clock)
    await opened.declare_limits([ONE, Limit(name="gate", size=100)])
    yield opened
    await opened.close()


@contextmanager
def statements(store: SqliteStore) -> Iterator[list[str]]:
    """The statements that are run inside the ``with``."""
    cursor = store.database.writer._cursor
    assert cursor is not None
    heard: list[str] = []
    cursor.connection.set_trace_callback(heard.append)
    yield heard
    cursor.connection.set_trace_callback(None)


async def all_of(worker: Worker, n: int) -> list[Claim]:
    """Claim ``n`` jobs in as many turns as it takes."""
    found: list[Claim] = []
    for _ in range(50):
        said = await worker.turn(n=n - len(found))
        found += said.claims
        if not said.more or len(found) == n:
            return found
    raise AssertionError("there is no end to it")


# ---- costs ------------------------------------------------------------------------------------


async def test_jobs_without_limits_do_not_read_limits(store: SqliteStore) -> None:
    worker = await Worker(store).join()
    with statements(store) as heard:
        await store.enqueue(batch(*jobs(10)))
        claimed = await worker.take(5)
        await worker.turn(*(succeeded(each) for each in claimed), n=5)
    assert len(claimed) == 5
    asked = [text for text in heard if not text.startswith(FREE)]
    assert len(asked) < len(heard)
    assert not [text for text in asked for table in TABLES if f"mainspring_{table}" in text]


async def test_jobs_with_an_unkeyed_limit_are_claimed_in_bulk(store: SqliteStore) -> None:
    """No statement is run for each job: the row of a running job is its use of the limit."""
    worker = await Worker(store).join()
    gated = jobs(96, buckets=(Bucket("gate"),))
    with statements(store) as heard:
        await store.enqueue(batch(*gated))
        claimed = await worker.take(64)
        await worker.turn(*(succeeded(each) for each in claimed), n=32)
    assert len(claimed) == 64
    assert len(heard) < 50
    assert not [text for text in heard if "into mainspring_job_holds" in text or "returning id, buckets" in text]


async def test_a_turn_reads_few_of_many_full_lanes(store: SqliteStore) -> None:
    worker = await Worker(store).join()
    keyed = [job(buckets=tenant(n // 2)) for n in range(2_000)]
    await store.enqueue(batch(*keyed))
    assert len(await all_of(worker, 2_000)) == 1_000
    with statements(store) as heard:
        assert await worker.take(10) == ()
    assert len(heard) < 20


async def test_a_turn_reads_about_as_many_lanes_as_it_wants_jobs(store: SqliteStore) -> None:
    worker = await Worker(store).join()
    await store.enqueue(batch(*(job(buckets=tenant(n)) for n in range(1_000))))
    with statements(store) as heard:
        assert len(await worker.take(10)) == 10
    assert len(heard) < 80


async def test_every_job_that_names_an_unkeyed_limit_counts(store: SqliteStore) -> None:
    """With keys and without, with a fair key, and a job that a worker without its task handed back."""
    gate = Bucket("gate")
    made = [
        job(buckets=(gate,)),
        job(buckets=(gate, *tenant(1))),
        job(buckets=(gate,), fair=FairKey("a")),
        job(buckets=(gate, Bucket("other"))),
    ]
    await store.enqueue(batch(*made))
    worker = await Worker(store).join()
    first = await worker.take(1)
    await worker.turn(*(Ack.returned(Lease(each.id, each.token), park=True) for each in first))
    claimed = await worker.take(9)
    (found,) = await store.buckets([gate])
    assert (found.used, sorted(found.holders)) == (4, sorted(each.id for each in made))
    await worker.turn(*(succeeded(each) for each in claimed))
    (found,) = await store.buckets([gate])
    assert (found.used, found.holders) == (0, ())


# ---- lanes with keys --------------------------------------------------------------------------


async def test_expired_jobs_do_not_hide_other_lanes(store: SqliteStore, clock: MovableClock) -> None:
    """Although no promotion has cancelled them yet."""
    late = [job(buckets=tenant(n), priority=9, expires_in=SECOND) for n in range(3 * wants.PATIENCE)]
    good = job(buckets=tenant("good"))
    await store.enqueue(batch(*late, good))
    clock.advance("2s")
    worker = await Worker(store).join()
    assert [each.id for each in await all_of(worker, 5)] == [good.id]


async def test_a_lane_is_ordered_by_its_first_job(store: SqliteStore) -> None:
    """Also if the first job was cancelled, and the other lane was opened after it."""
    await store.declare_limits([Limit(name="region", size=2)])
    first, second, third, holding = (job(buckets=(*tenant(key), Bucket("region", "r"))) for key in "abac")
    await store.enqueue(batch(job(buckets=(Bucket("region", "r"),), priority=9), holding))
    worker = await Worker(store).join()
    claimed = await worker.take(5)
    await store.enqueue(batch(first, second, third))
    assert await worker.take(5) == ()
    await store.act(Action.CANCEL, Query(ids=(first.id,)))
    await worker.turn(succeeded(claimed[0]))
    assert [each.id for each in await worker.take(1)] == [second.id]


async def wanting(worker: Worker, *wants: Want) -> list[bytes]:
    worker.number += 1
    asked = Turn(worker=worker.name, number=worker.number, seen=worker.number - 1, wants=wants)
    return [claim.id for claim in (await worker.store.turn(asked)).claims]


async def test_capacity_is_not_reserved_for_lanes_that_no_worker_asks_for(store: SqliteStore) -> None:
    running, other, own = (
        job(queue=queue, buckets=tenant(7), priority=p) for queue, p in (("q", 9), ("a", 5), ("q", 0))
    )
    await store.enqueue(batch(running, other, own))
    worker = await Worker(store).join()
    (claim,) = await worker.take(1)
    assert await wanting(worker, Want(("a/any", "q/any"), 5)) == []
    await worker.turn(succeeded(claim))
    assert await wanting(worker, Want(("q/any",), 5)) == [own.id]


async def test_the_first_waiting_job_is_claimed_by_its_order_key(store: SqliteStore, clock: MovableClock) -> None:
    await store.declare_limits([Limit(name="region", size=1)])
    running, old, *others = (
        job(buckets=(*tenant(n), Bucket("region", "r")), priority=p) for n, p in enumerate((9, 0, 5, 5))
    )
    await store.enqueue(batch(running, old))
    clock.advance("6h")
    await store.enqueue(batch(*others))
    worker = await Worker(store).join()
    (claim,) = await worker.take(1)
    assert await worker.take(5) == ()
    await worker.turn(succeeded(claim))
    assert await wanting(worker, Want(("q/any",), 1)) == [old.id]


async def test_promotions_finish_an_interrupted_recheck(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A promotion opens the lanes that are left."""
    monkeypatch.setattr(waiting, "SLICE", 2)
    await store.enqueue(batch(*(job(buckets=tenant(n % 9)) for n in range(18))))
    worker = await Worker(store).join()
    assert len(await all_of(worker, 18)) == 9
    assert await all_of(worker, 9) == []
    await store.database.write(lambda tx: limits._set_size(tx, "tenant", 2))
    assert len(await all_of(worker, 9)) == 2
    for _ in range(4):
        await store.promote()
    assert len(await all_of(worker, 9)) == 7
    with statements(store) as heard:
        await store.promote()
    assert not [text for text in heard if text.startswith("delete from mainspring_rechecks")]


async def test_more_parked_lanes_than_are_opened_at_a_time_get_their_turn(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A region of size 1: each of its tenants gets the capacity in turn, by priority."""
    monkeypatch.setattr(waiting, "LANES_OPENED", 3)
    await store.declare_limits([Limit(name="region", size=1)])
    made = [job(buckets=(*tenant(n), Bucket("region", "r")), priority=n % 2) for n in range(12)]
    await store.enqueue(batch(*made))
    worker = await Worker(store).join()
    done: list[bytes] = []
    for _ in made:
        (claim,) = await worker.take(5)
        done.append(claim.id)
        await worker.turn(succeeded(claim))
    assert done == [each.id for each in (*made[1::2], *made[::2])]


async def test_a_pruned_lane_leaves_its_capacity_to_others(store: SqliteStore) -> None:
    """The lane was open for the capacity, its jobs were cancelled, and no claim has read it since."""
    await store.declare_limits([Limit(name="region", size=1)])
    region = Bucket("region", "r")
    first, second, third = (job(buckets=(*tenant(n), region)) for n in range(3))
    await store.enqueue(batch(first, second, third))
    worker = await Worker(store).join()
    (claim,) = await worker.take(5)
    assert await worker.take(5) == ()
    await worker.turn(succeeded(claim))
    await store.act(Action.CANCEL, Query(ids=(second.id,)))
    await store.prune(Retention())
    assert [each.id for each in await worker.take(5)] == [third.id]


# ---- moments ----------------------------------------------------------------------------------


async def test_a_turn_opens_lanes_that_are_due_without_a_promotion(store: SqliteStore, clock: MovableClock) -> None:
    await store.declare_limits([CALLS])
    await store.enqueue(batch(*jobs(2, buckets=(Bucket("calls", "a"),))))
    worker = await Worker(store).join()
    began = clock.now_us()
    assert len((await worker.turn(n=5)).claims) == 1
    for _ in range(2):
        said = await worker.turn(n=5)
        assert (said.claims, said.next_at) == ((), began + 10 * SECOND)
    clock.set(to_datetime(began + 10 * SECOND))
    assert len(await worker.take(5)) == 1


@pytest.mark.parametrize("key", ["", "a"])
async def test_next_at_is_when_the_holder_expires(store: SqliteStore, clock: MovableClock, key: str) -> None:
    await store.declare_limits([Limit(name="narrow", size=1)])
    narrow = Bucket("narrow", key)
    taken = await store.hold(b"holder", [narrow], 5 * SECOND)
    await store.enqueue(batch(job(buckets=(narrow,))))
    worker = await Worker(store).join()
    said = await worker.turn(n=1)
    assert (said.claims, said.next_at) == ((), taken.until)
    clock.set(to_datetime(taken.until))
    assert len(await worker.take(1)) == 1


async def test_no_job_overtakes_an_expensive_job_of_its_lane(store: SqliteStore, clock: MovableClock) -> None:
    """Also a job that was enqueued later, costs less, and has another priority."""
    await store.declare_limits([Limit(name="calls", kind="rate", size=3, per=10 * SECOND)])
    first, dear = (job(buckets=(Bucket("calls", "a", cost),), priority=5) for cost in (1, 3))
    await store.enqueue(batch(first, dear))
    worker = await Worker(store).join()
    assert [each.id for each in await worker.take(5)] == [first.id]
    cheap = job(buckets=(Bucket("calls", "a"),))
    await store.enqueue(batch(cheap))
    assert await worker.take(5) == ()
    clock.advance("10s")
    assert [each.id for each in await worker.take(5)] == [dear.id]


async def test_a_smooth_rate_allows_its_whole_burst(store: SqliteStore, clock: MovableClock) -> None:
    """In one step, and one by one although a third of a second is no whole number of microseconds."""
    await store.declare_limits([Limit(name="fast", kind="smooth", size=100_000, per=SECOND, burst=10)])
    await store.declare_limits([Limit(name="third", kind="smooth", size=3, per=SECOND, burst=3)])
    await store.enqueue(batch(*jobs(40, buckets=(Bucket("fast"),))))
    worker = await Worker(store).join()
    assert len(await worker.take(40)) == 10
    clock.set(to_datetime(clock.now_us() + 100))
    assert len(await worker.take(40)) == 10
    for n in range(3):
        assert (await store.hold(b"%d" % n, [Bucket("third")], SECOND)).ok
    said = await store.hold(b"late", [Bucket("third")], SECOND)
    assert (said.ok, said.next_at) == (False, clock.now_us() + 333_333)


async def test_old_fencing_tokens_are_pruned(store: SqliteStore, clock: MovableClock, path: Path) -> None:
    """The tokens of locks that are not used any more."""
    for key in ("old", "older"):
        await store.hold(key.encode(), tenant(key), 1, fenced=True)
    clock.set(to_datetime(clock.now_us() + NUMBERS_KEPT))
    await store.hold(b"young", tenant("young"), 1, fenced=True)
    await store.prune(Retention())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("select bucket from mainspring_fencing_tokens").fetchall() == [("tenant=young",)]
