"""W17, W8: the live workers, and the progress of their jobs."""

from __future__ import annotations

import os
import socket
from datetime import timedelta

import pytest

from mainspring import Mainspring
from mainspring.errors import NotBuilt
from tests.rows.crew import LIMIT, Crew, Tasks, until


@pytest.mark.row("W17")
class TestWorkers:
    def test_list_shows_host_pid_version_queues_tasks_and_jobs(self, tasks: Tasks, crew: Crew) -> None:
        app = tasks.app
        popen = crew.start(version="2030.1")
        job = tasks.tell.enqueue()
        until(lambda: job.info().state == "running", "it runs")
        [worker] = app.workers.list()
        assert (worker.host, worker.pid, worker.version) == (socket.gethostname(), popen.pid, "2030.1")
        assert set(worker.queues) == {"canary", "default", "flow"}
        assert {"crew.tell", "crew.mark"} <= set(worker.tasks)
        assert (worker.running, worker.jobs) == (1, (job.id,))
        assert worker.id == job.info().worker
        assert not worker.lost
        assert worker.lease >= timedelta(seconds=3), "longer on a machine that stalls"
        assert worker.started <= worker.seen
        assert worker.age >= timedelta(0)
        until(lambda: app.workers.list()[0].seen > worker.seen, "its next beat")
        tasks.say("go_on")
        job.join(timeout=LIMIT)
        until(lambda: app.workers.list()[0].jobs == (), "it runs nothing")

    def test_a_stopped_worker_is_not_listed(self, tasks: Tasks, crew: Crew) -> None:
        first, second = crew.start(), crew.start()
        assert {worker.pid for worker in tasks.app.workers.list()} == {first.pid, second.pid}
        crew.stop(first)
        assert {worker.pid for worker in tasks.app.workers.list()} == {second.pid}

    def test_a_killed_worker_is_not_listed(self, tasks: Tasks, crew: Crew) -> None:
        """``until`` fails if the list still has the killed worker at its time limit."""
        first, second = crew.start(), crew.start()
        first.kill()
        until(lambda: {worker.pid for worker in tasks.app.workers.list()} == {second.pid}, "the killed one is gone")

    def test_workers_are_listed_by_start_time(self, tasks: Tasks, crew: Crew) -> None:
        started = [crew.start().pid for _ in range(2)]
        assert [worker.pid for worker in tasks.app.workers.list()] == started

    async def test_a_worker_that_lost_its_jobs_is_listed_on_request_only(self, app: Mainspring) -> None:
        from mainspring.jobs.outcomes import Outcome
        from mainspring.worker.records import Beat, Registration

        store = await app.client.store()
        [beaten] = await store.beat([Beat("silent", Registration(queues=("q",), info=b'{"host": "there"}'))])
        assert [(each.id, each.host) for each in await app.workers.alist()] == [("silent", "there")]
        await store.rescue("silent", beaten.number, Outcome.LOST)
        assert await app.workers.alist() == []
        [lost] = await app.workers.alist(lost=True)
        assert (lost.id, lost.lost) == ("silent", True)

    def test_an_embedded_worker_is_listed_too(self, app: Mainspring) -> None:
        with app.worker():
            [worker] = app.workers.list()
        assert worker.pid == os.getpid()
        assert app.workers.list() == []

    def test_attributes_that_are_not_built_raise_not_built(self, app: Mainspring) -> None:
        for name in ("drain", "stop", "restart", "adrain", "astop", "arestart"):
            with pytest.raises(NotBuilt, match=name):
                getattr(app.workers, name)


@pytest.mark.row("W8")
def test_progress_is_visible_from_another_process_while_the_job_runs(tasks: Tasks, crew: Crew) -> None:
    crew.start()
    job = tasks.tell.enqueue()
    progress = until(lambda: job.info().progress, "the progress is seen")
    assert progress == {"done": 1, "total": 4, "note": "a quarter", "meta": {"colour": "blue"}}
    assert job.info().state == "running"
    tasks.say("go_on")
    assert job.join(timeout=LIMIT).state == "succeeded"
