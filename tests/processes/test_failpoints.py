"""A process is killed before and after each store call in the life of a job: every job still ends as the table allows.

Each run has a small load of every kind of end, one process that dies at one point, and clean ones
that go on. ``POINTS`` lists every point that a worker passes; a test of its own shows that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.common.ids import new_id
from mainspring.jobs.job import Job
from mainspring.states import LIVE, State
from tests.processes.fleet import LIMIT, ROOT, Fleet, Supervised, kill, overlaps, until
from tests.processes.mixed import Mixed, check
from tests.processes.playground import JOURNAL
from tests.timing import patience

TARGET = "tests.processes.failing:app"
POINTS = {
    # passed by a worker: how often in one life is killed at
    "open": 1, "declare_limits": 1, "queues": 1, "listen": 1, "workers": 1, "prune": 1, "report": 1, "beat": 1,
    "promote": 1, "lead": 1, "turn": 3, "schedules": 1, "due_schedules": 1, "documents": 1, "put_document": 1, "now": 1,
    "tally": 1,
}  # fmt: skip
LATER = {"open": 3, "report": 2, "beat": 3, "promote": 3, "lead": 4, "turn": 12}
"""Later ones of the same calls: what they find differs by the worker, not by the store."""
AT_THE_END = ("retire", "close")
ELSEWHERE = {"rescue", "count"}
"""Passed only by a worker that finds a dead one, or that ends when there is no more work."""

pytestmark = pytest.mark.row("E3")


def points(calls: dict[str, int], *, after: dict[str, int] | None = None) -> list[str]:
    first = after or {}
    return [
        f"{call}.{side}:{n + 1}"
        for call, times in calls.items() for n in range(first.get(call, 0), times) for side in SIDES
    ]  # fmt: skip


SIDES = ("before", "after")


class Doomed:
    """A fleet in which one process will die at one point."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.mixed = Mixed(Mainspring(fleet.url))
        self.jobs: list[Job[Any]] = []
        self._once = fleet.folder / "once"
        self._loads = 0

    def env(self, point: str, *, who: str = "FAILING_WORKER") -> dict[str, str]:
        """What makes the first process that gets to ``point`` die there."""
        self._once.touch()
        return {who: point, "MAINSPRING_FAILPOINT_ONCE": str(self._once)}

    def start(self, point: str, *, who: str = "FAILING_WORKER", **options: Any) -> Supervised:
        return self.fleet.start(target=TARGET, env=self.env(point, who=who), **options)

    def clean(self, **options: Any) -> Supervised:
        return self.fleet.start(target=TARGET, **options)

    def load(self) -> None:
        """One job of each kind; the endless one is cancelled."""
        self._loads += 1
        jobs = self.mixed.load(str(self.fleet.folder / f"snoozed{self._loads}"))
        self.jobs += jobs
        jobs[0].cancel()

    @property
    def died(self) -> bool:
        return not self._once.exists()

    def until_died(self, work: Callable[[], object] | None = None) -> None:
        """Give it work until it has died."""

        def dead() -> bool:
            if work is not None and not self.died:
                work()
            return self.died

        until(dead, what="the point is passed")

    def trickle(self) -> None:
        """A job that makes the worker move."""
        self._work(self.mixed.tells.enqueue())

    def hold_gil(self) -> None:
        """A job that keeps the worker from sending heartbeats: its supervisor or heartbeat process sends them."""
        self._work(self.mixed.holds_gil.enqueue(0.6 * patience(3)))

    def _work(self, job: Job[Any]) -> None:
        self.jobs.append(job)
        until(lambda: self.died or job.info().final, what="a job ends or the process dies")

    def all_is_well(self, *, kills: int = 1) -> None:
        """Every job has ended as the table allows, and no worker holds a job."""
        infos = self.fleet.ended(self.jobs)
        lines = self.fleet.journal()
        assert not [said for info in infos if (said := check(info, lines, kills=kills))]
        assert overlaps(lines) == []
        assert {line.job for line in lines} <= {str(job.id) for job in self.jobs}
        assert sum(self.fleet.count(state) for state in LIVE) == 0
        limits = [limit for limit in self.mixed.app.limits.list() if limit.kind == "concurrency"]
        assert all(limit.used == 0 for limit in limits), limits


@pytest.fixture
def doomed(fleet: Fleet) -> Iterator[Doomed]:
    doomed = Doomed(fleet)
    yield doomed
    doomed.mixed.app.close()


@pytest.mark.parametrize("point", points(POINTS))
def test_a_worker_dies_at_a_store_call(doomed: Doomed, point: str) -> None:
    doomed.load()
    doomed.start(point)
    doomed.until_died(doomed.trickle)
    doomed.all_is_well()


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("point", points(LATER, after=POINTS))
def test_a_worker_dies_at_a_later_store_call(doomed: Doomed, point: str) -> None:
    doomed.load()
    doomed.start(point)
    doomed.until_died(doomed.trickle)
    doomed.all_is_well()


@pytest.mark.parametrize("point", points(dict.fromkeys(AT_THE_END, 1)))
def test_a_worker_dies_during_its_shutdown(doomed: Doomed, point: str) -> None:
    supervised = doomed.start(point)
    supervised.wait_ready()
    doomed.load()
    doomed.fleet.started(doomed.jobs[2])
    supervised.signal(signal.SIGTERM)
    doomed.until_died()
    supervised.wait()
    doomed.clean()
    doomed.all_is_well()


@pytest.mark.parametrize("point", points({"count": 2}))
def test_a_worker_dies_while_it_counts_the_jobs_left(doomed: Doomed, point: str) -> None:
    doomed.load()
    doomed.jobs.append(doomed.mixed.good.options(delay="4s").enqueue())  # so it looks more than once
    supervised = doomed.start(point, until_empty=True)
    doomed.until_died()
    assert supervised.wait() == 0
    doomed.all_is_well()


@pytest.mark.parametrize("point", points({"rescue": 1}))
def test_a_witness_dies_at_the_rescue_of_another(doomed: Doomed, point: str) -> None:
    victim = doomed.clean()
    victim.wait_ready()
    doomed.load()
    doomed.fleet.started(doomed.jobs[2])
    victim.kill_whole()
    doomed.start(point)
    doomed.until_died()
    doomed.all_is_well(kills=2)


@pytest.mark.parametrize("point", points({"open": 1, "beat": 1}))
def test_a_supervisor_dies_at_a_store_call(doomed: Doomed, point: str) -> None:
    supervised = doomed.start(point, who="MAINSPRING_FAILPOINT")
    doomed.load()
    doomed.until_died(doomed.trickle)
    supervised.wait()
    doomed.clean()
    doomed.all_is_well(kills=0)


@pytest.mark.parametrize("point", points({"beat": 3}, after={"beat": 1}))
def test_a_supervisor_dies_at_a_heartbeat_that_its_worker_has_missed(doomed: Doomed, point: str) -> None:
    supervised = doomed.start(point, who="MAINSPRING_FAILPOINT")
    doomed.load()
    doomed.until_died(doomed.hold_gil)
    supervised.wait()
    doomed.clean()
    doomed.all_is_well(kills=0)


@pytest.mark.parametrize("point", points({"retire": 1}))
def test_a_supervisor_dies_while_it_gives_back_a_dead_worker_s_jobs(doomed: Doomed, point: str) -> None:
    supervised = doomed.start(point, who="MAINSPRING_FAILPOINT")
    (pid,) = supervised.wait_ready()
    doomed.load()
    doomed.fleet.started(doomed.jobs[2])
    kill(pid, signal.SIGKILL)
    doomed.until_died()
    supervised.wait()
    doomed.clean()
    doomed.all_is_well()


@pytest.mark.parametrize("point", points({"close": 1}))
def test_a_supervisor_dies_during_its_shutdown(doomed: Doomed, point: str) -> None:
    supervised = doomed.start(point, who="MAINSPRING_FAILPOINT")
    supervised.wait_ready()
    doomed.load()
    doomed.fleet.started(doomed.jobs[2])
    supervised.signal(signal.SIGTERM)
    doomed.until_died()
    supervised.wait()
    doomed.clean()
    doomed.all_is_well(kills=0)


@pytest.mark.parametrize("point", points({"turn": 3, "beat": 1}))
def test_the_host_of_an_embedded_worker_dies_at_a_store_call(doomed: Doomed, point: str) -> None:
    doomed.load()
    with embedded(doomed, doomed.env(point)) as host:
        doomed.until_died(doomed.trickle)
        host.wait(LIMIT)
        doomed.clean()
        doomed.all_is_well()


@pytest.mark.parametrize("point", points({"open": 1, "beat": 2}))
def test_the_heartbeat_process_of_an_embedded_worker_dies(doomed: Doomed, point: str) -> None:
    doomed.load()
    with embedded(doomed, doomed.env(point, who="MAINSPRING_FAILPOINT")) as host:
        doomed.until_died(doomed.hold_gil if point.endswith(":2") else doomed.trickle)
        doomed.trickle()
        doomed.all_is_well(kills=0)
        assert host.poll() is None


@pytest.mark.parametrize("point", points({"retire": 1}))
def test_the_heartbeat_process_dies_while_it_gives_back_its_dead_host_s_jobs(doomed: Doomed, point: str) -> None:
    with embedded(doomed, doomed.env(point, who="MAINSPRING_FAILPOINT")) as host:
        doomed.load()
        doomed.fleet.started(doomed.jobs[2])
        host.kill()
        doomed.until_died()
        doomed.clean()
        doomed.all_is_well()


@contextlib.contextmanager
def embedded(doomed: Doomed, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A program with a worker in it; killed at the end if it lives."""
    host = subprocess.Popen(
        [sys.executable, "-m", "tests.processes.failing"],
        cwd=ROOT,
        env={**os.environ, "MAINSPRING_URL": doomed.fleet.url, JOURNAL: str(doomed.fleet.journal_path), **env},
    )
    try:
        until(lambda: [pid for pid in doomed.fleet.registered_pids() if pid == host.pid] or doomed.died)
        yield host
    finally:
        host.kill()
        host.wait(LIMIT)


@pytest.mark.parametrize("twin", ["enqueue", "aenqueue"])
@pytest.mark.parametrize("point", points({"enqueue": 1}))
def test_a_producer_dies_at_its_enqueue(doomed: Doomed, point: str, twin: str) -> None:
    """The job exists at most once. The same batch sent again makes it exactly once, also after it ran."""
    job = doomed.mixed.good.job(new_id())
    send = ("tests.processes.producing", twin, str(job.id))
    assert program(doomed, *send, env=doomed.env(point, who="MAINSPRING_FAILPOINT")) == -signal.SIGKILL
    assert doomed.fleet.count(State.READY) == (1 if "after" in point else 0)
    assert program(doomed, *send, "again") == 0
    assert doomed.fleet.count(State.READY) == 1
    doomed.jobs.append(job)
    doomed.clean()
    doomed.all_is_well(kills=0)
    assert program(doomed, *send, "again") == 0
    assert (doomed.fleet.count(State.READY), doomed.fleet.count(State.SUCCEEDED)) == (0, 1)
    assert len(doomed.fleet.journal(job, word="START")) == 1


@pytest.mark.parametrize("point", points({"swap_schedule": 1}))
def test_a_scheduler_dies_at_a_schedule_swap(doomed: Doomed, point: str) -> None:
    """The schedule and its job both exist or neither does. After a repeat both exist once."""
    job = doomed.mixed.good.job(new_id())
    send = ("tests.processes.producing", "swap", str(job.id))
    assert program(doomed, *send, env=doomed.env(point, who="MAINSPRING_FAILPOINT")) == -signal.SIGKILL
    there = 1 if "after" in point else 0
    assert (doomed.fleet.count(State.READY), len(doomed.fleet.schedules())) == (there, there)
    assert program(doomed, *send) == 0
    doomed.jobs.append(job)
    doomed.clean()
    doomed.all_is_well(kills=0)
    assert program(doomed, *send) == 0
    assert (doomed.fleet.count(State.READY), doomed.fleet.count(State.SUCCEEDED)) == (0, 1)
    assert [row.name for row in doomed.fleet.schedules()] == ["nightly"]


@pytest.mark.parametrize("point", points({"act": 1}))
def test_a_process_dies_while_it_cancels_jobs(doomed: Doomed, point: str) -> None:
    """The cancel was applied or not. After a repeat the job is cancelled once."""
    doomed.clean()
    job = doomed.mixed.endless.enqueue()
    doomed.fleet.started(job)
    doomed.jobs.append(job)
    cancel = ("tests.processes.producing", "cancel", str(job.id))
    assert program(doomed, *cancel, env=doomed.env(point, who="MAINSPRING_FAILPOINT")) == -signal.SIGKILL
    info = job.info()
    assert info.cancelling or info.final if "after" in point else not (info.cancelling or info.final)
    assert program(doomed, *cancel) == 0
    doomed.all_is_well(kills=0)
    assert len(doomed.fleet.journal(job, word="START")) == 1


def program(doomed: Doomed, module: str, *arguments: str, env: dict[str, str] | None = None) -> int:
    """Run a program of the tests to its end; returns its exit code."""
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, "MAINSPRING_URL": doomed.fleet.url, **(env or {})},
        timeout=LIMIT,
        check=False,
    ).returncode


def test_every_failpoint_of_a_worker_is_in_the_list(doomed: Doomed) -> None:
    seen = doomed.fleet.folder / "seen"
    doomed.load()
    supervised = doomed.fleet.start(target=TARGET, env={"FAILING_TRACE": str(seen)})
    doomed.fleet.ended(doomed.jobs)
    supervised.signal(signal.SIGTERM)
    assert supervised.wait() == 0
    passed = {line.partition(".")[0] for line in seen.read_text().split()}
    assert passed == {*POINTS, *AT_THE_END}
    doomed.all_is_well(kills=0)
