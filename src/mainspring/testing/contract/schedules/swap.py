"""Schedules are exchanged by number: only a caller that read the last row can exchange it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.schedules.records import ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import gone, job, limits_of

__all__ = ["TestSwap"]

ODD = ["a:b", "ä {x}", "it's", '"', "a/b\\c", "%s_%", "\u2603 \U0001f41b", " ", "*", "new\nline", "x" * 200]
"""Names that somebody may give."""
LARGE = bytes(range(256)) * 400


def batch(*jobs: NewJob, **options: Any) -> JobBatch:
    """These jobs as one batch."""
    return JobBatch(id=new_id().bytes, jobs=jobs, limits=limits_of(jobs), **options)


async def made(store: Store, name: str = "s", **options: Any) -> int:
    """Make a schedule; its number."""
    said = await store.swap_schedule(ScheduleSwap(name=name, rev=0, doc=options.pop("doc", b"{}"), **options))
    assert said.ok
    return said.rev


async def whole(store: Store, name: str = "s") -> tuple[list[ScheduleRow], list[ScheduleRun]]:
    """All that is stored of a schedule."""
    return await store.schedules([name]), await store.schedule_runs(name)


@pytest.mark.asyncio
class TestSwap:
    async def test_a_schedule_is_created_exchanged_and_deleted(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        first = await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=b"one", look=7))
        assert first == SwapResult(ok=True, now=clock.now_us(), rev=first.rev)
        assert await second_store.schedules(["s"]) == [ScheduleRow(name="s", rev=first.rev, look=7, doc=b"one")]
        second = await second_store.swap_schedule(ScheduleSwap(name="s", rev=first.rev, doc=b"two"))
        assert second.ok
        assert second.rev > first.rev
        assert await store.schedules(["s"]) == [ScheduleRow(name="s", rev=second.rev, look=None, doc=b"two")]
        third = await store.swap_schedule(ScheduleSwap(name="s", rev=second.rev, doc=None))
        assert (third.ok, third.rev) == (True, 0)
        assert await whole(store) == ([], [])

    async def test_a_wrong_number_is_refused(self, store: Store) -> None:
        """An older, a newer or no number: the reply has the number of the row, and nothing changes."""
        old = await made(store)
        now = (await store.swap_schedule(ScheduleSwap(name="s", rev=old, doc=b"new", runs=(ScheduleRun(at=1),)))).rev
        before = await whole(store)
        for rev in (old, now + 1, 0, -1):
            for doc in (b"mine", None):
                made_too = job()
                swap = ScheduleSwap(name="s", rev=rev, doc=doc, look=5, runs=(ScheduleRun(at=2, job=made_too.id),))
                said = await store.swap_schedule(swap, batch(made_too))
                assert (said.ok, said.rev, said.taken, said.enqueued) == (False, now, None, ())
                assert await gone(store, made_too)
        assert await whole(store) == before

    async def test_a_missing_schedule_is_refused(self, store: Store) -> None:
        wanted = job()
        said = await store.swap_schedule(ScheduleSwap(name="s", rev=5, doc=b"{}"), batch(wanted))
        assert (said.ok, said.rev) == (False, 0)
        assert await gone(store, wanted)
        assert await whole(store) == ([], [])

    async def test_the_number_is_the_time_or_last_plus_one(self, store: Store, clock: MovableClock) -> None:
        first = await made(store)
        assert first == clock.now_us()
        second = (await store.swap_schedule(ScheduleSwap(name="s", rev=first, doc=b"{}"))).rev
        assert second == first + 1
        clock.advance("1s")
        assert (await store.swap_schedule(ScheduleSwap(name="s", rev=second, doc=b"{}"))).rev == clock.now_us()

    async def test_the_number_grows_over_a_deletion(self, store: Store, second_store: Store) -> None:
        """A caller that read the old row cannot mistake the new row for it."""
        first = await made(store)
        seen = (await store.swap_schedule(ScheduleSwap(name="s", rev=first, doc=b"old"))).rev
        await store.swap_schedule(ScheduleSwap(name="s", rev=seen, doc=None))
        again = await made(second_store)
        assert again > seen
        assert not (await store.swap_schedule(ScheduleSwap(name="s", rev=seen, doc=b"mine"))).ok

    async def test_the_number_grows_when_the_clock_goes_back(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        first = await made(store)
        clock.set(clock.now() - timedelta(hours=1))
        second = (await second_store.swap_schedule(ScheduleSwap(name="s", rev=first, doc=b"{}"))).rev
        assert second == first + 1
        await second_store.swap_schedule(ScheduleSwap(name="s", rev=second, doc=None))
        assert await made(second_store) > second

    async def test_deleting_a_missing_schedule_changes_nothing(self, store: Store) -> None:
        said = await store.swap_schedule(ScheduleSwap(name="s", rev=0, doc=None))
        assert (said.ok, said.rev) == (True, 0)
        assert await whole(store) == ([], [])

    async def test_a_deletion_deletes_the_runs(self, store: Store) -> None:
        """Also the runs of the same call; a new schedule of the name begins without runs."""
        rev = await made(store, runs=(ScheduleRun(at=1, job=b"j" * 16), ScheduleRun(at=2)))
        await made(store, "other", runs=(ScheduleRun(at=1),))
        await store.swap_schedule(ScheduleSwap(name="s", rev=rev, doc=None, runs=(ScheduleRun(at=3),)))
        assert await whole(store) == ([], [])
        await made(store)
        assert await store.schedule_runs("s") == []
        assert await store.schedule_runs("other") == [ScheduleRun(at=1)]

    async def test_a_repeat_changes_nothing(self, store: Store) -> None:
        """The reply was lost: the repeat finds a newer number, whatever the exchange was."""
        first, second = job(), job()
        make = ScheduleSwap(name="s", rev=0, doc=b"1", look=5, runs=(ScheduleRun(at=1, job=first.id),))
        brings = batch(first)
        rev = (await store.swap_schedule(make, brings)).rev
        again = await store.swap_schedule(make, brings)
        assert (again.ok, again.rev, again.enqueued) == (False, rev, ())
        change = ScheduleSwap(name="s", rev=rev, doc=b"2", look=6, runs=(ScheduleRun(at=2, job=second.id),))
        brings = batch(second)
        rev = (await store.swap_schedule(change, brings)).rev
        before = await whole(store)
        assert (await store.swap_schedule(change, brings)).rev == rev
        assert await whole(store) == before
        assert (await store.count(Query.everything()))[State.READY] == 2
        delete = ScheduleSwap(name="s", rev=rev, doc=None)
        assert (await store.swap_schedule(delete)).ok
        said = await store.swap_schedule(delete)
        assert (said.ok, said.rev) == (False, 0)

    async def test_names_and_documents_of_any_content(self, store: Store, elsewhere: Store) -> None:
        for n, name in enumerate(ODD):
            rev = await made(store, name, doc=b"%d" % n, runs=(ScheduleRun(at=n, doc=b"\x00\xff"),))
            said = await store.swap_schedule(
                ScheduleSwap(name=name, rev=rev, doc=LARGE + b"%d" % n, runs=(ScheduleRun(at=n + 1, doc=LARGE),))
            )
            assert said.ok
        for n, name in enumerate(ODD):
            ((row,), runs) = await whole(store, name)
            assert (row.name, row.doc) == (name, LARGE + b"%d" % n)
            assert runs == [ScheduleRun(at=n + 1, doc=LARGE), ScheduleRun(at=n, doc=b"\x00\xff")]
        assert [row.name for row in await store.schedules()] == sorted(ODD, key=str.encode)
        assert await elsewhere.schedules() == []
        assert await elsewhere.schedule_runs(ODD[0]) == []
        assert (await elsewhere.swap_schedule(ScheduleSwap(name=ODD[0], rev=0, doc=b"mine"))).ok
