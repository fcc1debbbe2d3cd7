"""Edges that are stored on both sides, children that are resolved later, and what a flow leaves behind."""

from __future__ import annotations

import pytest
import redis.asyncio

from mainspring.common.ids import new_ids
from mainspring.errors import StoreConflict
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FLOW_KEEP, Edge, FlowRetry, Join, NewJob, Retention, UniqueKey
from mainspring.queues.records import QueueSettings
from mainspring.states import Action, Reason, State
from mainspring.stores.base import CHILDREN_AT_ONCE
from mainspring.stores.door import Door
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.testing.contract.hands import HOUR, Hand, ending, gone, job, put_in, row, state

FORGET = Retention(keep=0, keep_count=0, keep_at_least=0, keep_dead=0, keep_dead_count=0, keep_workers=0)


def in_flow(root: NewJob, **options: object) -> NewJob:
    return job(marks=[f"%{root.id.hex()}"], keep=FLOW_KEEP, **options)  # type: ignore[arg-type]  # options of job()


async def names(redis_owner_url: str, namespace: str) -> set[str]:
    """The keys of the namespace without what follows the colon."""
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        start = tag(namespace).encode()
        found = [key async for key in client.scan_iter(match=f"{tag(namespace)}*", count=1000)]
        return {key.removeprefix(start).partition(b":")[0].decode() for key in found}


async def with_many_children(store: Door, policy: str) -> tuple[NewJob, NewJob, list[bytes]]:
    """A join, its member, and the ids of its children: one more than are resolved at once."""
    join = job(join=Join())
    member = job(before=[join], queue="m")
    await put_in(store, join, member)
    children = [each.bytes for each in new_ids(CHILDREN_AT_ONCE + 1)]
    for first in range(0, len(children), 500):
        edge = Edge(join.id, policy)  # type: ignore[arg-type]  # a policy by its name
        await put_in(store, *(job(id=each, after=[edge]) for each in children[first : first + 500]))
    return join, member, children


async def test_nothing_of_a_flow_is_left(store: Door, namespace: str, redis_owner_url: str) -> None:
    root = job(join=Join(open=True))
    inner = in_flow(root, join=Join(), before=[root])
    first = in_flow(root, queue="a")
    await put_in(store, root, inner, first, in_flow(root, after=[first], before=[inner, root]))
    await put_in(store, *(in_flow(root, before=[root]) for _ in range(3)))
    hand = await Hand(store).join()
    await hand.succeed(await hand.take_one("a/any"))
    one, two, three, four = await hand.take(9)
    await hand.succeed(one, two)
    await hand.kill(three, four)
    await store.close_join(root.id)
    assert await state(store, root) == State.CANCELLED
    await store.retire(hand.name, Outcome.INTERRUPTED)
    assert not await names(redis_owner_url, namespace) & {"children", "parents", "flow_jobs", "swept", "sweeps", "died"}
    for _ in range(3):
        await store.prune(FORGET)
    assert await names(redis_owner_url, namespace) == {"meta"}


async def test_members_forget_a_cancelled_join_when_they_end(store: Door, namespace: str, redis_owner_url: str) -> None:
    join = job(join=Join())
    await put_in(store, join, *(job(before=[join]) for _ in range(3)))
    await store.act(Action.CANCEL, Query(ids=(join.id,)))
    assert "parents" not in await names(redis_owner_url, namespace)
    hand = await Hand(store).join()
    await hand.succeed(*await hand.take(3))
    assert "children" not in await names(redis_owner_url, namespace)


async def test_a_member_of_a_cancelled_join_does_not_count_after_its_retry(store: Door) -> None:
    join = job(join=Join())
    old, new = job(before=[join], queue="old"), job(before=[join], queue="new")
    await put_in(store, join, old, new)
    hand = await Hand(store).join()
    await hand.kill(await hand.take_one("new/any"))
    await store.act(Action.CANCEL, Query(ids=(join.id,)))
    await store.retry_flow([FlowRetry(join.id), FlowRetry(new.id, before=(join.id,))])
    await hand.succeed(await hand.take_one("old/any"))
    assert await state(store, join) == State.BLOCKED
    await hand.succeed(await hand.take_one("new/any"))
    assert await ending(store, join) == (State.SUCCEEDED, None)
    (found,) = await store.joins([join.id])
    assert (found.total, found.succeeded) == (1, 1)


async def test_a_cancelled_flow_that_is_retried_is_not_cancelled_any_more(store: Door) -> None:
    root = job(join=Join())
    dead, waiting = in_flow(root, before=[root], queue="dead"), in_flow(root, before=[root])
    await put_in(store, root, dead, waiting)
    hand = await Hand(store).join()
    await hand.kill(await hand.take_one("dead/any"))
    await store.act(Action.CANCEL, Query(ids=(root.id,)))
    await store.retry_flow([FlowRetry(root.id), FlowRetry(dead.id, before=(root.id,))])
    assert (await store.promote()).next_due is None
    assert [await state(store, each) for each in (dead, waiting)] == [State.READY] * 2


async def test_a_flow_whose_root_a_parent_ends_is_cancelled(store: Door) -> None:
    parent = job(queue="p")
    root = job(join=Join(open=True), after=[parent])
    member = in_flow(root, before=[root])
    await put_in(store, parent, root, member)
    hand = await Hand(store).join()
    await hand.kill(await hand.take_one("p/any"))
    (found,) = await store.joins([root.id])
    assert (await ending(store, root), found.open) == ((State.CANCELLED, Reason.PARENT), False)
    await store.promote()
    assert await ending(store, member) == (State.CANCELLED, Reason.PARENT)


async def test_a_retry_names_a_parent_that_is_gone_and_changes_nothing(store: Door) -> None:
    parent, other = job(), job()
    child = job(after=[parent])
    await put_in(store, parent, other, child)
    await store.act(Action.CANCEL, Query(ids=(parent.id, other.id)))
    await store.act(Action.DELETE, Query(ids=(parent.id,)))
    with pytest.raises(StoreConflict, match="does not exist"):
        await store.retry_flow([FlowRetry(other.id), FlowRetry(child.id, after=(Edge(parent.id),))])
    assert [await state(store, each) for each in (other, child)] == [State.CANCELLED] * 2


async def test_a_job_that_is_named_twice_is_retried_once(store: Door) -> None:
    made = job()
    await put_in(store, made)
    await store.act(Action.CANCEL, Query(ids=(made.id,)))
    said = await store.retry_flow([FlowRetry(made.id)] * 2)
    assert (said.done, said.refused, (await row(store, made)).epoch) == ((made.id,), (), 2)


async def test_an_edge_of_a_large_join_is_listed_until_it_is_resolved(store: Door) -> None:
    join, _, children = await with_many_children(store, "ignore")
    hand = await Hand(store).join()
    await hand.kill(await hand.take_one("m/any"))
    last = children[-1]
    assert await state(store, last) == State.BLOCKED
    assert await store.waits_for(last) == [Edge(join.id, "ignore")]
    await store.promote()
    assert await state(store, last) == State.READY


async def test_a_large_join_is_retried_before_all_of_its_children_have_ended(store: Door) -> None:
    join, member, children = await with_many_children(store, "fail")
    left = children[-1]
    hand = await Hand(store).join()
    await hand.kill(await hand.take_one("m/any"))
    assert await ending(store, children[0]) == (State.CANCELLED, Reason.PARENT)
    await store.act(Action.CANCEL, Query(ids=(left,)))
    retries = [FlowRetry(left, after=(Edge(join.id),)), FlowRetry(join.id), FlowRetry(member.id, before=(join.id,))]
    assert len((await store.retry_flow(retries)).done) == 3
    await store.promote()
    assert await state(store, left) == State.BLOCKED
    await hand.succeed(await hand.take_one("m/any"))
    assert await state(store, left) == State.READY


async def test_a_large_join_is_deleted_before_all_of_its_children_are_resolved(
    store: Door, namespace: str, redis_owner_url: str
) -> None:
    join, _, children = await with_many_children(store, "fail")
    hand = await Hand(store).join()
    await hand.succeed(await hand.take_one("m/any"))
    await store.act(Action.DELETE, Query(ids=(join.id,)))
    await store.promote()
    assert await state(store, children[-1]) == State.READY
    assert not await names(redis_owner_url, namespace) & {"children", "children_left", "parents", "releasing"}


async def test_dead_jobs_of_a_flow_are_found_by_their_state(store: Door) -> None:
    root = job(join=Join(open=True))
    member = in_flow(root, before=[root])
    await put_in(store, root, member, job(queue="other"))
    hand = await Hand(store).join()
    await hand.kill(await hand.take_one())
    found = await store.find(Query.where(states=["dead"]))
    assert [each.id for each in found.jobs] == [member.id]
    await store.act(Action.RETRY, Query(ids=(member.id,)))
    assert (await store.find(Query.where(states=["dead"]))).jobs == ()


async def test_a_queue_that_gets_a_depth_does_not_count_joins(store: Door) -> None:
    join = job(join=Join(open=True))
    await put_in(store, join, job())
    await store.configure_queue("q", QueueSettings(max_depth=2, on_full="error"))
    await put_in(store, job())
    await store.act(Action.CANCEL, Query(ids=(join.id,)))
    await store.retry_flow([FlowRetry(join.id)])
    assert (await row(store, join)).state == State.SUCCEEDED


async def test_a_flow_stays_while_the_key_of_a_member_counts(store: Door) -> None:
    root = job(join=Join())
    kept = in_flow(root, before=[root], unique=UniqueKey(b"k" * 16, window=HOUR))
    await put_in(store, root, kept, in_flow(root, before=[root]))
    hand = await Hand(store).join()
    await hand.succeed(*await hand.take(2))
    for _ in range(2):
        await store.prune(FORGET)
    assert await state(store, kept) == State.SUCCEEDED
    assert await state(store, root) == State.SUCCEEDED
    await store.act(Action.DELETE, Query(ids=(kept.id,)))
    await store.act(Action.DELETE, Query(ids=(root.id,)))
    await store.promote()
    assert (await store.find(Query.everything())).jobs == ()


async def test_a_member_that_ends_a_flow_of_its_own_takes_it_along(store: Door) -> None:
    outer = job(join=Join())
    inner = in_flow(outer, join=Join(), before=[outer])
    member = in_flow(inner, before=[inner])
    await put_in(store, outer, inner, member)
    hand = await Hand(store).join()
    await hand.succeed(await hand.take_one())
    assert await state(store, outer) == State.SUCCEEDED
    await store.prune(FORGET)
    await store.promote()
    assert await gone(store, inner)
    assert await gone(store, member)
