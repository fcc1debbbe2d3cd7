"""Schedules: pairs of transactions, one of them held; the rows that deleted schedules leave; the cost of a look."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.jobs.records import Enqueued
from mainspring.schedules.records import ScheduleRun, ScheduleSwap
from mainspring.states import State
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import HOUR, gone, job, state
from tests.stores.postgres.sides import Sides

DAY = 24 * HOUR


async def made(store: PostgresStore, name: str = "s") -> int:
    return (await store.swap_schedule(ScheduleSwap(name=name, rev=0, doc=b"{}"))).rev


class TestConcurrentTransactions:
    @pytest.mark.parametrize("is_there", [True, False])
    async def test_two_swaps_of_one_revision(self, store: PostgresStore, sides: Sides, is_there: bool) -> None:
        """The second waits for the first and gets its revision, for a new and for a stored schedule."""
        rev = await made(store) if is_there else 0
        first, second = await sides.open(), await sides.open()
        one_job, other = job(), job()
        mine = await first.swap(
            ScheduleSwap(name="s", rev=rev, doc=b"first", runs=(ScheduleRun(at=1, job=one_job.id),)), one_job
        )
        theirs = ScheduleSwap(name="s", rev=rev, doc=b"second", runs=(ScheduleRun(at=1, job=other.id),))
        said = await sides.behind(first, second, lambda: second.swap(theirs, other))
        assert (mine.ok, said.ok, said.rev) == (True, False, mine.rev)
        assert mine.enqueued == (Enqueued(one_job.id, True),)
        assert [row.doc for row in await store.schedules()] == [b"first"]
        assert [run.job for run in await store.schedule_runs("s")] == [one_job.id]
        assert await gone(store, other)

    @pytest.mark.parametrize("is_there", [True, False])
    async def test_the_second_swap_succeeds_when_the_first_rolls_back(
        self, store: PostgresStore, sides: Sides, is_there: bool
    ) -> None:
        rev = await made(store) if is_there else 0
        first, second = await sides.open(), await sides.open()
        await first.swap(ScheduleSwap(name="s", rev=rev, doc=b"first"), job())
        waiting = asyncio.create_task(second.swap(ScheduleSwap(name="s", rev=rev, doc=b"second")))
        await sides.until_blocked(first, second, waiting)
        await first.rollback()
        assert (await waiting).ok
        await second.commit()
        assert [row.doc for row in await store.schedules()] == [b"second"]

    async def test_a_deletion_during_a_swap(self, store: PostgresStore, sides: Sides) -> None:
        rev = await made(store)
        first, second = await sides.open(), await sides.open()
        await first.swap(ScheduleSwap(name="s", rev=rev, doc=None))
        wanted = job()
        said = await sides.behind(first, second, lambda: second.swap(ScheduleSwap(name="s", rev=rev, doc=b"x"), wanted))
        assert (said.ok, said.rev) == (False, 0)
        assert await gone(store, wanted)

    async def test_a_swap_during_the_pruning_of_a_deleted_schedule(self, store: PostgresStore, sides: Sides) -> None:
        """A prune skips a row that is being inserted. A swap waits for the prune and inserts the row."""
        rev = await made(store)
        await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=None))
        maker, tidier = await sides.open(), await sides.open()
        await maker.run(f"update {store.schema}.schedules set rev = 5 returning 1")
        await maker.commit()
        assert (await maker.swap(ScheduleSwap(name="s", rev=0, doc=b"new"))).ok
        await tidier.prune_others()
        await tidier.commit()
        await maker.rollback()
        await tidier.prune_others()
        said = await sides.behind(tidier, maker, lambda: maker.swap(ScheduleSwap(name="s", rev=0, doc=b"newer")))
        assert said.ok
        assert [row.doc for row in await store.schedules()] == [b"newer"]

    async def test_swaps_of_other_schedules_and_reads_do_not_wait(self, store: PostgresStore, sides: Sides) -> None:
        rev = await made(store)
        side = await sides.open()
        await side.swap(ScheduleSwap(name="s", rev=rev, doc=b"new"), job())
        assert await made(store, "other")
        assert [row.doc for row in await store.schedules()] == [b"{}", b"{}"]
        await store.due_schedules()
        await side.commit()


async def test_a_refused_swap_is_no_error_of_the_server(store: PostgresStore, sides: Sides) -> None:
    """Schedulers lose races often: nothing is rolled back, and the log of the server has no line."""
    rev = await made(store)
    side = await sides.open()
    wanted = job()
    assert not (await side.swap(ScheduleSwap(name="s", rev=rev + 1, doc=b"x"), wanted)).ok
    assert (await side.swap(ScheduleSwap(name="s", rev=rev, doc=b"x"), wanted)).enqueued == (Enqueued(wanted.id, True),)
    await side.commit()
    assert await state(store, wanted) == State.READY


async def test_the_revision_of_a_deleted_schedule_is_kept_for_a_day(store: PostgresStore, sides: Sides) -> None:
    side = await sides.open()
    for name, age in (("old", DAY + HOUR), ("young", DAY - HOUR)):
        rev = await made(store, name)
        await store.swap_schedule(ScheduleSwap(name=name, rev=rev, doc=None))
        await side.run(f"update {store.schema}.schedules set rev = rev - %s where name = %s returning 1", (age, name))
    await made(store, "lives")
    await side.prune_others()
    left = await side.run(f"select name from {store.schema}.schedules order by name")
    await side.rollback()
    assert left == [("lives",), ("young",)]
