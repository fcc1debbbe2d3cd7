"""Each option of a worker has its effect. The app has the opposite setting, so an ignored option fails the test."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mainspring import Mainspring, Query
from mainspring.client import blocking
from mainspring.states import State
from mainspring.testing.contract.hands import Hand
from mainspring.worker.records import Want
from tests.rows.crew import until
from tests.rows.project import LIMIT, Project

QUICK: dict[str, Any] = {"lease": "3s", "sweep": "500ms", "poll": "200ms", "grace": "1s", "drain": "5s"}


@pytest.fixture
def made(store_url: str) -> Iterator[Any]:
    """Make apps on the store under test."""
    apps: list[Mainspring] = []

    def make(**given: Any) -> Mainspring:
        apps.append(Mainspring(store_url, **{**QUICK, **given}))
        return apps[-1]

    yield make
    for app in apps:
        app.close()


class Busy:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1


@pytest.mark.stores("sqlite")
class TestSlots:
    @pytest.mark.option("worker.async_slots")
    def test_async_slots_is_the_maximum_of_async_jobs_at_once(self, made: Any) -> None:
        app, busy = made(async_slots=50), Busy()

        @app.task(name="work")
        async def work() -> None:
            with busy:
                await asyncio.sleep(0.02)

        jobs = [work.enqueue() for _ in range(12)]
        with app.worker(async_slots=2):
            assert {job.join(timeout=LIMIT).state for job in jobs} == {State.SUCCEEDED}
        assert busy.most == 2

    @pytest.mark.option("worker.thread_slots")
    def test_thread_slots_is_the_maximum_of_jobs_in_threads_at_once(self, made: Any) -> None:
        app, busy, gate = made(thread_slots=50), Busy(), threading.Barrier(2)

        @app.task(name="work")
        def work() -> None:
            with busy:
                gate.wait(LIMIT)

        jobs = [work.enqueue() for _ in range(8)]
        with app.worker(thread_slots=2):
            assert {job.join(timeout=LIMIT).state for job in jobs} == {State.SUCCEEDED}
        assert busy.most == 2

    @pytest.mark.option("worker.concurrency")
    def test_concurrency_is_the_maximum_of_jobs_of_a_queue_at_once(self, made: Any) -> None:
        app, busy = made(concurrency={"slow": 50}), Busy()

        @app.task(name="work", queue="slow")
        async def work() -> None:
            with busy:
                await asyncio.sleep(0.02)

        jobs = [work.enqueue() for _ in range(12)]
        with app.worker(concurrency={"slow": 3}):
            assert {job.join(timeout=LIMIT).state for job in jobs} == {State.SUCCEEDED}
        assert busy.most == 3

    @pytest.mark.option("worker.concurrency")
    def test_a_number_is_the_maximum_of_jobs_at_once_in_all_slots(self, made: Any) -> None:
        app, busy, release = made(concurrency=50), Busy(), threading.Event()

        @app.task(name="in_the_loop", queue="a")
        async def in_the_loop() -> None:
            with busy:
                await asyncio.to_thread(release.wait, LIMIT)

        @app.task(name="in_a_thread", queue="b")
        def in_a_thread() -> None:
            with busy:
                release.wait(LIMIT)

        jobs = [task.enqueue() for task in (in_the_loop, in_a_thread) for _ in range(8)]
        with app.worker(concurrency=4):
            until(lambda: app.jobs.count()[State.RUNNING] == 4, "four jobs run")
            [waiting] = app.jobs.list(Query.where(states=["ready"]), limit=1).jobs
            why = app.jobs.get(waiting.id).why()
            assert [(each.kind, len(each.jobs)) for each in why.obstacles] == [("capped", 4)]
            assert "has reached concurrency= (4/4)" in str(why)
            release.set()
            assert {job.join(timeout=LIMIT).state for job in jobs} == {State.SUCCEEDED}
        assert busy.most == 4

    @pytest.mark.option("worker.queues")
    def test_queues_are_the_queues_that_the_worker_serves(self, made: Any) -> None:
        app = made(queues=["b"])

        @app.task(name="a", queue="a")
        async def a() -> None: ...

        @app.task(name="b", queue="b")
        async def b() -> None: ...

        not_served = b.enqueue()
        with app.worker(queues=["a"]):
            assert a.enqueue().join(timeout=LIMIT).state is State.SUCCEEDED
        assert not_served.info().state is State.READY


class TestTimes:
    @pytest.mark.option("worker.lease")
    def test_lease_is_the_lease_that_the_fleet_applies(self, made: Any) -> None:
        app = made(lease="5s")
        with app.worker(lease="7s"):
            assert [each.lease for each in app.workers.list()] == [timedelta(seconds=7)]

    @pytest.mark.option("worker.drain")
    def test_drain_is_the_time_a_running_job_has_to_finish(self, made: Any) -> None:
        app, running, release = made(drain="1ms"), threading.Event(), threading.Event()

        @app.task(name="work")
        async def work() -> str:
            running.set()
            await asyncio.to_thread(release.wait, LIMIT)
            return "finished"

        worker = app.worker(drain="5m")
        with worker:
            job = work.enqueue()
            assert running.wait(LIMIT)
            threading.Timer(0.5, release.set).start()
        assert worker.exit_code == 0
        assert job.result(timeout=LIMIT) == "finished"

    @pytest.mark.option("worker.sweep")
    def test_sweep_is_the_interval_of_the_search_for_lost_workers(self, made: Any) -> None:
        """A worker claims a job and sends no heartbeat afterwards."""
        app = made(sweep="1h")

        @app.task(name="work")
        async def work() -> str:
            return "done"

        job = work.enqueue()
        blocking.run("claim", _claim_and_vanish(app))
        assert job.info().state is State.RUNNING
        with app.worker(sweep="100ms"):
            assert job.result(timeout=LIMIT) == "done"


class TestRoles:
    @pytest.mark.row("C2")
    @pytest.mark.option("worker.roles")
    def test_a_process_with_the_scheduler_role_promotes_jobs_and_runs_none(self, made: Any) -> None:
        app = made(roles="worker")

        @app.task(name="work")
        async def work() -> str:
            return "done"

        job = work.options(delay="1ms").enqueue()
        with app.worker(roles="scheduler"):
            until(lambda: job.info().state is not State.SCHEDULED, "promoted")
        assert job.info().state is State.READY
        with app.worker(roles=["worker"]):
            assert job.result(timeout=LIMIT) == "done"


@pytest.mark.stores("sqlite")
class TestOneRun:
    CODE = """
        import os, sys, time
        from mainspring import Mainspring

        app = Mainspring(os.environ["SHOP_STORE"], poll="100ms")

        @app.task
        def alone(wanted: int) -> None:
            while len(app.workers.list()) != wanted:
                time.sleep(0.05)

        if __name__ == "__main__":
            alone.enqueue(int(sys.argv[1]))
            sys.exit(app.run(processes=int(sys.argv[1]), until_empty=True))
    """

    @pytest.mark.option("worker.processes", "worker.until_empty")
    @pytest.mark.parametrize("processes", [1, 3])
    def test_processes_and_until_empty_of_one_run(self, tmp_path: Path, store_url: str, processes: int) -> None:
        """With fewer or more processes the job would not end; without ``until_empty`` the run would not end."""
        project = Project(tmp_path, store_url)
        project.write(self.CODE)
        done = project.run("shop.py", str(processes))
        assert done.returncode == 0, done.stderr

    STUCK = """
        import os, signal, sys, threading
        from mainspring import Mainspring

        app = Mainspring(os.environ["SHOP_STORE"], poll="100ms", grace="10m")

        @app.task
        def stuck() -> None:
            os.kill(os.getppid(), signal.SIGTERM)
            while True:
                threading.Event().wait(1)

        if __name__ == "__main__":
            stuck.enqueue()
            sys.exit(app.run(drain="1ms", grace="200ms"))
    """

    @pytest.mark.option("worker.grace")
    def test_grace_is_the_time_before_a_stuck_job_is_killed(self, tmp_path: Path, store_url: str) -> None:
        """With the grace of the app the run would take ten minutes."""
        project = Project(tmp_path, store_url)
        project.write(self.STUCK)
        done = project.run("shop.py")
        assert done.returncode in (3, 5), done.stderr


async def _claim_and_vanish(app: Mainspring) -> None:
    store = await app.client.store()
    ghost = Hand(store, tasks=("work",), queues=("default",))
    ghost.registration = msgspec.structs.replace(ghost.registration, lease=1_000_000)
    await ghost.join()
    claims = (await ghost.turn(wants=[Want(("default/async",), 1)])).claims
    assert len(claims) == 1
