"""Policies of edges: what the end of a parent does to its child."""

from __future__ import annotations

from typing import Literal

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, FlowRetry, Join, Retention
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, Hand, ending, job, lease, put_in, row, state

__all__ = ["TestPolicies", "TestPolicyDead", "TestPolicyWait"]

ENDS = ["good", "dead", "cancelled", "deleted", "bypassed"]
READY, BYPASSED, FAILED = (State.READY, None), (State.CANCELLED, Reason.BYPASSED), (State.CANCELLED, Reason.PARENT)
EXPECTED: dict[str, dict[str, tuple[State, Reason | None]]] = {
    "fail": {"good": READY, "bypassed": READY, "dead": FAILED, "cancelled": FAILED, "deleted": FAILED},
    "ignore": dict.fromkeys(ENDS, READY),
    "skip": {"good": READY, "bypassed": READY, "dead": BYPASSED, "cancelled": BYPASSED, "deleted": BYPASSED},
    "failed": {"good": BYPASSED, "bypassed": BYPASSED, "dead": READY, "cancelled": READY, "deleted": READY},
    "wait": {
        "good": READY, "bypassed": READY, "dead": (State.BLOCKED, None), "cancelled": FAILED, "deleted": FAILED,
    },
}  # fmt: skip


@pytest.mark.asyncio
class TestPolicies:
    @pytest.mark.parametrize("before", [True, False], ids=["parent live", "parent ended"])
    @pytest.mark.parametrize("end", ENDS)
    @pytest.mark.parametrize("policy", EXPECTED)
    async def test_the_end_of_a_parent(self, store: Store, policy: str, end: str, *, before: bool) -> None:
        grand = job(queue="g")
        parent = job(after=[Edge(grand.id, "skip")], queue="p")
        child = job(after=[Edge(parent.id, policy)], queue="c")  # type: ignore[arg-type]  # a policy by its name
        after = job(after=[child], queue="d")
        await put_in(store, grand, parent)
        if before:
            await put_in(store, child, after)
        hand = await Hand(store).join()
        claim = await hand.take_one("g/any")
        if end == "bypassed":
            await hand.kill(claim)
        else:
            await hand.succeed(claim)
        if end == "good":
            await hand.succeed(await hand.take_one("p/any"))
        elif end == "dead":
            await hand.kill(await hand.take_one("p/any"))
        elif end == "cancelled":
            await store.act(Action.CANCEL, Query(ids=(parent.id,)))
        elif end == "deleted":
            if not before:
                return  # a parent that does not exist is refused, see the tests of enqueue
            await store.act(Action.DELETE, Query(ids=(parent.id,)))
        if not before:
            await put_in(store, child, after)
        expected = EXPECTED[policy][end]
        assert await ending(store, child) == expected
        grandchild = {READY: State.BLOCKED, BYPASSED: State.READY, FAILED: State.CANCELLED}
        assert await state(store, after) == grandchild.get(expected, State.BLOCKED)

    async def test_a_bypassed_member_is_good_for_a_join(self, store: Store) -> None:
        join, parent = job(join=Join()), job()
        member = job(after=[Edge(parent.id, "skip")], before=[join])
        await put_in(store, join, parent, member)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        assert await ending(store, member) == BYPASSED
        assert await ending(store, join) == (State.SUCCEEDED, None)
        (found,) = await store.joins([join.id])
        assert (found.bypassed, found.cancelled) == (1, 0)

    async def test_a_callback_for_failures_of_a_join(self, store: Store) -> None:
        join = job(join=Join())
        callback, other = job(after=[Edge(join.id, "failed")], queue="c"), job(after=[join], queue="c")
        await put_in(store, join, job(before=[join]), callback, other)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        assert await state(store, callback) == State.READY
        assert await ending(store, other) == FAILED

    async def test_two_edges_with_opposite_policies(self, store: Store) -> None:
        """Of two ends in two steps the first decides, and the job ends once."""
        left, right = job(queue="l"), job(queue="r")
        child = job(after=[Edge(left.id, "failed"), Edge(right.id, "fail")])
        await put_in(store, left, right, child)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("l/any"))
        assert await ending(store, child) == BYPASSED
        await hand.kill(await hand.take_one("r/any"))
        assert await ending(store, child) == BYPASSED

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["bypass first", "cancel first"])
    @pytest.mark.parametrize("bypasses", ["skip", "failed"])
    async def test_a_cancel_wins_over_a_bypass_in_one_turn(
        self, store: Store, bypasses: Literal["skip", "failed"], order: tuple[int, int]
    ) -> None:
        left, right = job(queue="l"), job(queue="r")
        edges = [Edge(left.id, bypasses), Edge(right.id, "fail")]
        child = job(after=[edges[n] for n in order])
        behind = job(after=[child])
        await put_in(store, left, right, child, behind)
        hand = await Hand(store).join()
        first, second = lease(await hand.take_one("l/any")), lease(await hand.take_one("r/any"))
        end = Ack.succeeded(first) if bypasses == "failed" else Ack.dead(first, b"{}", Reason.NOT_RETRYABLE)
        acks = [end, Ack.dead(second, b"{}", Reason.NOT_RETRYABLE)]
        await hand.turn(*(acks[n] for n in order))
        assert await ending(store, child) == FAILED
        assert await ending(store, behind) == FAILED

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["bypass first", "cancel first"])
    async def test_a_cancel_wins_over_a_bypass_of_ended_parents(self, store: Store, order: tuple[int, int]) -> None:
        left, right = job(queue="l"), job(queue="r")
        await put_in(store, left, right)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("l/any"))
        await hand.kill(await hand.take_one("r/any"))
        edges = [Edge(left.id, "skip"), Edge(right.id, "fail")]
        after = tuple(edges[n] for n in order)
        child = job(after=after)
        await put_in(store, child)
        assert await ending(store, child) == FAILED
        await store.retry_flow([FlowRetry(child.id, after)])
        assert await ending(store, child) == FAILED
        assert (await row(store, child)).epoch == 2


@pytest.mark.asyncio
class TestPolicyWait:
    async def test_a_dead_parent_retried_by_hand_frees_the_child(self, store: Store) -> None:
        parent = job(queue="p")
        child = job(after=[Edge(parent.id, "wait")])
        await put_in(store, parent, child)
        hand = await Hand(store).join()
        for _ in range(2):
            await hand.kill(await hand.take_one("p/any"))
            assert await state(store, child) == State.BLOCKED
            assert await store.waits_for(child.id) == [Edge(parent.id, "wait")]
            assert (await store.act(Action.RETRY, Query(ids=(parent.id,)))).done == (parent.id,)
        await hand.succeed(await hand.take_one("p/any"))
        assert await state(store, child) == State.READY

    async def test_a_child_added_after_the_death(self, store: Store) -> None:
        parent = job(queue="p")
        await put_in(store, parent)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        child = job(after=[Edge(parent.id, "wait")])
        await put_in(store, child)
        assert await state(store, child) == State.BLOCKED
        await store.act(Action.RETRY, Query(ids=(parent.id,)))
        await hand.succeed(await hand.take_one("p/any"))
        assert await state(store, child) == State.READY

    async def test_deleting_the_dead_parent_ends_the_child(self, store: Store) -> None:
        parent = job(queue="p")
        child = job(after=[Edge(parent.id, "wait")])
        await put_in(store, parent, child)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        await store.act(Action.DELETE, Query(ids=(parent.id,)))
        assert await ending(store, child) == FAILED

    async def test_pruning_the_dead_parent_ends_the_child(self, store: Store, clock: MovableClock) -> None:
        parent = job(queue="p")
        child = job(after=[Edge(parent.id, "wait")])
        await put_in(store, parent, child)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        clock.advance("21h")
        rules = Retention(keep=10 * HOUR, keep_at_least=HOUR, keep_dead=20 * HOUR, keep_workers=HOUR)
        assert await store.prune(rules) == 1
        assert await ending(store, child) == FAILED

    async def test_a_retry_of_the_parent_that_is_cancelled_ends_the_child(self, store: Store) -> None:
        parent = job(queue="p")
        child = job(after=[Edge(parent.id, "wait")])
        await put_in(store, parent, child)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one("p/any"))
        await store.act(Action.RETRY, Query(ids=(parent.id,)))
        await store.act(Action.CANCEL, Query(ids=(parent.id,)))
        assert await ending(store, child) == FAILED


@pytest.mark.asyncio
class TestPolicyDead:
    async def test_the_first_death_frees_the_callback_once(self, store: Store) -> None:
        join = job(join=Join())
        callback = job(after=[Edge(join.id, "dead")], queue="c")
        await put_in(store, join, *(job(before=[join]) for _ in range(3)), callback)
        hand = await Hand(store).join()
        first, second, third = await hand.take(3)
        await hand.succeed(first)
        assert await state(store, callback) == State.BLOCKED
        await hand.kill(second)
        assert await state(store, callback) == State.READY
        await hand.succeed(await hand.take_one("c/any"))
        await hand.kill(third)
        assert await state(store, callback) == State.SUCCEEDED

    async def test_without_a_death_the_callback_is_bypassed(self, store: Store) -> None:
        join = job(join=Join(lenient=True))
        callback = job(after=[Edge(join.id, "dead")], queue="c")
        await put_in(store, join, *(job(before=[join]) for _ in range(2)), callback)
        hand = await Hand(store).join()
        first, second = await hand.take(2)
        await hand.succeed(first)
        await store.act(Action.CANCEL, Query(ids=(second.id,)))
        await hand.turn(Ack.cancelled(lease(second)))
        assert await ending(store, callback) == BYPASSED

    async def test_a_death_in_an_inner_join_counts(self, store: Store) -> None:
        outer = job(join=Join())
        inner = job(join=Join(), before=[outer])
        callback = job(after=[Edge(outer.id, "dead")], queue="c")
        await put_in(store, outer, inner, job(before=[inner]), job(before=[outer], queue="o"), callback)
        hand = await Hand(store).join()
        await hand.kill(await hand.take_one())
        assert await state(store, outer) == State.BLOCKED
        assert await state(store, callback) == State.READY

    async def test_a_callback_added_after_the_first_death_is_ready(self, store: Store) -> None:
        join = job(join=Join())
        await put_in(store, join, *(job(before=[join]) for _ in range(2)))
        hand = await Hand(store).join()
        first, _ = await hand.take(2)
        await hand.kill(first)
        callback = job(after=[Edge(join.id, "dead")], queue="c")
        await put_in(store, callback)
        assert await state(store, callback) == State.READY
