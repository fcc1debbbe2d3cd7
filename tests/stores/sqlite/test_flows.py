"""Flows on SQLite: the cost of members, work in slices, and what a retry or a deletion does to such work."""

from __future__ import annotations

import pytest
import pytest_asyncio

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.query import Query
from mainspring.jobs.records import FLOW_KEEP, Edge, FlowRetry, Join, JoinRow, NewJob, Retention, UniqueKey
from mainspring.states import Action, Reason, State
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.jobs import finish, promote

from .helpers import Worker, batch, job, jobs, states, succeeded
from .test_limits import clock, statements, store

__all__ = ["clock", "store"]

pytestmark = pytest.mark.asyncio
HOUR = 3_600_000_000


def in_flow(root: NewJob, n: int, **options: object) -> tuple[NewJob, ...]:
    """Jobs of the flow that ends with ``root``."""
    return jobs(n, marks=(f"%{root.id.hex()}",), keep=FLOW_KEEP, **options)


@pytest_asyncio.fixture
async def worker(store: SqliteStore) -> Worker:
    return await Worker(store).join()


async def promote_all(store: SqliteStore) -> int:
    """Promote until nothing is due; return how often."""
    for n in range(1, 100):
        said = await store.promote()
        if said.next_due is None or said.next_due > said.now:
            return n
    raise AssertionError("there is no end to it")


# ---- costs -----------------------------------------------------------------------------------------------


async def test_members_are_inserted_in_bulk(store: SqliteStore) -> None:
    """Three statements for a member: its mark, its keep and its edge. The row of the join is written once."""
    root = job(join=Join(open=True))
    await store.enqueue(batch(root))
    with statements(store) as heard:
        await store.enqueue(batch(*in_flow(root, 64, before=(root.id,))))
    assert len(heard) < 3 * 64 + 20
    assert len([text for text in heard if text.startswith("update mainspring_joins")]) == 1
    assert (await store.joins([root.id]))[0].total == 64


async def test_members_that_succeed_in_one_turn_are_counted_in_one_write(store: SqliteStore, worker: Worker) -> None:
    root = job(join=Join())
    await store.enqueue(batch(root, *in_flow(root, 64, before=(root.id,))))
    claims = await worker.take(64)
    with statements(store) as heard:
        await worker.turn(*map(succeeded, claims))
    assert len(heard) < 40
    assert len([text for text in heard if "update mainspring_joins" in text]) == 1
    assert await store.joins([root.id]) == [JoinRow(id=root.id, open=False, total=64, succeeded=64)]


async def test_plain_jobs_read_no_edges_and_joins(store: SqliteStore, worker: Worker) -> None:
    with statements(store) as heard:
        await store.enqueue(batch(*jobs(10)))
        await worker.turn(*map(succeeded, await worker.take(10)))
    tables = ("edges", "joins", "releasing", "swept", "marks")
    assert not [text for text in heard for table in tables if f"mainspring_{table}" in text]


# ---- slices ------------------------------------------------------------------------------------------------


async def test_a_cancelled_flow_is_walked_past_its_ended_jobs(
    store: SqliteStore, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first live job is many pages behind the first job of the flow."""
    monkeypatch.setattr(promote, "PAGE", 7)
    root = job(join=Join())
    await store.enqueue(batch(root, *in_flow(root, 90, before=(root.id,))))
    await worker.turn(*map(succeeded, await worker.take(60)))
    await store.act(Action.CANCEL, Query(ids=(root.id,)))
    assert await promote_all(store) > 1
    assert await states(store) == {State.SUCCEEDED: 60, State.CANCELLED: 31}


async def test_a_job_that_comes_late_to_a_cancelled_flow_ends_too(store: SqliteStore) -> None:
    """Also a job whose id is lower than those that were looked at."""
    early = new_id().bytes
    root = job(join=Join())
    await store.enqueue(batch(root, *in_flow(root, 3, before=(root.id,))))
    await store.act(Action.CANCEL, Query(ids=(root.id,)))
    await store.promote(limit=1)
    await store.enqueue(batch(job(id=early, marks=(f"%{root.id.hex()}",))))
    await promote_all(store)
    assert await states(store) == {State.CANCELLED: 5}


async def test_a_retried_root_ends_the_cancellation_of_its_flow(store: SqliteStore) -> None:
    root = job(join=Join())
    members = in_flow(root, 5, before=(root.id,))
    await store.enqueue(batch(root, *members))
    await store.act(Action.CANCEL, Query(ids=(root.id,)))
    await store.promote(limit=2)
    cancelled = members[:2]
    await store.retry_flow([FlowRetry(root.id), *(FlowRetry(each.id, before=(root.id,)) for each in cancelled)])
    await promote_all(store)
    assert await states(store) == {State.BLOCKED: 1, State.READY: 5}
    assert await store.joins([root.id]) == [JoinRow(id=root.id, open=False, total=2)]


@pytest.mark.parametrize("is_deleted", [True, False], ids=["deleted", "kept"])
async def test_children_of_an_ended_join_are_released_by_how_it_ended(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, *, is_deleted: bool
) -> None:
    """Also if the join itself is deleted before the last of them."""
    monkeypatch.setattr(finish, "CHILDREN_AT_ONCE", 5)
    start = job(join=Join(open=True))
    await store.enqueue(batch(start, *jobs(12, after=(Edge(start.id),))))
    await store.close_join(start.id)
    assert await states(store) == {State.READY: 5, State.BLOCKED: 7, State.SUCCEEDED: 1}
    if is_deleted:
        await store.act(Action.DELETE, Query(ids=(start.id,)))
    await promote_all(store)
    assert await states(store) == {State.READY: 12} | ({} if is_deleted else {State.SUCCEEDED: 1})


async def test_children_of_a_cancelled_join_are_cancelled_in_slices(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "CHILDREN_AT_ONCE", 5)
    start = job(join=Join(open=True))
    await store.enqueue(batch(start, *jobs(12, after=(Edge(start.id),)), job(after=(Edge(start.id, "failed"),))))
    await store.act(Action.CANCEL, Query(ids=(start.id,)))
    await promote_all(store)
    assert await states(store) == {State.CANCELLED: 13, State.READY: 1}


async def test_a_retried_join_takes_back_the_children_that_were_not_cancelled_yet(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "CHILDREN_AT_ONCE", 5)
    start = job(join=Join(open=True))
    await store.enqueue(batch(start, *jobs(12, after=(Edge(start.id),))))
    await store.act(Action.CANCEL, Query(ids=(start.id,)))
    await store.retry_flow([FlowRetry(start.id)])
    await promote_all(store)
    assert await states(store) == {State.CANCELLED: 5, State.READY: 7, State.SUCCEEDED: 1}


# ---- retention ---------------------------------------------------------------------------------------------


async def test_dead_jobs_of_flows_are_not_counted_among_the_others(
    store: SqliteStore, worker: Worker, clock: MovableClock
) -> None:
    """Or a large flow would push all other dead jobs out of the store."""
    root = job(join=Join(open=True))
    await store.enqueue(batch(root, *jobs(3), *in_flow(root, 5, before=(root.id,))))
    for claim in await worker.take(8):
        clock.advance("1s")
        await worker.turn(Ack.dead(Lease(claim.id, claim.token), b"{}", Reason.CRASHED))
    clock.advance("2h")
    rules = Retention(keep_at_least=HOUR, keep_dead_count=2)
    assert await store.prune(rules) == 1
    assert await states(store) == {State.DEAD: 7, State.BLOCKED: 1}


async def test_a_job_that_is_retried_while_its_flow_is_deleted_keeps_the_root(
    store: SqliteStore, worker: Worker, clock: MovableClock
) -> None:
    root = job(join=Join())
    members = in_flow(root, 10, before=(root.id,))
    await store.enqueue(batch(root, *members))
    await worker.turn(*map(succeeded, await worker.take(10)))
    clock.advance("2h")
    rules = Retention(keep=HOUR, keep_at_least=HOUR)
    assert await store.prune(rules, limit=4) == 4
    await store.act(Action.RETRY, Query(ids=(members[-1].id,)))
    for _ in range(3):
        await store.prune(rules, limit=4)
    assert await states(store) == {State.READY: 1, State.SUCCEEDED: 1}
    await worker.turn(*map(succeeded, await worker.take(1)))
    assert await store.prune(rules) == 2


async def test_a_member_whose_unique_window_is_not_over_keeps_the_flow(
    store: SqliteStore, worker: Worker, clock: MovableClock
) -> None:
    root = job(join=Join())
    keyed = in_flow(root, 1, before=(root.id,), unique=UniqueKey(hash=new_id().bytes, window=5 * HOUR))
    await store.enqueue(batch(root, *keyed, *in_flow(root, 2, before=(root.id,))))
    await worker.turn(*map(succeeded, await worker.take(3)))
    rules = Retention(keep=HOUR, keep_at_least=HOUR)
    clock.advance("2h")
    assert await store.prune(rules) == 2
    clock.advance("4h")
    assert await store.prune(rules) == 2
    assert await states(store) == {}
