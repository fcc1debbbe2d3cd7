"""Q9: what a queue does is stored and obeyed by the whole fleet."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mainspring import Job, Mainspring, Query
from mainspring.errors import DrainTimeout, InvalidOption, QueueDraining
from mainspring.queues.records import QueueMode
from mainspring.states import State
from tests.rows.crew import LIMIT, Crew, Tasks, until


def settled(app: Mainspring, queue: str) -> None:
    """Until no job of the queue runs."""
    until(lambda: app.queues.get(queue).counts["running"] == 0, f"nothing of {queue} runs")


def fleet_took_turns(tasks: Tasks, workers: int) -> None:
    """Jobs of another queue run on this many processes: each process has sent a turn since."""
    seen: set[int] = set()
    while len(seen) < workers:
        seen |= {job.result(timeout=LIMIT) for job in [tasks.canary.enqueue() for _ in range(20)]}


@contextmanager
def producing(tasks: Tasks) -> Iterator[list[Job[None]]]:
    """Jobs are enqueued meanwhile, a few at a time."""
    produced: list[Job[None]] = []
    enough = threading.Event()

    def produce() -> None:
        while not enough.wait(0.005):
            produced.extend(tasks.app.enqueue_many(tasks.mark.s(len(produced) + n) for n in range(5)))

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        yield produced
    finally:
        enough.set()
        producer.join(LIMIT)


@pytest.mark.row("Q9")
class TestPause:
    def test_a_paused_queue_starts_no_job_in_the_whole_fleet(self, tasks: Tasks, crew: Crew) -> None:
        """Two processes run while the queue is paused, and both obey. So does a fleet that is started later."""
        app = tasks.app
        first, second = crew.start(), crew.start()
        with producing(tasks) as produced:
            until(lambda: len(tasks.marks()) > 20, "jobs flow")
            app.queues.pause("flow")
            settled(app, "flow")
            started = len(tasks.marks())
            held = len(produced)
            until(lambda: len(produced) > held + 100, "a paused queue takes jobs")
        fleet_took_turns(tasks, 2)
        assert len(tasks.marks()) == started

        crew.stop(first)
        crew.stop(second)
        crew.start()
        fleet_took_turns(tasks, 1)
        assert len(tasks.marks()) == started
        assert app.queues.get("flow").counts["ready"] == len(produced) - started

        app.queues.resume("flow")
        for job in produced:
            job.join(timeout=LIMIT)
        assert sorted(tasks.marks()) == list(range(len(produced))), "each ran once"

    def test_pause_of_several_queues_pauses_only_those(self, app: Mainspring) -> None:
        app.queues.pause("a", "b", create=True)
        app.queues.pause("c", create=True)
        app.queues.resume("a", "c")
        modes = {queue.name: queue.mode for queue in app.queues.list()}
        assert {name: modes.get(name, QueueMode.OPEN) for name in "abc"} == {"a": "open", "b": "paused", "c": "open"}

    def test_the_time_of_the_pause_is_kept(self, app: Mainspring) -> None:
        before = app.queues.get("a")
        assert (before.mode, before.since) == (QueueMode.OPEN, None)
        app.queues.pause("a", create=True)
        paused = app.queues.get("a")
        app.queues.pause("a")
        assert paused.since is not None
        assert app.queues.get("a").mode is QueueMode.PAUSED

    def test_pause_needs_valid_queue_names(self, app: Mainspring) -> None:
        for verb in (app.queues.pause, app.queues.resume):
            with pytest.raises(InvalidOption, match="at least one queue"):
                verb()
            with pytest.raises(InvalidOption, match="not a queue name"):
                verb("no such name!")

    async def test_the_async_methods_pause_and_resume(self, app: Mainspring) -> None:
        await app.queues.apause("a", create=True)
        assert (await app.queues.aget("a")).mode is QueueMode.PAUSED
        await app.queues.aresume("a")
        assert (await app.queues.aget("a")).mode is QueueMode.OPEN


@pytest.mark.row("Q9")
class TestDrain:
    def test_a_draining_queue_starts_no_job_and_finishes_running_jobs(self, app: Mainspring) -> None:
        @app.task(name="work", queue="slow")
        async def work(n: int) -> int:
            return n

        jobs = app.enqueue_many(work.s(n) for n in range(50))
        info = app.queues.drain("slow")
        assert (info.mode, info.counts.live) == (QueueMode.DRAINING, 50)
        with pytest.raises(QueueDraining, match="'slow' is draining"):
            work.enqueue(50)
        with app.worker():
            emptied = app.queues.drain("slow", wait=True, timeout=LIMIT)
        assert (emptied.mode, emptied.counts.live) == (QueueMode.DRAINING, 0)
        assert {job.info().state for job in jobs} == {State.SUCCEEDED}
        app.queues.resume("slow")
        assert work.enqueue(51).info().state is State.READY

    def test_drain_with_wait_ends_at_its_timeout(self, app: Mainspring) -> None:
        @app.task(name="work", queue="slow")
        async def work() -> None: ...

        work.enqueue()
        with pytest.raises(DrainTimeout, match=r"1 live job left") as timeout:
            app.queues.drain("slow", wait=True, timeout="50ms")
        assert (timeout.value.queue, timeout.value.left) == ("slow", 1)
        assert app.queues.get("slow").mode is QueueMode.DRAINING

    def test_a_timeout_without_wait_is_refused(self, app: Mainspring) -> None:
        with pytest.raises(InvalidOption, match="works with wait=True only"):
            app.queues.drain("slow", timeout="1s")
        assert app.queues.get("slow").mode is QueueMode.OPEN

    async def test_adrain_drains(self, app: Mainspring) -> None:
        assert (await app.queues.adrain("slow", create=True, wait=True, timeout=LIMIT)).mode is QueueMode.DRAINING


@pytest.mark.row("Q9")
def test_purge_deletes_waiting_jobs_and_leaves_running_jobs(app: Mainspring) -> None:
    begun, go_on = threading.Event(), threading.Event()

    @app.task(name="hold", queue="slow")
    def hold() -> None:
        begun.set()
        go_on.wait(LIMIT)

    @app.task(name="other", queue="other")
    def other() -> None: ...

    with app.worker(queues=["slow"], thread_slots=1, async_slots=0):
        running = hold.enqueue()
        assert begun.wait(LIMIT)
        for count in (1000, 100):
            app.enqueue_many(hold.s() for _ in range(count))
        hold.options(delay="1h").enqueue()
        elsewhere = other.enqueue()
        purged = app.queues.purge("slow")
        left = app.jobs.count(Query.where(queues=["slow"]))
        go_on.set()
        assert running.join(timeout=LIMIT).state is State.SUCCEEDED
    assert (purged, left.total) == (1101, 1)
    assert elsewhere.info().state is State.READY


async def test_apurge_deletes_waiting_jobs(app: Mainspring) -> None:
    await app.call("work").aenqueue()
    await app.queues.apause("other", create=True)
    assert await app.queues.apurge("other") == 0
    assert await app.queues.apurge("default") == 1


class TestList:
    def test_list_has_every_queue_with_a_live_job_a_mode_or_a_task_of_this_app(self, app: Mainspring) -> None:
        @app.task(name="declared", queue="declared")
        def declared() -> None: ...

        first = app.call("elsewhere").options(queue="used").enqueue()
        app.call("elsewhere").options(queue="used").enqueue()
        app.call("elsewhere").options(queue="used", delay="1h").enqueue()
        app.queues.pause("stopped", create=True)
        queues = {queue.name: queue for queue in app.queues.list()}
        assert list(queues) == ["declared", "default", "stopped", "used"]
        used = queues["used"]
        assert (used.counts["ready"], used.counts["scheduled"], used.counts.live) == (2, 1, 3)
        assert used.oldest == first.info().enqueued
        assert (queues["declared"].counts.total, queues["declared"].oldest) == (0, None)
        assert queues["stopped"].mode is QueueMode.PAUSED

    async def test_alist_lists_the_queues(self, app: Mainspring) -> None:
        await app.call("elsewhere").options(queue="used").aenqueue()
        assert "used" in [queue.name for queue in await app.queues.alist()]

    def test_ended_jobs_are_not_counted(self, app: Mainspring) -> None:
        app.call("elsewhere").options(queue="used").enqueue().cancel()
        assert app.queues.get("used").counts.total == 0


def test_an_unknown_method_is_refused(app: Mainspring) -> None:
    with pytest.raises(AttributeError, match="did you mean 'pause'"):
        app.queues.pauze  # type: ignore[attr-defined]  # noqa: B018
