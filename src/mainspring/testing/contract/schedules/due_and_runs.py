"""Which schedules are due, the stored schedules, and the runs of their occurrences."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from mainspring.common.clock import MovableClock
from mainspring.schedules.records import DueSchedules, ScheduleRow, ScheduleRun, ScheduleSwap
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import SECOND, job

from .swap import LARGE, batch, made, whole

__all__ = ["TestDueSchedules", "TestRuns", "TestScheduleWakes", "TestSchedules"]

LONG = 30.0


def names(looked: DueSchedules) -> list[str]:
    return [row.name for row in looked.rows]


@pytest.mark.asyncio
class TestDueSchedules:
    async def test_no_schedules(self, store: Store, clock: MovableClock) -> None:
        assert await store.due_schedules() == DueSchedules(now=clock.now_us())

    async def test_due_schedules_come_by_time(self, store: Store, second_store: Store, clock: MovableClock) -> None:
        """Schedules whose moment is now or in the past, the earliest first. A schedule without a moment is not among
        them.
        """
        now = clock.now_us()
        moments = {"next": now + 1, "now": now, "old": now - SECOND, "never": None, "later": now + SECOND}
        revs = {name: await made(store, name, look=look, doc=name.encode()) for name, look in moments.items()}
        looked = await second_store.due_schedules()
        assert looked.rows == tuple(
            ScheduleRow(name=name, rev=revs[name], look=moments[name], doc=name.encode()) for name in ("old", "now")
        )
        assert (looked.now, looked.next_look) == (now, now + 1)
        clock.advance("1s")
        assert names(await store.due_schedules()) == ["old", "now", "next", "later"]
        assert (await store.due_schedules()).next_look is None

    async def test_reading_due_schedules_changes_nothing(self, store: Store) -> None:
        await made(store, look=1)
        before = await whole(store)
        assert await store.due_schedules() == await store.due_schedules()
        assert await whole(store) == before

    async def test_an_exchanged_schedule_is_due_at_its_new_moment(self, store: Store, clock: MovableClock) -> None:
        now = clock.now_us()
        rev = await made(store, look=now)
        for look, due, then in ((now + 5, [], now + 5), (None, [], None), (now - 5, ["s"], None)):
            rev = (await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=b"{}", look=look))).rev
            looked = await store.due_schedules()
            assert (names(looked), looked.next_look) == (due, then)
        await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=None))
        looked = await store.due_schedules()
        assert (looked.rows, looked.next_look) == ((), None)

    async def test_schedules_of_one_moment_come_by_name(self, store: Store) -> None:
        for name in ("b", "Z", "a", "ä", "aa"):
            await made(store, name, look=1)
        assert names(await store.due_schedules()) == ["Z", "a", "aa", "b", "ä"]

    async def test_at_most_limit_schedules(self, store: Store, clock: MovableClock) -> None:
        """The next moment is then that of the first one left out."""
        now = clock.now_us()
        for n in range(5):
            await made(store, f"s{n}", look=now - 10 + n)
        await made(store, "later", look=now + 7)
        looked = await store.due_schedules(3)
        assert (names(looked), looked.next_look) == (["s0", "s1", "s2"], now - 7)
        looked = await store.due_schedules(5)
        assert (len(looked.rows), looked.next_look) == (5, now + 7)
        assert len((await store.due_schedules()).rows) == 5

    async def test_many_due_schedules(self, store: Store, second_store: Store, clock: MovableClock) -> None:
        now = clock.now_us()
        for start in range(0, 300, 20):
            await asyncio.gather(*(made(store, f"s{n:03}", look=now + n - 100) for n in range(start, start + 20)))
        looked = await second_store.due_schedules()
        assert names(looked) == [f"s{n:03}" for n in range(101)]
        assert looked.next_look == now + 1

    async def test_the_store_clock_decides(self, store: Store, clock: MovableClock) -> None:
        """A time is compared at the read, not at the write."""
        await made(store, look=clock.now_us() + 60 * SECOND)
        assert (await store.due_schedules()).rows == ()
        clock.set(clock.now() + timedelta(minutes=1))
        assert names(await store.due_schedules()) == ["s"]


@pytest.mark.asyncio
class TestSchedules:
    async def test_named_schedules_or_all_by_name(self, store: Store, second_store: Store) -> None:
        for name in ("b", "Z", "a", "ä", "c"):
            await made(store, name, doc=name.encode())
        assert [row.name for row in await second_store.schedules()] == ["Z", "a", "b", "c", "ä"]
        assert [row.name for row in await store.schedules(["c", "none", "a", "ä", "a"])] == ["a", "c", "ä"]
        assert await store.schedules(["none"]) == []

    async def test_many_schedules_with_large_documents(self, store: Store) -> None:
        for n in range(20):
            await made(store, f"s{n:02}", doc=LARGE + b"%d" % n, look=1)
        assert [row.doc for row in await store.schedules()] == [LARGE + b"%d" % n for n in range(20)]
        assert [row.doc for row in (await store.due_schedules()).rows] == [LARGE + b"%d" % n for n in range(20)]


@pytest.mark.asyncio
class TestRuns:
    async def test_runs_come_latest_first_in_pages(self, store: Store) -> None:
        """In the order of the occurrences, whenever they were written."""
        runs = [ScheduleRun(at=at, job=None if at % 2 else b"%016d" % at, doc=b"%d" % at) for at in range(-3, 7)]
        rev = await made(store, runs=tuple(runs[5:]))
        await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=b"{}", runs=tuple(reversed(runs[:5]))))
        latest = list(reversed(runs))
        assert await store.schedule_runs("s") == latest
        assert await store.schedule_runs("s", 4) == latest[:4]
        assert await store.schedule_runs("s", 4, before=latest[3].at) == latest[4:8]
        assert await store.schedule_runs("s", before=runs[0].at) == []
        assert await store.schedule_runs("s", before=7) == latest
        assert await store.schedule_runs("none") == []

    async def test_the_latest_runs_are_kept(self, store: Store) -> None:
        """The runs of the latest occurrences, not the runs written last."""
        rev = await made(store, runs=tuple(ScheduleRun(at=at) for at in range(10)), keep=5)
        assert [run.at for run in await store.schedule_runs("s")] == [9, 8, 7, 6, 5]
        rev = (
            await store.swap_schedule(
                ScheduleSwap(name="s", rev=rev, doc=b"{}", runs=(ScheduleRun(at=3), ScheduleRun(at=11)), keep=5)
            )
        ).rev
        assert [run.at for run in await store.schedule_runs("s")] == [11, 9, 8, 7, 6]
        rev = (await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=b"{}", keep=2))).rev
        assert [run.at for run in await store.schedule_runs("s")] == [11, 9]
        await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=b"{}", runs=(ScheduleRun(at=12),), keep=0))
        assert await store.schedule_runs("s") == []

    async def test_runs_of_other_schedules_stay(self, store: Store) -> None:
        for name in ("s", "s:1", "s1", "S"):
            await made(store, name, runs=(ScheduleRun(at=1, doc=name.encode()), ScheduleRun(at=2)))
        (row,) = await store.schedules(["s"])
        await store.swap_schedule(ScheduleSwap(name="s", rev=row.rev, doc=b"{}", keep=0))
        for name in ("s:1", "s1", "S"):
            assert await store.schedule_runs(name) == [ScheduleRun(at=2), ScheduleRun(at=1, doc=name.encode())]

    async def test_a_hundred_runs_are_kept_by_default(self, store: Store) -> None:
        rev = await made(store, runs=tuple(ScheduleRun(at=at) for at in range(150)))
        assert [run.at for run in await store.schedule_runs("s", 1000)] == list(range(149, 49, -1))
        await store.swap_schedule(
            ScheduleSwap(name="s", rev=rev, doc=b"{}", runs=tuple(ScheduleRun(at=at) for at in range(1200)), keep=1100)
        )
        assert len(await store.schedule_runs("s", 2000)) == 1100


@pytest.mark.asyncio
class TestScheduleWakes:
    async def test_an_exchange_wakes_schedulers(self, store: Store, second_store: Store) -> None:
        """Whatever it was: made, changed, deleted."""
        listener = await store.listen("scheduler", [""])
        rev = await made(second_store)
        assert await listener.wait(LONG)
        rev = (await second_store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=b"{}"))).rev
        assert await listener.wait(LONG)
        await second_store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=None))
        assert await listener.wait(LONG)
        listener.close()

    async def test_an_exchange_wakes_workers_of_its_jobs(self, store: Store, second_store: Store) -> None:
        listener = await store.listen("w", ["q"])
        await second_store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"{}"), batch(job()))
        assert await listener.wait(LONG)
        listener.close()

    async def test_notify_wakes_schedulers(self, store: Store, second_store: Store) -> None:
        listener = await store.listen("scheduler", [""])
        await second_store.notify([""])
        assert await listener.wait(LONG)
        listener.close()
