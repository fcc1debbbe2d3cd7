"""Q11 and the verbs of app.jobs: find, count and change many at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring import AsyncContext, Context, Job, Mainspring, Query
from mainspring.errors import InvalidOption, WouldBlockLoop
from mainspring.states import Reason, State
from tests.rows.crew import LIMIT, until


def enqueue(app: Mainspring, name: str, count: int = 1, **options: Any) -> list[Job[Any]]:
    calls = [app.call(name).options(**options) for _ in range(count)]
    return [job for start in range(0, count, 1000) for job in app.enqueue_many(calls[start : start + 1000])]


def ids(jobs: Any) -> set[Any]:
    return {job.id for job in jobs}


@pytest.mark.row("Q11")
class TestCount:
    def test_counts_add_up_to_the_total_while_jobs_move(self, app: Mainspring) -> None:
        """Each count is one snapshot: no job is counted in two states or in none."""

        @app.task(name="move", retries=1, backoff="5ms")
        async def move(ctx: AsyncContext, n: int) -> None:
            if ctx.attempt == 1 and n % 3 == 0:
                raise ValueError

        app.enqueue_many(move.s(n) for n in range(900))
        totals = set()
        with app.worker():
            while (counts := app.jobs.count())["succeeded"] < 900:
                totals.add(counts.total)
        assert totals == {900}
        assert (counts.total, counts.live) == (900, 0)

    def test_count_of_a_query(self, app: Mainspring) -> None:
        enqueue(app, "a", 3)
        [later] = enqueue(app, "a", delay="1h")
        enqueue(app, "b", 2)
        assert app.jobs.count().total == 6
        counts = app.jobs.count(Query.where(tasks=["a"]))
        assert (counts["ready"], counts["scheduled"], counts.total) == (3, 1, 4)
        assert app.jobs.count(later)["scheduled"] == 1
        assert app.jobs.count(str(later.id)).total == 1
        assert set(counts) == set(State)
        assert app.jobs.count(Query()).total == 0

    async def test_acount_of_a_query(self, app: Mainspring) -> None:
        await app.call("a").aenqueue()
        assert (await app.jobs.acount(Query.where(tasks=["a"]))).total == 1


@pytest.mark.row("Q11")
class TestList:
    def test_list_by_state_task_queue_tag_and_time(self, app: Mainspring) -> None:
        old = enqueue(app, "a", 2, tags=["red", "big"])
        between = until(lambda: datetime.now(UTC))
        until(lambda: datetime.now(UTC) > between)
        young = enqueue(app, "b", 2, tags=["red"], queue="other")
        [later] = enqueue(app, "c", delay="1h")
        [cancelled] = enqueue(app, "c")
        cancelled.cancel()
        for query, expected in (
            (Query.where(states=["scheduled", "cancelled"]), {later.id, cancelled.id}),
            (Query.where(tasks=["a", "b"]), ids(old + young)),
            (Query.where(queues=["other"]), ids(young)),
            (Query.where(tags=["red"]), ids(old + young)),
            (Query.where(tags=["red", "big"]), ids(old)),
            (Query.where(tags=["red"], tasks=["b"]), ids(young)),
            (Query.where(until=between), ids(old)),
            (Query.where(since=between), ids(young) | {later.id, cancelled.id}),
            (Query.where(reasons=[Reason.BY_USER]), {cancelled.id}),
            (Query.where(ended_before=datetime.now(UTC)), {cancelled.id}),
            (Query(), set()),
            (None, ids(old + young) | {later.id, cancelled.id}),
        ):
            assert ids(app.jobs.list(query).jobs) == expected, query
        assert ids(app.jobs.list(later).jobs) == {later.id}

    def test_list_the_children_of_a_job(self, app: Mainspring) -> None:
        @app.task(name="a", on_cancel="told")
        def a() -> None: ...

        job, other = a.enqueue(), a.enqueue()
        app.jobs.cancel(Query.of(job.id, other.id))
        [child] = app.jobs.list(Query.where(parent=job.id)).jobs
        assert (child.task, child.parent, child.trace) == ("told", job.id, job.info().trace)

    def test_list_returns_the_newest_first_in_pages_of_the_limit(self, app: Mainspring) -> None:
        jobs = enqueue(app, "a", 25)
        first = app.jobs.list(limit=10)
        second = app.jobs.list(limit=10, cursor=first.cursor)
        third = app.jobs.list(limit=10, cursor=second.cursor)
        found = [info.id for page in (first, second, third) for info in page.jobs]
        assert found == [job.id for job in reversed(jobs)]
        assert (len(first.jobs), len(third.jobs), third.cursor) == (10, 5, None)

    def test_pages_repeat_and_miss_no_job_while_jobs_move(self, app: Mainspring) -> None:
        @app.task(name="move", retries=1, backoff="5ms")
        async def move(ctx: AsyncContext, n: int) -> None:
            if ctx.attempt == 1 and n % 2:
                raise ValueError

        jobs = app.enqueue_many(move.s(n) for n in range(400))
        rounds = 0
        with app.worker():
            while app.jobs.count(Query.of(*(job.id for job in jobs))).live or rounds < 2:
                move.enqueue(-1)  # newer ones come meanwhile
                found, cursor = [], None
                while True:
                    page = app.jobs.list(Query.where(tasks=["move"]), limit=30, cursor=cursor)
                    found += [info.id for info in page.jobs]
                    cursor = page.cursor
                    if cursor is None:
                        break
                assert len(found) == len(set(found))
                assert ids(jobs) <= set(found)
                rounds += 1

    def test_a_bad_limit_cursor_or_query_is_refused(self, app: Mainspring) -> None:
        for limit in (0, -1, 10_001, 1.5, True):
            with pytest.raises(InvalidOption, match="limit"):
                app.jobs.list(limit=limit)  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="cursor"):
            app.jobs.list(cursor="what?")
        with pytest.raises(InvalidOption, match="is not a query"):
            app.jobs.list({"state": "dead"})  # type: ignore[arg-type]

    async def test_alist_returns_pages(self, app: Mainspring) -> None:
        await app.aenqueue_many(app.call("a") for _ in range(3))
        first = await app.jobs.alist(Query.where(tasks=["a"]), limit=2)
        second = await app.jobs.alist(Query.where(tasks=["a"]), limit=2, cursor=first.cursor)
        assert (len(first.jobs), len(second.jobs)) == (2, 1)


class TestIterate:
    def test_iterate_yields_every_job(self, app: Mainspring) -> None:
        wanted = enqueue(app, "a", 250)
        enqueue(app, "b", 10)
        assert [info.id for info in app.jobs.iterate(Query.where(tasks=["a"]))] == [job.id for job in reversed(wanted)]
        assert sum(1 for _ in app.jobs.iterate()) == 260

    async def test_aiterate_yields_every_job(self, app: Mainspring) -> None:
        await app.aenqueue_many(app.call("a") for _ in range(3))
        assert len([info async for info in app.jobs.aiterate(Query.where(tasks=["a"]))]) == 3
        with pytest.raises(WouldBlockLoop, match=r"app\.jobs\.aiterate"):
            app.jobs.iterate()


CHANGES: list[Callable[[Any, Any], int]] = [
    lambda jobs, query: jobs.cancel(query),
    lambda jobs, query: jobs.retry(query),
    lambda jobs, query: jobs.run_now(query),
    lambda jobs, query: jobs.delete(query),
    lambda jobs, query: jobs.reprioritise(query, 1),
]


@pytest.mark.parametrize("change", CHANGES, ids=["cancel", "retry", "run_now", "delete", "reprioritise"])
def test_methods_that_change_jobs_refuse_an_empty_query(app: Mainspring, change: Callable[[Any, Any], int]) -> None:
    [job] = enqueue(app, "a")
    before = job.info()
    for empty in (Query(), Query.where(), None):
        with pytest.raises(InvalidOption, match=r"pass Query\.everything\(\)"):
            change(app.jobs, empty)
    with pytest.raises(InvalidOption, match="is not a query"):
        change(app.jobs, 7)
    assert job.info() == before
    assert change(app.jobs, Query.of()) == 0


class TestChange:
    def test_cancel_by_filter_by_ids_and_one(self, app: Mainspring) -> None:
        wanted, rest = enqueue(app, "a", 1100), enqueue(app, "b", 1100)
        assert app.jobs.cancel(Query.where(tasks=["a"]), reason="not needed") == 1100
        assert {info.note for info in app.jobs.iterate(Query.where(tasks=["a"]))} == {"not needed"}
        assert app.jobs.count(Query.where(tasks=["b"]))["ready"] == 1100
        assert app.jobs.cancel(Query.of(*(job.id for job in rest[2:]))) == 1098
        assert app.jobs.cancel(rest[0]) == 1
        assert app.jobs.cancel(str(rest[1].id)) == 1
        assert app.jobs.cancel(wanted[0]) == 0, "it had ended"
        assert app.jobs.count()["cancelled"] == 2200

    def test_cancel_orders_running_jobs_to_stop(self, app: Mainspring) -> None:
        begun = threading.Barrier(3)

        @app.task(name="loop")
        def loop(ctx: Context) -> None:
            begun.wait(LIMIT)
            while True:
                time.sleep(0.01)
                ctx.check()

        with app.worker():
            jobs = [loop.enqueue() for _ in range(2)]
            begun.wait(LIMIT)
            assert app.jobs.cancel(Query.where(tasks=["loop"])) == 2
            assert {job.join(timeout=LIMIT).state for job in jobs} == {State.CANCELLED}

    def test_retry_retries_each_job_once_even_if_it_ends_again(self, app: Mainspring) -> None:
        """A retried job matches the query again as soon as it has ended."""

        @app.task(name="quick")
        async def quick() -> None: ...

        with app.worker():
            jobs = app.enqueue_many(quick.s() for _ in range(350))
            until(lambda: app.jobs.count()["succeeded"] == 350)
            assert app.jobs.retry(Query.where(tasks=["quick"]), rate=None) == 350
            until(lambda: app.jobs.count()["succeeded"] == 350)
            assert {job.info().epoch for job in jobs} == {2}

    def test_retry_obeys_its_rate(self, app: Mainspring) -> None:
        enqueue(app, "a", 30)
        app.jobs.cancel(Query.everything())
        begun = time.monotonic()
        assert app.jobs.retry(Query.where(tasks=["a"]), rate=20) == 30
        assert time.monotonic() - begun >= 1.3, "30 jobs at 20 a second, two at a time"

    def test_a_rate_of_zero_is_refused(self, app: Mainspring) -> None:
        for rate in (0, -1, "fast"):
            with pytest.raises(InvalidOption, match="rate"):
                app.jobs.retry(Query.everything(), rate=rate)  # type: ignore[arg-type]

    def test_run_now_starts_the_jobs_of_a_query(self, app: Mainspring) -> None:
        enqueue(app, "a", 3, delay="1h")
        enqueue(app, "b", 2, delay="1h")
        assert app.jobs.run_now(Query.where(tasks=["a"])) == 3
        counts = app.jobs.count()
        assert (counts["ready"], counts["scheduled"]) == (3, 2)

    def test_delete_leaves_running_jobs(self, app: Mainspring) -> None:
        begun, release = threading.Event(), threading.Event()

        @app.task(name="hold")
        def hold() -> None:
            begun.set()
            release.wait(LIMIT)

        enqueue(app, "a", 1100, queue="other")  # no worker claims them, not even to return a task it does not know
        enqueue(app, "b", 3, queue="other")
        with app.worker(queues=["default"]):
            running = hold.enqueue()
            assert begun.wait(LIMIT)
            assert app.jobs.delete(Query.where(tasks=["a"])) == 1100
            assert app.jobs.delete(Query.everything()) == 3
            release.set()
            assert running.join(timeout=LIMIT).state is State.SUCCEEDED
        assert app.jobs.count().total == 1

    def test_reprioritise_by_number_and_name(self, app: Mainspring) -> None:
        ran: list[str] = []

        @app.task(name="note")
        async def note(name: str) -> None:
            ran.append(name)

        jobs = {name: note.enqueue(name) for name in ("first", "second", "third")}
        assert app.jobs.reprioritise(jobs["third"], "high") == 1
        assert app.jobs.reprioritise(jobs["second"], 20) == 1
        assert [jobs[name].info().priority for name in jobs] == [0, 20, 50]
        with app.worker(async_slots=1):
            for job in jobs.values():
                job.join(timeout=LIMIT)
        assert [name for name in ran if name != "first"] == ["third", "second"]
        with pytest.raises(InvalidOption, match="priority"):
            app.jobs.reprioritise(Query.everything(), 101)

    async def test_the_async_methods_change_jobs(self, app: Mainspring) -> None:
        job = await app.call("a").options(delay="1h").aenqueue()
        assert await app.jobs.areprioritise(job, "high") == 1
        assert await app.jobs.arun_now(job) == 1
        assert await app.jobs.acancel(job, "enough") == 1
        assert await app.jobs.aretry(job, rate=None) == 1
        info = await job.ainfo()
        assert (info.priority, info.epoch, info.state) == (50, 2, State.READY)
        assert await app.jobs.adelete(job) == 1
