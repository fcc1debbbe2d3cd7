"""Two transactions at once that resolve edges of one flow: one of them is held where it would go wrong."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from mainspring.jobs.outcomes import Ack
from mainspring.jobs.records import Edge, Join, NewJob
from mainspring.states import Action, Reason, State
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import ERROR, Hand, ending, job, lease, put_in, row, state
from mainspring.worker.records import Claim, Turn
from tests.stores.postgres.sides import Side, Sides

PATIENCE = 30.0


def numbered(n: int, **options: object) -> NewJob:
    """A job whose row is locked before those of higher numbers."""
    return job(id=n.to_bytes(16), **options)  # type: ignore[arg-type]  # options of job()


def success(hand: Hand, *claims: Claim) -> Turn:
    return ack_turn(hand, *(Ack.succeeded(lease(claim)) for claim in claims))


def ack_turn(hand: Hand, *acks: Ack) -> Turn:
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, acks=acks)


def dead(claim: Claim) -> Ack:
    return Ack.dead(lease(claim), ERROR, Reason.NOT_RETRYABLE)


async def claims(hand: Hand, *queues: str) -> list[Claim]:
    return [await hand.take_one(f"{queue}/any") for queue in queues]


async def run_both(sides: Sides, holder: Side, turns: dict[Side, Turn]) -> None:
    """Run these turns at once, once both wait for the row that ``holder`` has locked.

    A side repeats nothing, so a deadlock raises here.
    """
    running = {asyncio.create_task(side.turn(turn)): side for side, turn in turns.items()}
    await sides.until_waiting(len(running))
    await holder.commit()
    async with asyncio.timeout(PATIENCE):
        while running:
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for each in done:
                await each
                await running.pop(each).commit()


async def lock(side: Side, job: NewJob) -> None:
    await side.run(f"select 1 from {side.schema}.jobs where id = %s for update", (job.id,))


class TestJoins:
    @pytest.mark.parametrize("succeeds", [True, False])
    async def test_the_last_two_members_end_at_once(
        self, store: PostgresStore, sides: Sides, *, succeeds: bool
    ) -> None:
        """The second turn waits for the row of the join, counts after the first, and ends the join."""
        join = job(join=Join())
        child = job(after=[join], queue="c")
        await put_in(store, join, child, *(job(before=[join], queue=queue) for queue in "ab"))
        left, right = await Hand(store).join(), await Hand(store).join()
        (a,), (b,) = await claims(left, "a"), await claims(right, "b")
        first, second = await sides.open(), await sides.open()
        await first.turn(success(left, a))
        other = success(right, b) if succeeds else ack_turn(right, dead(b))
        await sides.behind(first, second, lambda: second.turn(other))
        expected = (State.SUCCEEDED, None) if succeeds else (State.CANCELLED, Reason.PARENT)
        assert await ending(store, join) == expected
        assert await state(store, child) == (State.READY if succeeds else State.CANCELLED)

    async def test_a_turn_that_rolls_back_counts_nothing(self, store: PostgresStore, sides: Sides) -> None:
        join = job(join=Join())
        await put_in(store, join, *(job(before=[join], queue=queue) for queue in "ab"))
        left, right = await Hand(store).join(), await Hand(store).join()
        (a,), (b,) = await claims(left, "a"), await claims(right, "b")
        first, second = await sides.open(), await sides.open()
        await first.turn(success(left, a))
        waiting = asyncio.create_task(second.turn(success(right, b)))
        await sides.until_blocked(first, second, waiting)
        await first.rollback()
        await waiting
        await second.commit()
        (found,) = await store.joins([join.id])
        assert (found.succeeded, found.pending) == (1, 1)
        assert await state(store, join) == State.BLOCKED

    async def test_a_member_that_waited_for_the_end_of_the_join_is_refused(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        join = job(join=Join(open=True))
        await put_in(store, join)
        first, second = await sides.open(), await sides.open()
        await first.run(f"select id from {store.schema}.close_join_v1(%s, null)", (join.id,))
        waiting = asyncio.create_task(second.enqueue(job(before=[join])))
        await sides.until_blocked(first, second, waiting)
        await first.commit()
        with pytest.raises(psycopg.Error, match=join.id.hex()):
            await waiting
        await second.rollback()

    async def test_closing_waits_for_a_member_that_is_being_added(self, store: PostgresStore, sides: Sides) -> None:
        join = job(join=Join(open=True))
        member = job(before=[join], queue="m")
        await put_in(store, join)
        first, second = await sides.open(), await sides.open()
        await first.enqueue(member)
        close = f"select total, succeeded from {store.schema}.close_join_v1(%s, null)"
        said = await sides.behind(first, second, lambda: second.run(close, (join.id,)))
        assert said == [(1, 0)]
        assert await state(store, join) == State.BLOCKED


class TestOrderOfLocks:
    async def test_turns_that_end_nested_joins_in_different_orders(self, store: PostgresStore, sides: Sides) -> None:
        """One turn ends the inner join and so reaches the outer one; the other ends a member of each.

        The outer join has the lower id: with the inner join locked first, both turns would wait for each other.
        """
        outer, inner = numbered(1, join=Join()), numbered(2, join=Join(), before=[numbered(1)])
        made = [job(before=[inner], queue="a"), job(before=[inner], queue="b"), job(before=[outer], queue="c")]
        await put_in(store, outer, inner, *made)
        left, right = await Hand(store).join(), await Hand(store).join()
        (a,), (b, c) = await claims(left, "a"), await claims(right, "b", "c")
        holder, first, second = await sides.open(), await sides.open(), await sides.open()
        await lock(holder, outer)
        await run_both(sides, holder, {first: success(left, a), second: success(right, b, c)})
        assert await ending(store, outer) == (State.SUCCEEDED, None)

    async def test_turns_with_successes_and_failures(self, store: PostgresStore, sides: Sides) -> None:
        """A turn resolves its successes together with its other acks, although it moves the successes first."""
        low, high = numbered(1, join=Join()), numbered(2, join=Join())
        names = {"a": low, "b": high, "c": high, "d": low}
        await put_in(store, low, high, *(job(before=[join], queue=queue) for queue, join in names.items()))
        left, right = await Hand(store).join(), await Hand(store).join()
        (a, b), (c, d) = await claims(left, "a", "b"), await claims(right, "c", "d")
        holder, first, second = await sides.open(), await sides.open(), await sides.open()
        await lock(holder, low)
        turns = {
            first: ack_turn(left, Ack.succeeded(lease(b)), dead(a)),
            second: ack_turn(right, Ack.succeeded(lease(d)), dead(c)),
        }
        await run_both(sides, holder, turns)
        for join in (low, high):
            assert await ending(store, join) == (State.CANCELLED, Reason.PARENT)

    async def test_turns_whose_cancelled_children_cross(self, store: PostgresStore, sides: Sides) -> None:
        """What ends with a cancelled child is locked together with the child."""
        left, right = await Hand(store).join(), await Hand(store).join()
        parents = [job(queue="a"), job(queue="b")]
        middle = numbered(3, after=parents)
        low, crossed = numbered(1, after=[middle]), numbered(2, after=[parents[0], middle])
        await put_in(store, *parents, middle, low, crossed)
        (a,), (b,) = await claims(left, "a"), await claims(right, "b")
        holder, first, second = await sides.open(), await sides.open(), await sides.open()
        await lock(holder, low)
        await run_both(sides, holder, {first: ack_turn(left, dead(a)), second: ack_turn(right, dead(b))})
        for each in (low, crossed, middle):
            assert await ending(store, each) == (State.CANCELLED, Reason.PARENT)

    async def test_a_cancellation_of_joins_and_running_members(self, store: PostgresStore, sides: Sides) -> None:
        """It locks running jobs first, as a turn does, and then all others in the order of their ids."""
        outer, inner = numbered(1, join=Join()), numbered(2, join=Join(), before=[numbered(1)])
        await put_in(store, outer, inner, job(before=[inner], queue="a"))
        hand = await Hand(store).join()
        (a,) = await claims(hand, "a")
        holder, first, second = await sides.open(), await sides.open(), await sides.open()
        await lock(holder, outer)
        acting = asyncio.create_task(first.act(Action.CANCEL, outer.id, inner.id, a.id))
        await sides.until_waiting(1)
        turning = asyncio.create_task(second.turn(success(hand, a)))
        await sides.until_waiting(2)
        await holder.commit()
        async with asyncio.timeout(PATIENCE):
            assert set((await acting).done) == {outer.id, inner.id, a.id}
            await first.commit()
            await turning
            await second.commit()
        assert await ending(store, inner) == (State.CANCELLED, Reason.BY_USER)
        assert await state(store, a) == State.CANCELLED


class TestWaitForARetry:
    async def test_a_retry_waits_for_a_child_that_is_being_added(self, store: PostgresStore, sides: Sides) -> None:
        """Else the parent could run and end before the edge is visible, and the child would wait for ever."""
        hand = await Hand(store).join()
        parent = job(queue="p")
        await put_in(store, parent)
        (claim,) = await claims(hand, "p")
        await hand.kill(claim)
        child = job(after=[Edge(parent.id, "wait")], queue="c")
        first, second = await sides.open(), await sides.open()
        await first.enqueue(child)
        await sides.behind(first, second, lambda: second.act(Action.RETRY, parent.id))
        assert (await row(store, child)).deps == 1
        await hand.succeed(*await claims(hand, "p"))
        assert await state(store, child) == State.READY


class TestSweeps:
    async def test_a_cancelled_flow_does_not_wait_for_a_locked_job(self, store: PostgresStore, sides: Sides) -> None:
        """The other jobs end, and the next promotions come back for this one."""
        root = job(join=Join())
        made = [job(before=[root], marks=[f"%{root.id.hex()}"]) for _ in range(3)]
        await put_in(store, root, *made)
        side = await sides.open()
        assert (await side.act(Action.CANCEL, root.id)).done == (root.id,)
        await side.commit()
        await lock(side, made[1])
        for _ in range(3):
            said = await asyncio.wait_for(store.promote(), PATIENCE)
            assert said.next_due is not None
            assert said.next_due <= said.now
        assert [await state(store, each) for each in made] == [State.CANCELLED, State.READY, State.CANCELLED]
        await side.rollback()
        while (await store.promote()).next_due is not None:
            pass
        assert await ending(store, made[1]) == (State.CANCELLED, Reason.PARENT)
