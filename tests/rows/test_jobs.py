"""Q11 and what can be asked of a job."""

from __future__ import annotations

import asyncio
import gc
import threading
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import pytest

from mainspring import Context, JobInfo, Mainspring
from mainspring.errors import InvalidOption, JobNotFound, ResultTimeout, WouldBlockLoop
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.rows.crew import LIMIT
from tests.rows.leaks import nothing_is_left


@pytest.mark.row("Q11")
def test_info_has_timeline_attempts_errors_worker_wait_and_run_time(app: Mainspring) -> None:
    @app.task(name="third_time", retries=2, backoff="10ms", tags=["vip"], meta={"shop": 7})
    def third_time(ctx: Context, order: int) -> int:
        if ctx.attempt < 3:
            raise ValueError(f"number {ctx.attempt}")
        return order

    with app.worker():
        worker = app.workers.list()[0].id
        info = third_time.options(timeout="1m").enqueue(7).join(timeout=LIMIT)
    assert (info.args, info.tags, info.meta) == ({"order": 7}, ("vip",), {"shop": 7})
    assert info.options == {"ack": "late", "crashes": 3, "timeout": "1m"}
    assert (info.state, info.attempt, info.worker) == (State.SUCCEEDED, 3, worker)
    assert [(each.number, each.outcome, each.worker) for each in info.attempts] == [
        (1, Outcome.FAILED, worker), (2, Outcome.FAILED, worker),
    ]  # fmt: skip
    for each in info.attempts:
        assert each.error is not None
        assert (each.error.type, each.error.message) == ("ValueError", f"number {each.number}")
        assert 'raise ValueError(f"number {ctx.attempt}")' in each.error.traceback
    assert [moment.what for moment in info.timeline] == [
        "enqueued", "started", "failed", "started", "failed", "started", "succeeded",
    ]  # fmt: skip
    assert [moment.at for moment in info.timeline] == sorted(moment.at for moment in info.timeline)
    assert info.wait is not None
    assert info.wait >= timedelta(milliseconds=0)
    assert info.run is not None
    assert info.finished is not None
    assert info.enqueued + info.wait + info.run <= info.finished
    assert info.trace == info.id.hex


class TestLogs:
    def test_logs_returns_the_lines_of_all_attempts_or_those_after_a_number(self, app: Mainspring) -> None:
        @app.task(name="tell", retries=1, backoff="10ms")
        def tell(ctx: Context) -> None:
            ctx.log("one", attempt=ctx.attempt)
            ctx.log("two", attempt=ctx.attempt)
            if ctx.attempt == 1:
                raise ValueError

        with app.worker():
            job = tell.enqueue()
            info = job.join(timeout=LIMIT)
        lines = job.logs()
        assert [line.text for line in lines] == ["one attempt=1", "two attempt=1", "one attempt=2", "two attempt=2"]
        assert [line.n for line in lines] == [1, 2, 3, 4]
        assert all(info.enqueued <= line.at for line in lines)
        assert {line.level for line in lines} == {"info"}
        assert [line.n for line in job.logs(after=2)] == [3, 4]

    async def test_alogs_returns_the_lines(self, app: Mainspring) -> None:
        job = await app.call("quiet").aenqueue()
        assert await job.alogs(after=0) == []

    def test_logs_of_a_deleted_job_raise_job_not_found(self, app: Mainspring) -> None:
        job = app.call("quiet").enqueue()
        job.delete()
        with pytest.raises(JobNotFound):
            job.logs()


class TestWatch:
    def test_a_watcher_made_outside_a_loop_refuses_to_block_inside_it(self, app: Mainspring) -> None:
        watching = app.call("nobody.knows").enqueue().watch()
        next(watching)

        async def inside() -> None:
            with pytest.raises(WouldBlockLoop, match=r"async for \.\.\. in job\.awatch"):
                next(watching)

        asyncio.run(inside())

    def test_watch_yields_the_current_state_each_change_and_the_end(self, app: Mainspring) -> None:
        go_on = [threading.Event() for _ in range(3)]

        @app.task(name="tell", retries=1, backoff="10ms")
        def tell(ctx: Context) -> None:
            ctx.progress(ctx.attempt, 2)
            go_on[ctx.attempt].wait(LIMIT)
            if ctx.attempt == 1:
                raise ValueError

        job = tell.enqueue()
        seen: list[JobInfo] = []
        worker = app.worker()
        for info in job.watch(timeout=LIMIT):
            seen.append(info)
            if len(seen) == 1:
                worker.start()
            if info.progress:
                go_on[info.progress["done"]].set()
        worker.stop()
        assert (seen[0].state, seen[0].attempt) == (State.READY, 0)
        assert (seen[-1].state, seen[-1].attempt) == (State.SUCCEEDED, 2)
        assert [info.progress["done"] for info in seen if info.state is State.RUNNING and info.progress] in (
            [1, 2],
            [1, 1, 2],  # the second attempt begins with the progress of the first
        )
        assert all(info.final is (info is seen[-1]) for info in seen)
        assert [len(info.attempts) for info in seen][-1] == 1

    def test_watch_yields_no_state_twice(self, app: Mainspring) -> None:
        release = threading.Event()

        @app.task(name="hold")
        def hold() -> None:
            release.wait(LIMIT)

        with app.worker():
            job = hold.enqueue()
            threading.Timer(0.3, release.set).start()
            states = [info.state for info in job.watch(timeout=LIMIT)]
        assert len(states) == len(set(states))

    def test_watch_of_an_ended_job_yields_once(self, app: Mainspring) -> None:
        job = app.call("nobody.knows").enqueue()
        job.cancel("not needed")
        [info] = job.watch()
        assert (info.state, info.note) == (State.CANCELLED, "not needed")

    def test_watch_ends_at_its_timeout(self, app: Mainspring) -> None:
        job = app.call("nobody.knows").enqueue()
        watching = job.watch(timeout="50ms")
        assert next(watching).state is State.READY
        with pytest.raises(ResultTimeout, match=r"0\.05 s"):
            next(watching)

    def test_a_bad_timeout_of_watch_is_refused_at_once(self, app: Mainspring) -> None:
        job = app.call("nobody.knows").enqueue()
        for verb in (job.watch, job.stream):
            with pytest.raises(InvalidOption, match="timeout"):
                verb(timeout="soon")

    def test_watch_ends_when_the_job_is_deleted(self, app: Mainspring) -> None:
        job = app.call("nobody.knows").enqueue()
        watching = job.watch()
        next(watching)
        job.delete()
        with pytest.raises(JobNotFound):
            next(watching)

    async def test_awatch_yields_the_states(self, app: Mainspring) -> None:
        @app.task(name="quick")
        async def quick() -> None: ...

        async with app.worker():
            job = await quick.aenqueue()
            seen = [info.state async for info in job.awatch(timeout=LIMIT)]
            assert seen[-1] is State.SUCCEEDED
        waiting = await quick.aenqueue()
        with pytest.raises(ResultTimeout, match=r"0\.05 s"):
            assert [info.state async for info in waiting.awatch(timeout="50ms")] == []

    async def test_watch_refuses_a_running_loop(self, app: Mainspring) -> None:
        job = await app.call("nobody.knows").aenqueue()
        with pytest.raises(WouldBlockLoop, match=r"async for \.\.\. in job\.awatch"):
            job.watch()

    def test_a_watcher_closed_early_leaves_nothing_behind(self, app: Mainspring) -> None:
        """``nothing_is_left`` fails if a task or a thread of a watcher is still there."""
        job = app.call("nobody.knows").enqueue()
        for _ in range(20):
            next(job.watch())
        gc.collect()
        nothing_is_left("_changes")


@dataclass
class Receipt:
    order: int


class TestGet:
    def test_get_decodes_the_result_when_the_task_is_known(self, app: Mainspring) -> None:
        @app.task(name="buy")
        def buy(order: int) -> Receipt:
            return Receipt(order)

        with app.worker():
            job = buy.enqueue(7)
            job.join(timeout=LIMIT)
        found = app.jobs.get(str(job.id))
        assert (found, found.task) == (job, "buy")
        assert found.result() == Receipt(7)
        stranger = Mainspring(app.settings.url)
        assert stranger.jobs.get(job.id).result() == {"order": 7}
        stranger.close()

    def test_get_of_an_unknown_id_raises_job_not_found(self, app: Mainspring) -> None:
        with pytest.raises(JobNotFound):
            app.jobs.get(uuid4())

    async def test_aget_returns_the_job(self, app: Mainspring) -> None:
        job = await app.call("work").aenqueue()
        assert await app.jobs.aget(job.id) == job


def test_the_reason_given_to_cancel_is_kept(app: Mainspring) -> None:
    job = app.call("work").enqueue()
    job.cancel("customer left")
    info = job.info()
    assert (info.reason, info.note) == (Reason.BY_USER, "customer left")
