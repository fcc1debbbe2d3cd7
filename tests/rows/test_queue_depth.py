"""Q13: queues that are full."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import time
from uuid import UUID

import pytest

from mainspring import Context, Mainspring
from mainspring.errors import QueueFull
from mainspring.queues.manager import OnFull
from mainspring.states import Reason, State
from tests.plugins.outside import SqlOutside
from tests.rows.crew import LIMIT, until
from tests.rows.test_queue_controls import by_name


@pytest.mark.row("Q13")
class TestFull:
    @pytest.mark.option("queue.max_depth")
    def test_a_full_queue_refuses_jobs_of_every_producer(self, app: Mainspring) -> None:
        """All jobs of a call or none, with an estimate of when there is space. In the whole fleet, also by name."""
        app.queue("mail", max_depth=3)

        @app.task(name="full.send", queue="mail")
        def send(n: int = 0) -> int:
            return n

        jobs = [send.enqueue(n) for n in range(2)]
        with pytest.raises(QueueFull, match="'mail' is full: its max_depth is 3"):
            app.enqueue_many([send.s(8), send.s(9)])
        jobs.append(send.enqueue(2))
        with pytest.raises(QueueFull) as said:
            send.enqueue(9)
        assert 0 < said.value.retry_after <= 60
        with pytest.raises(QueueFull):
            by_name(app, "full.send", "mail")
        info = app.queues.get("mail")
        assert (info.depth, info.max_depth, info.on_full) == (3, 3, "error")
        with app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs] == [0, 1, 2]
            assert send.enqueue(4).result(timeout=LIMIT) == 4

    @pytest.mark.parametrize("on_full", ["error", "wait", "drop_oldest"])
    def test_a_batch_larger_than_the_depth_is_refused_at_once(self, app: Mainspring, on_full: OnFull) -> None:
        app.queue("mail", max_depth=3, on_full=on_full)

        @app.task(name="full.send", queue="mail")
        def send(n: int) -> None: ...

        send.enqueue(0)
        with pytest.raises(QueueFull, match="cannot take 4 jobs at once: its max_depth is 3") as said:
            app.enqueue_many(send.s(n) for n in range(4))
        assert "Enqueue fewer jobs at once" in str(said.value)
        assert app.queues.get("mail").depth == 1

    @pytest.mark.option("queue.on_full")
    def test_on_full_wait_enqueues_when_there_is_space(self, app: Mainspring) -> None:
        app.queue("mail", max_depth=2, on_full="wait")

        @app.task(name="full.send", queue="mail")
        def send(n: int) -> int:
            time.sleep(0.01)
            return n

        with app.worker(thread_slots=1, async_slots=0):
            jobs = [send.enqueue(n) for n in range(20)]
            assert [job.result(timeout=LIMIT) for job in jobs] == list(range(20))

    async def test_on_full_wait_blocks_no_loop(self, app: Mainspring) -> None:
        """Other tasks run meanwhile. A blocking enqueue inside a loop does not wait at all."""
        app.queue("mail", max_depth=2, on_full="wait")
        ticks = 0

        @app.task(name="full.send", queue="mail")
        async def send(n: int) -> int:
            return n

        jobs = [await send.aenqueue(n) for n in range(2)]
        waits = asyncio.create_task(send.aenqueue(2))
        for _ in range(20):
            await asyncio.sleep(0.01)
            ticks += 1
        assert (ticks, waits.done()) == (20, False)
        with pytest.warns(UserWarning, match="aenqueue"), pytest.raises(QueueFull):
            send.enqueue(3)
        async with app.worker():
            jobs.append(await waits)
            assert [await job.aresult(timeout=LIMIT) for job in jobs] == [0, 1, 2]

    @pytest.mark.option("app.full_wait")
    def test_on_full_wait_ends_at_its_limit(self, store_url: str) -> None:
        app = Mainspring(store_url, full_wait="300ms")
        app.queue("mail", max_depth=1, on_full="wait")

        @app.task(name="full.send", queue="mail")
        def send() -> None: ...

        send.enqueue()
        with pytest.raises(QueueFull, match=r"is full after 0\.\d s"):
            send.enqueue()
        assert app.queues.get("mail").depth == 1
        app.close()

    @pytest.mark.stores("sqlite", "postgres")
    def test_on_full_wait_does_not_wait_in_a_transaction(self, app: Mainspring, outside: SqlOutside) -> None:
        app.queue("mail", max_depth=1, on_full="wait")

        @app.task(name="full.send", queue="mail")
        def send() -> None: ...

        send.enqueue()
        mine = outside.connect()
        mine.execute("create table orders (n integer)")
        mine.execute("begin")
        mine.execute("insert into orders values (1)")
        with pytest.raises(QueueFull, match="is full: its max_depth is 1"):
            send.options(connection=mine).enqueue()
        mine.execute("commit")
        assert mine.execute("select count(*) from orders").fetchall() == [(1,)]
        mine.close()

    def test_on_full_drop_oldest_cancels_the_oldest_jobs(self, app: Mainspring) -> None:
        """The dropped jobs can be listed, and a follow-up of a cancelled job runs."""
        heard: list[UUID] = []
        app.queue("mail", max_depth=2, on_full="drop_oldest")

        @app.task(name="full.heard")
        def hear(job: UUID) -> None:
            heard.append(job)

        @app.task(name="full.send", queue="mail", on_cancel=hear)
        def send(n: int) -> int:
            return n

        jobs = [send.enqueue(n) for n in range(3)]
        dropped = jobs[0].info()
        assert (dropped.state, dropped.reason) == (State.CANCELLED, Reason.SUPERSEDED)
        assert dropped.note == "dropped: queue 'mail' was full (max_depth 2)"
        with app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs[1:]] == [1, 2]
            until(lambda: heard == [jobs[0].id], "the follow-up ran")

    def test_jobs_spawned_by_a_running_job_pass_a_full_queue(self, app: Mainspring) -> None:
        """They were accepted together with their parent."""
        app.queue("mail", max_depth=1)

        @app.task(name="full.send", queue="mail")
        def send(n: int) -> int:
            return n

        @app.task(name="full.spawn")
        def spawn(ctx: Context) -> list[str]:
            return [str(ctx.spawn(send.s(n)).id) for n in range(5)]

        with app.worker(queues="default"):
            assert len(spawn.enqueue().result(timeout=LIMIT)) == 5
        assert app.queues.get("mail").depth == 5
        with pytest.raises(QueueFull):
            send.enqueue(9)

    def test_the_depth_is_never_exceeded_by_many_processes(self, app: Mainspring, store_url: str) -> None:
        app.queues.configure("mail", max_depth=50, create=True)
        code = f"""
            from mainspring import Mainspring
            from mainspring.errors import QueueFull
            app = Mainspring({store_url!r})
            made = 0
            for _ in range(40):
                try:
                    app.call("full.send").options(queue="mail").enqueue()
                    made += 1
                except QueueFull:
                    pass
            print(made)
        """
        words = [sys.executable, "-c", textwrap.dedent(code)]
        crowd = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        made = [int(each.communicate(timeout=LIMIT)[0]) for each in crowd]
        assert (sum(made), app.queues.get("mail").depth) == (50, 50)

    def test_a_depth_set_by_hand_overrides_the_declared_depth(self, app: Mainspring) -> None:
        """The start of a worker does not change that. ``reset`` does."""
        app.queue("mail", max_depth=1, order="lifo")

        @app.task(name="full.send", queue="mail")
        def send() -> None: ...

        app.queues.pause("mail")
        send.enqueue()
        info = app.queues.configure("mail", max_depth=None)
        assert (info.max_depth, info.order) == (None, "lifo")
        with app.worker():
            app.enqueue_many([send.s(), send.s()])
        app.queues.configure("mail", max_depth=3)
        with pytest.raises(QueueFull):
            send.enqueue()
        app.queues.reset("mail")
        assert app.queues.get("mail").max_depth == 1

    def test_a_worker_replaces_the_declared_depth_by_that_of_its_code(self, app: Mainspring) -> None:
        """Also by no depth. A queue that no code declares any more can be deleted."""
        old, new = Mainspring(app.settings.url), Mainspring(app.settings.url)
        old.queue("mail", max_depth=1)
        new.queue("mail", max_depth=7)
        app.queue("mail", weight=2)
        for each, depth in ((old, 1), (new, 7), (app, None), (old, 1)):
            with each.worker(queues="mail"):
                until(lambda depth=depth: app.queues.get("mail").max_depth == depth, f"{depth} is declared")  # type: ignore[misc]
        app.queues.reset("mail", declared=True)
        assert app.queues.get("mail").max_depth is None
        old.close()
        new.close()
