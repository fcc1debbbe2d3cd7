"""A process is killed between the steps of a flow: the flow ends once, with the right result.

A job of the flow arms a failpoint of its worker, so the worker dies before or after the very turn that carries the ack
of this job: before, the ack is lost; after, the ack, the counts of joins and the jobs behind it are stored, and the
reply is lost. Two workers share the work. The producer of a large flow, or of a batch, is killed between its pieces.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring import Mainspring, group
from mainspring.client.blocking import run as blocking
from mainspring.jobs.job import Job
from mainspring.states import State
from mainspring.testing.history import Disturbance, History, check, read
from tests.processes.fleet import LIMIT, ROOT, Fleet, overlaps, until
from tests.processes.flowing import Flowing
from tests.processes.playground import JOURNAL
from tests.timing import patience

ACKS = [
    (job, f"turn.{side}")
    for job in ("begin", "middle", "only", "member", "callback", "numbers", "element")
    for side in ("before", "after")
]
"""Which job arms the point, so that the worker dies at the turn with its ack."""
OTHERS = [
    (job, f"{call}.{side}")
    for job, call in (("member", "find"), ("numbers", "enqueue"), ("numbers", "close_join"))
    for side in ("before", "after")
]
"""Reading the results of the members, adding the members of ``each``, closing their join."""
MEMBERS = 5
JOBS = {"flow": 1_005, "batch": 250}
"""More than one piece."""

pytestmark = pytest.mark.row("F1", "F3", "F4")


class Workers:
    """Two processes with a worker each. Dead processes are replaced."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.deaths: list[Disturbance] = []
        self._running: list[subprocess.Popen[bytes]] = []
        self._names: dict[int, str] = {}

    def wait_ready(self) -> None:
        """Replace dead processes, and wait until both workers are registered."""
        self.count_deaths()
        while len(self._running) < 2:
            self._running.append(start(self.fleet))
        until(lambda: {each.pid for each in self._running} <= self._read_names(), what="two workers are registered")

    def _read_names(self) -> set[int]:
        for row in self.fleet.workers():
            if "pid" in (info := json.loads(row.info)):
                self._names[info["pid"]] = row.id
        return self._names.keys() & {each.pid for each in self._running}

    def count_deaths(self) -> int:
        """The number of processes that have died since the start."""
        for dead in [each for each in self._running if each.poll() is not None]:
            assert dead.returncode == -signal.SIGKILL
            self._running.remove(dead)
            at = time.time()
            self.deaths.append(Disturbance(what="killed", worker=self._names[dead.pid], began=at - 5, ended=at))
        return len(self.deaths)

    def close(self) -> None:
        for each in self._running:
            each.kill()
            each.wait(LIMIT)


def start(fleet: Fleet, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.processes.flowing", *arguments],
        cwd=ROOT,
        env={**os.environ, "MAINSPRING_URL": fleet.url, JOURNAL: str(fleet.journal_path), **(env or {})},
    )


@pytest.fixture
def flowing(fleet: Fleet) -> Iterator[Flowing]:
    app = Mainspring(fleet.url)
    yield Flowing(app)
    app.close()


@contextlib.contextmanager
def two_workers(fleet: Fleet) -> Iterator[Workers]:
    workers = Workers(fleet)
    try:
        yield workers
    finally:
        workers.close()


def enqueue_flows(tasks: Flowing, where: str = "", die: str = "") -> list[tuple[Job[Any], Any]]:
    """A chain, a chord, a chord of one, and a group whose members are known late; each with its result."""

    def at(job: str) -> str:
        return die if job == where else ""

    chain = tasks.begin.s(1, at("begin")).then(tasks.double, die=at("middle")) | tasks.double
    members = group(tasks.begin.s(n, at("member")) for n in range(MEMBERS))
    one = group([tasks.begin.s(7, at("only"))])
    known_late = tasks.numbers.s(MEMBERS, at("numbers")).each(tasks.double, die=at("element"))
    return [
        (chain.enqueue(), 4),
        (members.then(tasks.total, die=at("callback")).enqueue(), sum(range(MEMBERS))),
        ((one | tasks.total).enqueue(), 7),
        ((known_late | tasks.total).enqueue(), 2 * sum(range(MEMBERS))),
    ]


@pytest.mark.timeout(600)
def test_a_worker_dies_between_the_steps_of_a_flow(fleet: Fleet, flowing: Flowing) -> None:
    with two_workers(fleet) as workers:
        for round_, (where, point) in enumerate([*ACKS, *OTHERS], 1):
            workers.wait_ready()
            flows = enqueue_flows(flowing, where, f"{fleet.folder / str(round_)}={point}")

            def died(round_: int = round_, flows: list[tuple[Job[Any], Any]] = flows) -> bool:
                if workers.count_deaths() >= round_:
                    return True
                if all(job.info().final for job, _ in flows):  # the process that is armed must do more
                    flows += enqueue_flows(flowing)
                return False

            until(died, what=f"{point}, armed by {where}, is passed")
            for job, result in flows:
                assert job.result(timeout=patience(LIMIT)) == result, (where, point)
        all_is_well(fleet, flowing, workers)


def all_is_well(fleet: Fleet, tasks: Flowing, workers: Workers) -> None:
    """Every flow has ended once, and no invariant of its history is broken."""
    until(lambda: not any(tasks.app.jobs.count()[state] for state in ("blocked", "ready", "running", "retrying")))
    history = replace(history_of(tasks), troubles=tuple(workers.deaths))
    assert check(history) == []
    ends = {event.job: event.state for event in history.events}
    assert set(ends.values()) == {State.SUCCEEDED}
    assert overlaps(fleet.journal()) == []


def history_of(tasks: Flowing) -> History:
    async def recorded() -> History:
        stored = await read(await tasks.app.client.store())
        return History(
            events=stored.events, listed=stored.listed, snapshots=(stored.snapshot,), edges=stored.edges,
            joins=stored.joins,
        )  # fmt: skip

    return blocking("history", recorded())


PIECES = {
    "flow": ("enqueue.after:1", "enqueue.before:2", "close_join.after:2", "close_join.after:3"),
    "batch": ("enqueue.after:1", "enqueue.after:2", "enqueue.before:3", "close_join.before:1", "close_join.after:1"),
}
"""Where the producer dies. A flow is held back by the last join that is closed; a batch starts at once."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("what", PIECES)
def test_a_producer_dies_between_its_pieces(fleet: Fleet, flowing: Flowing, what: str) -> None:
    for point in PIECES[what]:
        before = ready(flowing)
        assert produced(fleet, what, point, dies=True) == -signal.SIGKILL
        if what == "flow" and point != "close_join.after:3":
            assert ready(flowing) == before, f"{point}: nothing of the flow has started"
        assert produced(fleet, what, point) == 0
        if point != "close_join.after:3":  # services of the fleet release what the producer has not released
            assert ready(flowing) == before + JOBS[what], point
    with flowing.app.worker(concurrency=50):
        until(lambda: not any(flowing.app.jobs.count()[state] for state in ("blocked", "ready", "running")), limit=300)
    history = history_of(flowing)
    assert check(history) == []
    callback = flowing.sum_up.name if what == "flow" else flowing.finished.name
    ended = flowing.app.jobs.count(task=callback)
    assert ended["succeeded"] == len(PIECES[what])
    assert flowing.app.jobs.count(task=flowing.quiet.name)["succeeded"] == JOBS[what] * len(PIECES[what])


RETRIES = ("enqueue.after:1", "retry_flow.after:1", "retry_flow.after:2", "close_join.before:1")
"""Where the retry of a flow with three slices dies: the root, 1,000 jobs, the rest."""


@pytest.mark.timeout(600)
def test_a_large_retry_dies_between_its_slices(fleet: Fleet, flowing: Flowing) -> None:
    gate = fleet.folder / "gate"
    jobs: list[Job[Any]] = []
    for n in range(len(RETRIES)):
        header = group(flowing.gated.s(each, str(gate)) for each in range(JOBS["flow"] + n))
        jobs.append((header | flowing.sum_up).enqueue())
    with flowing.app.worker(concurrency=50):
        until(lambda: all(flowing.app.flows.get(job.id).state == "failed" for job in jobs), limit=300)
    gate.touch()
    for job, point in zip(jobs, RETRIES, strict=True):
        flow = str(flowing.app.flows.get(job.id).id)
        assert start(fleet, "retry", flow, env={"MAINSPRING_FAILPOINT": point}).wait(patience(LIMIT)) == -signal.SIGKILL
    with flowing.app.worker(concurrency=50):
        until(lambda: not any(flowing.app.jobs.count(task="gated")[state] for state in ("ready", "running")), limit=300)
        assert not flowing.app.jobs.count(task="sum_up")[State.SUCCEEDED], "no join ends before its last member"
        for job in jobs:
            assert start(fleet, "retry", str(flowing.app.flows.get(job.id).id)).wait(patience(LIMIT)) == 0
        for n, job in enumerate(jobs):
            assert job.result(timeout=patience(LIMIT)) == sum(range(JOBS["flow"] + n))
        until(lambda: all(flowing.app.flows.get(job.id).state == "succeeded" for job in jobs))
    assert check(history_of(flowing)) == []
    epochs = {info.epoch for info in flowing.app.jobs.list(task="gated", limit=10_000)}
    assert epochs == {2}, "no job is retried twice"


def produced(fleet: Fleet, what: str, point: str, *, dies: bool = False) -> int:
    """Run the producer; returns its exit code."""
    producer = start(fleet, what, str(JOBS[what]), point, env={"MAINSPRING_FAILPOINT": point} if dies else None)
    return producer.wait(patience(LIMIT))


def ready(tasks: Flowing) -> int:
    return tasks.app.jobs.count(task=tasks.quiet.name)["ready"]
