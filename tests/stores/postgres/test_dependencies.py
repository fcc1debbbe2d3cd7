"""Schedules that wait for others: pairs of transactions, one of them held; callers whose transactions stay open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from mainspring.common.ids import new_id
from mainspring.errors import WrongConnection
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.records import Batch, Edge, NewJob, UniqueKey
from mainspring.schedules.records import ScheduleDependency, part_mark
from mainspring.states import Action, State
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.dependencies.release import after, noted, of, succeeds, waiting
from mainspring.testing.contract.hands import HOUR, Hand, job, lease, one, put_in, row, running, state
from mainspring.worker.records import Claim, Turn
from tests.stores.postgres.sides import Side, Sides


def success(hand: Hand, claim: Claim) -> Turn:
    """The turn that says so."""
    return Turn(worker=hand.name, number=hand.number + 1, seen=hand.seen, acks=(Ack.succeeded(lease(claim)),))


@pytest.fixture
def caller(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A connection of a caller, whose transaction stays open."""
    with psycopg.connect(postgres_url) as connection:
        yield connection
        connection.rollback()


def inside(store: PostgresStore, caller: psycopg.Connection, *jobs: NewJob, forced: bool = False) -> None:
    store.enqueue_now(Batch(id=new_id().bytes, jobs=jobs, forced=forced), caller)


class TestConcurrentTransactions:
    async def test_an_enqueue_during_the_success_of_its_dependency_is_ready(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The enqueue waits for the ack and finds the recorded success."""
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        made = of("x")
        first, second = await sides.open(), await sides.open()
        await first.turn(success(hand, claim))
        await sides.behind(first, second, lambda: second.enqueue(made))
        assert (await state(store, made), await noted(store)) == (State.READY, {"a": False})

    async def test_a_success_during_the_enqueue_of_a_dependent_releases_it(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The ack waits for the enqueue and finds the job."""
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        made = of("x")
        first, second = await sides.open(), await sides.open()
        await first.enqueue(made)
        await sides.behind(first, second, lambda: second.turn(success(hand, claim)))
        assert (await state(store, made), await noted(store)) == (State.READY, {"a": False})

    async def test_a_job_handed_back_during_the_success_of_its_dependency_is_released_by_promote(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """A turn does not wait for the row of a schedule. The next promotion checks the job again."""
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        made = await one(store)
        mine = await (other := await Hand(store).join()).take_one()
        side = await sides.open()
        await side.turn(success(hand, claim))
        await other.turn(Ack.returned(lease(mine), part="x"))
        assert await state(store, made) == State.BLOCKED
        await side.commit()
        await store.promote()
        assert (await state(store, made), await noted(store)) == (State.READY, {"a": False})

    async def test_a_success_during_the_hand_back_of_a_dependent_releases_it(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The ack waits for the turn and finds the job."""
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        made = await one(store)
        mine = await (other := await Hand(store).join()).take_one()
        first, second = await sides.open(), await sides.open()
        ack = Ack.returned(lease(mine), part="x")
        await first.turn(Turn(worker=other.name, number=other.number + 1, seen=other.seen, acks=(ack,)))
        await sides.behind(first, second, lambda: second.turn(success(hand, claim)))
        assert (await state(store, made), await noted(store)) == (State.READY, {"a": False})

    async def test_a_success_that_rolls_back_releases_nothing(self, store: PostgresStore, sides: Sides) -> None:
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        made = of("x")
        first, second = await sides.open(), await sides.open()
        await first.turn(success(hand, claim))
        coming = asyncio.create_task(second.enqueue(made))
        await sides.until_blocked(first, second, coming)
        await first.rollback()
        await coming
        await second.commit()
        assert await state(store, made) == State.BLOCKED
        await hand.succeed(claim)
        assert await state(store, made) == State.READY

    @pytest.mark.parametrize("comes_first", [True, False])
    async def test_two_successes_at_once_are_both_recorded(
        self, store: PostgresStore, sides: Sides, comes_first: bool
    ) -> None:
        """The second continues with the row that the first has written."""
        await after(store, "x", "a", "b")
        (left, a), (right, b) = await running(store, of("a")), await running(store, of("b"))
        made = of("x")
        if comes_first:
            await put_in(store, made)
        first, second = await sides.open(), await sides.open()
        await first.turn(success(left, a))
        await sides.behind(first, second, lambda: second.turn(success(right, b)))
        if not comes_first:
            assert await noted(store) == {"a": True, "b": True}
            await put_in(store, made)
        assert (await state(store, made), await noted(store)) == (State.READY, {"a": False, "b": False})

    async def test_two_dependents_at_once_use_one_success(self, store: PostgresStore, sides: Sides) -> None:
        """One job uses the recorded success, the other waits."""
        await after(store, "x", "a")
        await succeeds(await Hand(store).join(), "a")
        first, second = await sides.open(), await sides.open()
        one_job, other = of("x"), of("x")
        await first.enqueue(one_job, batch=b"1")
        await sides.behind(first, second, lambda: second.enqueue(other, batch=b"2"))
        assert [await state(store, each) for each in (one_job, other)] == [State.READY, State.BLOCKED]

    async def test_dependencies_set_during_an_enqueue_do_not_hold_its_job(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The job was inserted before: it waits for no schedule, and no schedule waits for it."""
        first = await sides.open()
        made = of("x")
        await first.enqueue(made)
        await after(store, "x", "a")
        await first.commit()
        assert (await state(store, made), await waiting(store)) == (State.READY, [])

    async def test_dependencies_removed_during_an_enqueue_do_not_hold_its_job(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The enqueue waits for ``set_dependencies`` and finds that the schedule has no dependencies."""
        await after(store, "x", "a")
        first, second = await sides.open(), await sides.open()
        made = of("x")
        await first.link(ScheduleDependency("x", ()))
        await sides.behind(first, second, lambda: second.enqueue(made))
        assert await state(store, made) == State.READY

    async def test_an_enqueue_during_the_removal_of_dependencies_is_released(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """``set_dependencies`` waits for the enqueue and finds the job."""
        await after(store, "x", "a")
        first, second = await sides.open(), await sides.open()
        made = of("x")
        await first.enqueue(made)
        await sides.behind(first, second, lambda: second.link(ScheduleDependency("x", ())))
        assert await state(store, made) == State.READY

    async def test_dependencies_set_again_during_a_success_start_without_it(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """The success belongs to the removed dependencies and is not recorded."""
        await after(store, "x", "a", "b")
        hand, claim = await running(store, of("a"))
        made = await one(store, of("x"))
        first, second = await sides.open(), await sides.open()
        await first.link(ScheduleDependency("x", ("b",)))
        await sides.behind(first, second, lambda: second.turn(success(hand, claim)))
        assert (await state(store, made), await noted(store)) == (State.BLOCKED, {"b": False})

    async def test_two_calls_of_set_dependencies_for_one_schedule(self, store: PostgresStore, sides: Sides) -> None:
        first, second = await sides.open(), await sides.open()
        await first.link(ScheduleDependency("x", ("a",)))
        await sides.behind(first, second, lambda: second.link(ScheduleDependency("x", ("b",))))
        assert await noted(store) == {"b": False}

    async def test_a_child_of_the_job_that_succeeds_causes_no_deadlock(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """Both transactions lock parents before schedules."""
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        made = of("x", after=[Edge(claim.id)])
        first, second = await sides.open(), await sides.open()
        await first.enqueue(made)
        await sides.behind(first, second, lambda: second.turn(success(hand, claim)))
        assert await state(store, made) == State.READY


class TestCancel:
    """A job whose row another transaction has locked for long does not hold up the transaction that releases it."""

    @pytest.mark.parametrize("commits", [True, False])
    async def test_a_success_during_the_cancel_of_the_first_dependent(
        self, store: PostgresStore, sides: Sides, commits: bool
    ) -> None:
        """If the cancel commits, the next dependent is released. If it rolls back, the first one is."""
        await after(store, "x", "a")
        hand, claim = await running(store, of("a"))
        first_in_line, next_in_line = await one(store, of("x")), await one(store, of("x"))
        side = await sides.open()
        await side.act(Action.CANCEL, first_in_line.id)
        await hand.succeed(claim)
        assert await noted(store) == {"a": True}
        await (side.commit() if commits else side.rollback())
        await store.promote()
        free = next_in_line if commits else first_in_line
        assert (await state(store, free), await noted(store)) == (State.READY, {"a": False})
        assert await waiting(store) == ([] if commits else [next_in_line.id])

    async def test_a_success_while_the_first_dependent_is_locked_for_a_moment(
        self, store: PostgresStore, sides: Sides
    ) -> None:
        """Whichever transaction is first: the next dependent is released, if necessary by the next promotion."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        for _ in range(10):
            await one(store, of("a"))
            claim = await hand.take_one("a/any")
            first_in_line, next_in_line = await one(store, of("x")), await one(store, of("x"))
            side = await sides.open()
            await asyncio.gather(hand.succeed(claim), side.act(Action.CANCEL, first_in_line.id))
            await side.commit()
            await store.promote()
            got = await hand.take(9, "x/any")
            assert len(got) <= 1
            assert next_in_line.id in {*(each.id for each in got), *await waiting(store)}
            if not got:  # it was released, and cancelled after that
                await succeeds(hand, "a")
                got = await hand.take(9, "x/any")
            assert [each.id for each in got] == [next_in_line.id]
            await hand.succeed(*got)

    async def test_dependencies_removed_while_a_dependent_is_locked(self, store: PostgresStore, sides: Sides) -> None:
        await after(store, "x", "a")
        held, other = await one(store, of("x")), await one(store, of("x"))
        side = await sides.open()
        await side.act(Action.REPRIORITISE, held.id)
        await after(store, "x")
        assert [await state(store, each) for each in (held, other)] == [State.BLOCKED, State.READY]
        await store.promote()
        assert await state(store, held) == State.BLOCKED
        await side.commit()
        await store.promote()
        assert await state(store, held) == State.READY


class TestCallersTransaction:
    """A run that a caller's transaction enqueues is held in any case; the promotion after the commit looks."""

    async def test_successes_do_not_wait_for_an_open_transaction(
        self, store: PostgresStore, caller: psycopg.Connection
    ) -> None:
        await after(store, "x", "a")
        hand = await Hand(store).join()
        made = of("x")
        inside(store, caller, made)
        await succeeds(hand, "a")
        assert await noted(store) == {"a": True}
        await store.promote()
        caller.commit()
        assert await state(store, made) == State.BLOCKED
        await store.promote()
        assert (await state(store, made), await noted(store)) == (State.READY, {"a": False})

    async def test_enqueues_do_not_wait_for_an_open_transaction(
        self, store: PostgresStore, caller: psycopg.Connection
    ) -> None:
        """A job that is enqueued later and committed earlier is released first."""
        await after(store, "x", "a")
        await succeeds(await Hand(store).join(), "a")
        made = of("x")
        inside(store, caller, made)
        later = await one(store, of("x"))
        caller.commit()
        await store.promote()
        assert [await state(store, each) for each in (made, later)] == [State.BLOCKED, State.READY]
        assert await waiting(store) == [made.id]

    async def test_a_job_that_has_committed_comes_before_later_jobs(
        self, store: PostgresStore, caller: psycopg.Connection
    ) -> None:
        await after(store, "x", "a")
        await succeeds(await Hand(store).join(), "a")
        made = of("x")
        inside(store, caller, made)
        caller.commit()
        later = await one(store, of("x"))
        assert [await state(store, each) for each in (made, later)] == [State.READY, State.BLOCKED]

    async def test_dependencies_removed_while_the_transaction_is_open(
        self, store: PostgresStore, caller: psycopg.Connection
    ) -> None:
        await after(store, "x", "a")
        made, later = of("x"), of("x", delay=HOUR)
        inside(store, caller, made, later)
        await after(store, "x")
        caller.commit()
        await store.promote()
        assert [await state(store, each) for each in (made, later)] == [State.READY, State.SCHEDULED]

    async def test_a_run_of_a_schedule_without_dependencies_in_a_transaction(
        self, store: PostgresStore, caller: psycopg.Connection
    ) -> None:
        made = of("x")
        inside(store, caller, made)
        caller.commit()
        assert await state(store, made) == State.READY

    async def test_a_run_that_is_rolled_back_leaves_nothing(
        self, store: PostgresStore, caller: psycopg.Connection, sides: Sides
    ) -> None:
        await after(store, "x", "a")
        inside(store, caller, of("x"))
        caller.rollback()
        side = await sides.open()
        assert await side.run(f"select * from {store.schema}.dependency_rechecks") == []
        assert await waiting(store) == []

    async def test_a_replacement_in_an_open_transaction_blocks_no_success(
        self, store: PostgresStore, caller: psycopg.Connection
    ) -> None:
        """The caller has locked the row of the held job. The next promotion releases the job."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        key = UniqueKey(b"k" * 16, HOUR, mode="debounce")
        made = await one(store, of("x", unique=key))
        inside(store, caller, of("x", unique=key, record=b"2"))
        await succeeds(hand, "a")
        assert await state(store, made) == State.BLOCKED
        caller.commit()
        await store.promote()
        found = await row(store, made)
        assert (found.state, found.record) == (State.SCHEDULED, b"2")

    async def test_a_run_that_need_not_wait_is_refused(self, store: PostgresStore, caller: psycopg.Connection) -> None:
        with pytest.raises(WrongConnection, match="forced"):
            inside(store, caller, of("x"), forced=True)


@pytest.mark.parametrize(("marks", "looks"), [(["tag"], 0), ([part_mark("free")], 2)])
async def test_plain_jobs_do_not_read_dependencies(
    store: PostgresStore, sides: Sides, marks: list[str], looks: int
) -> None:
    """Neither an enqueue nor a turn reads the tables. For a run of a schedule without dependencies each reads them
    once.
    """
    await after(store, "x", "a")
    hand, claim = await running(store, job(marks=marks))
    side = await sides.open()
    before = await scans(side)
    await side.enqueue(job(marks=marks))
    await side.turn(success(hand, claim))
    assert await scans(side) - before == looks
    await side.commit()


async def scans(side: Side) -> int:
    """How often this transaction has read the tables of dependencies."""
    ((found,),) = await side.run(
        """
        select coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0)::integer from pg_stat_xact_user_tables
        where schemaname = %s and relname in ('dependents', 'dependencies', 'dependency_rechecks')
        """,
        (side.schema,),
    )
    return int(found)
