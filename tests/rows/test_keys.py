"""Q2: one key, one job."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import UUID

import pytest

from mainspring import Job, Key, Mainspring, Query
from mainspring.errors import KeyTaken
from mainspring.states import Reason, State
from tests.plugins.outside import SqlOutside
from tests.rows.callers import NAME, at_once, once
from tests.rows.crew import until
from tests.rows.test_queue import total

LIMIT = 60
ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.row("Q2")


@pytest.mark.option("job.key", "task.key")
class TestManyCallers:
    def test_a_hundred_threads_make_one_job_and_all_get_its_id(self, app: Mainspring) -> None:
        task = app.task(name=NAME)(once)
        jobs = at_once(task.options(key="one"), 100)
        assert len({job.id for job in jobs}) == 1
        assert [job.created for job in jobs].count(True) == 1
        assert total(app) == 1
        with app.worker():
            assert len({job.result(timeout=LIMIT) for job in jobs}) == 1

    def test_five_processes_with_twenty_threads_each_make_one_job(self, app: Mainspring, tmp_path: Path) -> None:
        app.open()
        command = [sys.executable, "-m", "tests.rows.callers", app.settings.url, str(tmp_path), "20"]
        callers = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(5)]
        try:
            for caller in callers:
                assert caller.stdout is not None
                assert caller.stdout.readline() == "ready\n"
            (tmp_path / "go").touch()
            said = [line.split() for caller in callers for line in caller.communicate(timeout=LIMIT)[0].splitlines()]
        finally:
            for caller in callers:
                caller.kill()
                caller.wait()
        assert len(said) == 100
        assert len({job for job, _ in said}) == 1
        assert [created for _, created in said].count("True") == 1
        assert total(app) == 1

    async def test_a_hundred_coroutines_make_one_job(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key="one")(once)
        jobs = await asyncio.gather(*(task.aenqueue(n) for n in range(100)))
        assert len({job.id for job in jobs}) == 1
        assert [job.created for job in jobs].count(True) == 1
        await app.aclose()

    def test_one_batch_makes_one_job(self, app: Mainspring) -> None:
        task = app.task(name=NAME)(once)
        other = task.s(7)
        jobs = app.enqueue_many([*(task.s(n).options(key="one") for n in range(10)), other])
        assert len({job.id for job in jobs[:10]}) == 1
        assert [job.created for job in jobs] == [True] + [False] * 9 + [True]
        assert total(app) == 2


class TestHolder:
    def test_a_key_is_held_while_its_job_is_live_and_not_longer(self, app: Mainspring) -> None:
        begun, go_on = threading.Event(), threading.Event()

        @app.task(name="slow", key="k", retries=1, backoff="50ms")
        def slow() -> str:
            begun.set()
            go_on.wait(LIMIT)
            if go_on.is_set() and not failed:
                failed.append(1)
                raise ValueError("once")
            return "done"

        failed: list[int] = []
        first = slow.enqueue()
        assert slow.enqueue().id == first.id, "held while it waits"
        with app.worker():
            assert begun.wait(LIMIT)
            while_running = slow.enqueue()
            assert (while_running.id, while_running.created) == (first.id, False)
            go_on.set()
            assert while_running.result(timeout=LIMIT) == "done"
        assert failed == [1], "also while it was to be retried"
        assert slow.enqueue().id != first.id

    @pytest.mark.parametrize("end", ["cancelled", "dead", "deleted"])
    def test_a_key_is_free_however_its_job_ends(self, app: Mainspring, end: str) -> None:
        @app.task(name="ends", key="k", retries=0)
        def ends() -> None:
            raise ValueError

        first = ends.enqueue()
        if end == "dead":
            with app.worker():
                assert first.join(timeout=LIMIT).state is State.DEAD
        elif end == "cancelled":
            first.cancel()
        else:
            first.delete()
        again = ends.enqueue()
        assert again.id != first.id
        assert again.created

    def test_a_key_belongs_to_its_task_and_a_plain_enqueue_ignores_it(self, app: Mainspring) -> None:
        one, two = app.task(name="one")(once), app.task(name="two")(once)
        jobs = [one.options(key="k").enqueue(1), two.options(key="k").enqueue(1), one.enqueue(1), one.enqueue(1)]
        assert len({job.id for job in jobs}) == 4
        assert all(job.created for job in jobs)

    def test_a_producer_that_knows_only_the_task_name_uses_the_same_key(self, app: Mainspring) -> None:
        first = app.task(name="shop.report")(once).options(key=Key.arguments("n")).enqueue(7)
        stranger = Mainspring(app.settings.url)
        same = stranger.call("shop.report", n=7).options(key=Key.arguments("n")).enqueue()
        other = stranger.call("shop.report", n=8).options(key=Key.arguments("n")).enqueue()
        stranger.close()
        assert (same.id, same.created) == (first.id, False)
        assert other.created

    def test_info_shows_the_key(self, app: Mainspring) -> None:
        job = app.task(name="shown")(once).options(key=Key.arguments()).enqueue(7)
        assert job.info().key == "n=7"


class TestWindow:
    def test_callers_get_the_ended_job_until_the_window_is_over(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", window="1h"))(once)
        with app.worker():
            first = task.enqueue(1)
            assert first.result(timeout=LIMIT) == 1
            again = task.enqueue(2)
            assert (again.id, again.created) == (first.id, False)
            assert again.result(timeout=LIMIT) == 1

    def test_after_the_window_a_new_job_is_made(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", window="300ms"))(once)
        with app.worker():
            first = task.enqueue(1)
            first.join(timeout=LIMIT)
            fresh = until(lambda: job if (job := task.enqueue(2)).created else None, "the window is over")
        assert fresh is not None
        assert fresh.id != first.id

    def test_a_window_shorter_than_the_job_does_not_admit_a_second_job(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", window="1ms"))(once)
        first = task.enqueue(1)
        until(lambda: (time.time() - first.info().enqueued.timestamp()) > 0.01, "the window is over")
        assert task.enqueue(2).id == first.id

    def test_a_key_of_arguments_has_a_window_too(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key.arguments("n", window="1h"))(once)
        with app.worker():
            first = task.enqueue(1)
            first.join(timeout=LIMIT)
        assert task.enqueue(1).id == first.id
        assert task.enqueue(2).id != first.id


class TestArguments:
    def test_equal_arguments_make_one_job_however_they_are_passed(self, app: Mainspring) -> None:
        @app.task(name="report", key=Key.arguments())
        def report(month: str, copies: int = 1, parts: dict[str, int] | None = None) -> None: ...

        first = report.enqueue("may")
        same = [
            report.enqueue(month="may"),
            report.enqueue("may", 1),
            report.enqueue(copies=1, month="may", parts=None),
        ]
        assert {job.id for job in same} == {first.id}
        parts = [report.enqueue("may", parts={"a": 1, "b": 2}), report.enqueue("may", parts={"b": 2, "a": 1})]
        assert parts[0].id == parts[1].id != first.id
        assert report.enqueue("june").created

    def test_only_named_arguments_count(self, app: Mainspring) -> None:
        @app.task(name="sync", key=Key.arguments("user"))
        def sync(user: int, reason: str) -> None: ...

        assert sync.enqueue(1, "login").id == sync.enqueue(1, "logout").id
        assert sync.enqueue(2, "login").created


class TestPolicies:
    def test_on_conflict_error_names_the_holder_and_inserts_nothing_of_the_batch(self, app: Mainspring) -> None:
        task = app.task(name=NAME)(once)
        key = Key("k", on_conflict="error")
        first = task.options(key=key).enqueue(1)
        with pytest.raises(KeyTaken, match=f"task '{NAME}': job {first.id} holds the unique key\n  ") as taken:
            app.enqueue_many([task.s(2), task.s(3).options(key=key), task.s(4)])
        assert taken.value.holder == first.id
        assert total(app) == 1

    def test_on_conflict_replace_replaces_a_waiting_job(self, app: Mainspring) -> None:
        task = app.task(name=NAME, key=Key("k", on_conflict="replace"))(once)
        jobs = [task.options(delay=delay).enqueue(n) for n, delay in enumerate([None, "1h", None])]
        assert all(job.created for job in jobs)
        infos = [job.info() for job in jobs]
        assert [info.state for info in infos] == [State.CANCELLED, State.CANCELLED, State.READY]
        assert [info.reason for info in infos] == [Reason.SUPERSEDED, Reason.SUPERSEDED, None]
        with app.worker():
            assert jobs[2].result(timeout=LIMIT) == 2

    def test_on_conflict_replace_leaves_a_running_job_and_takes_its_key(self, app: Mainspring) -> None:
        begun, go_on = threading.Event(), threading.Event()

        @app.task(name="slow", key=Key("k", on_conflict="replace"))
        def slow(n: int) -> int:
            begun.set()
            go_on.wait(LIMIT)
            return n

        with app.worker():
            first = slow.enqueue(1)
            assert begun.wait(LIMIT)
            second = slow.enqueue(2)
            assert second.created
            assert slow.options(key=Key("k")).enqueue(3).id == second.id
            go_on.set()
            assert [first.result(timeout=LIMIT), second.result(timeout=LIMIT)] == [1, 2]

    def test_a_hundred_replacing_calls_leave_one_job(self, app: Mainspring) -> None:
        task = app.task(name=NAME)(once)
        jobs: list[Job[int]] = at_once(task.options(key=Key("k", on_conflict="replace")), 100)
        assert len({job.id for job in jobs}) == 100
        states = [job.info().state for job in jobs]
        assert (states.count(State.READY), states.count(State.CANCELLED)) == (1, 99)


@pytest.mark.stores("sqlite", "postgres")
def test_a_key_in_the_callers_transaction_is_held_after_the_commit(app: Mainspring, outside: SqlOutside) -> None:
    task = app.task(name=NAME, key="k")(once)
    app.open()
    mine = outside.connect()
    mine.execute("begin")
    given_up = task.options(connection=mine).enqueue(1)
    mine.execute("rollback")
    mine.execute("begin")
    first = task.options(connection=mine).enqueue(2)
    assert task.options(connection=mine).enqueue(3).id == first.id
    mine.execute("commit")
    mine.close()
    assert first.id != given_up.id
    found = task.enqueue(4)
    assert (found.id, found.created) == (first.id, False)
    assert found_ids(app) == [first.id]


def found_ids(app: Mainspring) -> list[UUID]:
    return [info.id for info in app.jobs.list(Query.everything()).jobs]
