"""Q: getting jobs in, in the right order, at the right time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import threading
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from mainspring import AsyncContext, Mainspring, Query
from mainspring.errors import JobCancelled, JobNotFound, WrongArgument
from mainspring.states import State
from tests.plugins.outside import SqlOutside

LIMIT = 60


def total(app: Mainspring) -> int:
    async def count() -> int:
        return sum((await (await app.client.store()).count(Query.everything())).values())

    from mainspring.client.blocking import run

    return run("count", count())


@pytest.mark.row("Q1")
class TestEnqueue:
    def test_a_job_enqueued_by_function_is_visible_to_another_process_at_once(self, app: Mainspring) -> None:
        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b

        job = add.enqueue(2, b=3)
        other = Mainspring(app.settings.url)
        seen = other.call("add", 1, 1)  # another app that does not know the task
        assert seen.task == "add"
        code = f"""
            from mainspring import Mainspring
            app = Mainspring({app.settings.url!r})
            @app.task(name="add")
            def add(a: int, b: int) -> int: ...
            print(add.job({str(job.id)!r}).info().state)
        """
        shown = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
        )
        assert shown.stdout.strip() == "ready"

    def test_a_job_enqueued_by_name_runs_in_a_program_that_knows_the_task(self, app: Mainspring) -> None:
        publisher = Mainspring(app.settings.url)
        by_position = publisher.call("shop.add", 2, 3).enqueue()
        by_keyword = publisher.call("shop.add", b=1, a=1).options(priority="high").enqueue()

        @app.task(name="shop.add")
        def add(a: int, b: int) -> int:
            return a + b

        with app.worker():
            assert by_position.result(timeout=LIMIT) == 5
            assert by_keyword.result(timeout=LIMIT) == 2

    def test_a_publisher_starts_no_loop_and_no_thread(self, store_url: str) -> None:
        code = f"""
            import sys, threading
            from mainspring import Mainspring
            app = Mainspring({store_url!r})
            app.call("shop.add", 1, 2).enqueue()
            print([thread.name for thread in threading.enumerate()])
        """
        shown = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
        )
        assert shown.stdout.strip() == "['MainThread']"

    async def test_aenqueue_and_ainfo(self, app: Mainspring) -> None:
        @app.task(name="double")
        async def double(n: int) -> int:
            return 2 * n

        async with app.worker():
            job = await double.aenqueue(21)
            assert await job.aresult(timeout=LIMIT) == 42


@pytest.mark.row("Q3")
class TestBulk:
    def test_enqueue_many_keeps_the_order_and_options_of_a_thousand_jobs(
        self, app: Mainspring, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # When the machine stalls for a second, jobs that were claimed ahead are handed back, and later jobs pass them.
        monkeypatch.setattr("mainspring.worker.run.dispatch.UNUSED_AFTER", 3600.0)
        ran: list[int] = []

        @app.task(name="note")
        async def note(n: int) -> None:
            ran.append(n)

        jobs = app.enqueue_many(note.s(n).options(priority=1 if n >= 990 else 0) for n in range(1000))
        assert len({job.id for job in jobs}) == 1000
        with app.worker(async_slots=1):
            for job in jobs:
                job.join(timeout=LIMIT)
        favoured = [n for n in ran if n >= 990]
        assert favoured == sorted(favoured)
        others = [n for n in ran if n < 990]
        assert others == sorted(others)

    def test_enqueue_many_inserts_all_jobs_or_none(self, app: Mainspring) -> None:
        @app.task(name="note")
        def note(n: int) -> None: ...

        with pytest.raises(WrongArgument, match="'n' expected int"):
            app.enqueue_many(note.s(n if n != 7 else "seven") for n in range(10))  # type: ignore[arg-type]
        assert total(app) == 0


@pytest.mark.row("Q4")
class TestLater:
    @pytest.mark.option("job.delay", "job.run_at")
    def test_a_delayed_job_starts_not_before_its_time(self, app: Mainspring) -> None:
        @app.task(name="when")
        async def when() -> datetime:
            return datetime.now(UTC)

        with app.worker():
            asked = datetime.now(UTC)
            delayed = when.options(delay="1500ms").enqueue()
            moment = asked + timedelta(seconds=2)
            at = when.options(run_at=moment).enqueue()
            assert delayed.info().state is State.SCHEDULED
            assert delayed.result(timeout=LIMIT) - asked >= timedelta(seconds=1.5)
            assert at.result(timeout=LIMIT) >= moment

    def test_an_expired_job_never_runs(self, app: Mainspring) -> None:
        ran = threading.Event()

        @app.task(name="late")
        def late() -> None:
            ran.set()

        job = late.options(expires="50ms").enqueue()
        threading.Event().wait(0.1)
        with app.worker(), pytest.raises(JobCancelled, match="expired"):
            job.result(timeout=LIMIT)
        assert not ran.is_set()


@pytest.mark.row("Q5")
class TestPriority:
    @pytest.mark.option("job.priority")
    def test_a_higher_priority_starts_first_and_equal_priorities_in_order(self, app: Mainspring) -> None:
        ran: list[str] = []

        @app.task(name="note", queue="anything")
        async def note(name: str) -> None:
            ran.append(name)

        calls = [("low", "low"), ("first", 0), ("second", "normal"), ("critical", "critical"), ("high", 50)]
        jobs = [note.options(priority=priority).enqueue(name) for name, priority in calls]  # type: ignore[arg-type]
        with app.worker(async_slots=1):
            for job in jobs:
                job.join(timeout=LIMIT)
        assert ran == ["critical", "high", "first", "second", "low"]

    def test_priority_is_kept_after_a_retry(self, app: Mainspring) -> None:
        ran: list[str] = []

        @app.task(name="fails_once", retries=1, backoff="10ms")
        async def fails_once(ctx: AsyncContext, name: str) -> None:
            ran.append(name)
            if ctx.attempt == 1 and name == "urgent":
                raise ValueError

        job = fails_once.options(priority="high").enqueue("urgent")
        with app.worker(async_slots=1):
            info = job.join(timeout=LIMIT)
        assert (info.priority, ran) == (50, ["urgent", "urgent"])


@pytest.mark.row("E3")
@pytest.mark.stores("sqlite", "postgres")
class TestCallersTransaction:
    @pytest.mark.option("job.connection")
    def test_a_job_in_the_callers_transaction_appears_at_its_commit(self, app: Mainspring, outside: SqlOutside) -> None:
        @app.task(name="note")
        def note(n: int) -> int:
            return n

        app.open()
        mine = outside.connect()
        mine.execute("create table orders (n integer)")
        mine.execute("begin")
        mine.execute("insert into orders values (1)")
        job = note.options(connection=mine).enqueue(1)
        with pytest.raises(JobNotFound):
            job.info()
        mine.execute("commit")
        mine.close()
        assert job.info().state is State.READY

    def test_a_rollback_of_the_callers_transaction_removes_the_job(self, app: Mainspring, outside: SqlOutside) -> None:
        @app.task(name="note")
        def note(n: int) -> int:
            return n

        app.open()
        mine = outside.connect()
        mine.execute("begin")
        job = note.options(connection=mine).enqueue(1)
        mine.execute("rollback")
        mine.close()
        with pytest.raises(JobNotFound):
            job.info()
        assert total(app) == 0

    async def test_aenqueue_joins_the_callers_transaction_too(self, app: Mainspring, outside: SqlOutside) -> None:
        @app.task(name="note")
        def note(n: int) -> int:
            return n

        await app.aopen()
        mine = outside.connect()
        mine.execute("begin")
        job = await note.options(connection=mine).aenqueue(1)
        mine.execute("commit")
        mine.close()
        assert (await job.ainfo()).state is State.READY
        await asyncio.sleep(0)


def test_info_of_an_unknown_id_raises_job_not_found(app: Mainspring) -> None:
    @app.task(name="note")
    def note(n: int) -> int:
        return n

    with pytest.raises(JobNotFound):
        note.job(uuid4()).info()
