"""Real supervisors and workers on a real store, and a journal of what their jobs did.

Waiting is always for something to happen, with a limit ten times as long as it should take. Leases and limits allow for
stalls of the machine (`tests/timing.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.errors import StoreUnavailable
from mainspring.jobs.info import JobInfo
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.schedules.records import ScheduleRow
from mainspring.states import State
from mainspring.stores.connect import connect
from mainspring.worker.lease.shared_state import Phase, SharedState
from mainspring.worker.process_tree import read_stat
from mainspring.worker.records import Beat, WorkerRow
from tests.processes.playground import JOURNAL, Playground
from tests.timing import patience, short_settings

ROOT = Path(__file__).parents[2]
LIMIT = 60.0

T = TypeVar("T")


class Line(NamedTuple):
    """One line of the journal."""

    word: str
    job: str
    token: int
    pid: int
    at: float


def until(ask: Callable[[], T], *, limit: float = LIMIT, what: str = "") -> T:
    """The first true answer; fails after ``limit`` seconds."""
    end = time.monotonic() + patience(limit)
    while not (answer := ask()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit:g} s: {what or ask}")
        time.sleep(0.02)
    return answer


class Supervised:
    """A running supervisor and its workers."""

    def __init__(self, fleet: Fleet, popen: subprocess.Popen[bytes]) -> None:
        self._fleet = fleet
        self.popen = popen

    @property
    def pid(self) -> int:
        return self.popen.pid

    def worker_pids(self) -> list[int]:
        """Living children of the supervisor that lead their own session: its workers."""
        return [pid for pid in children_of(self.pid) if (stat := read_stat(pid)) and stat.session == pid]

    def wait_ready(self, workers: int = 1) -> list[int]:
        """Wait until this many of its workers are registered. Returns their pids."""

        def ready() -> list[int]:
            mine = self.worker_pids()
            assert self.popen.poll() is None, f"supervisor ended with {self.popen.returncode}"
            pids = [pid for pid in self._fleet.registered_pids() if pid in mine]
            return pids if len(pids) >= workers else []

        return until(ready, what=f"{workers} workers registered")

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def kill_whole(self) -> None:
        """All of it at one instant: no worker sees its supervisor die and hands back what it holds."""
        workers = self.worker_pids()
        for pid in workers:
            kill(pid, signal.SIGSTOP)
        for pid in (self.pid, *workers):
            kill(pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self.popen.wait(patience(LIMIT))


class Fleet:
    """Everything of one test: the producer's app, the journal, the supervisors."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.journal_path = folder / "journal"
        self.tasks = Playground(Mainspring(url))
        self._started: list[Supervised] = []
        self._seen_pids: set[int] = set()

    # ---- processes --------------------------------------------------------------------------

    def start(
        self, processes: int = 1, *, target: str = "tests.processes.playground:app", env: dict[str, str] | None = None,
        **options: Any,
    ) -> Supervised:  # fmt: skip
        """A supervisor with short settings; ``options`` change them."""
        arguments = [target, str(processes), json.dumps({**short_settings(), **options})]
        popen = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.supervise", *arguments],
            cwd=ROOT,
            env={**os.environ, "MAINSPRING_URL": self.url, JOURNAL: str(self.journal_path), **(env or {})},
            start_new_session=True,
        )
        self._started.append(Supervised(self, popen))
        return self._started[-1]

    def freeze(self, *pids: int) -> None:
        """Stop processes, none of them in the middle of a write: a stopped writer would hold SQLite's only lock."""
        for _ in range(20):
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            until(lambda: all((stat := read_stat(pid)) and stat.stopped for pid in pids), what="all are stopped")
            if self.writable():
                return
            self.thaw(*pids)
        raise AssertionError("the store stays locked")

    def thaw(self, *pids: int) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def writable(self) -> bool:
        """Whether the store takes a write."""

        async def ask() -> None:
            store = connect(self.url, deadline=5.0)
            try:
                await store.open()
                await store.beat([Beat("nobody")])
            finally:
                await store.close()

        try:
            blocking("writable", ask())
        except StoreUnavailable:
            return False
        return True

    def close(self) -> None:
        """Nothing survives a test."""
        for started in self._started:
            pids = [started.pid, *descendants_of(started.pid)]
            for pid in {*pids, *self.journal_pids(), *self._seen_pids}:
                kill(pid, signal.SIGKILL)
            started.popen.wait(LIMIT)
        self.tasks.app.close()

    # ---- what happened ----------------------------------------------------------------------

    def journal(self, *jobs: Job[Any], word: str | None = None) -> list[Line]:
        """The lines of these jobs, or of all."""
        if not self.journal_path.exists():
            return []
        ids = {str(job.id) for job in jobs}
        rows = [line.split() for line in self.journal_path.read_text().splitlines()]
        lines = [Line(row[0], row[1], int(row[2]), int(row[3]), float(row[4])) for row in rows]
        return [line for line in lines if (not ids or line.job in ids) and word in (None, line.word)]

    def journal_pids(self) -> set[int]:
        return {line.pid for line in self.journal()}

    def started(self, *jobs: Job[Any], times: int = 1) -> list[Line]:
        """Wait until each of these jobs has begun this many times. Returns the lines of the last starts."""

        def begun() -> list[Line]:
            lines = [self.journal(job, word="START") for job in jobs]
            return [found[-1] for found in lines] if all(len(found) >= times for found in lines) else []

        return until(begun, what=f"{len(jobs)} jobs started {times} times")

    def ended(self, jobs: Iterable[Job[Any]], *, limit: float = LIMIT) -> list[JobInfo]:
        """Wait until each has ended; what the store says of them."""
        return [job.join(patience(limit)) for job in jobs]

    def workers(self) -> list[WorkerRow]:
        async def ask() -> list[WorkerRow]:
            return await (await self.tasks.app.client.store()).workers()

        return blocking("workers", ask())

    def registered_pids(self) -> list[int]:
        told = [json.loads(row.info) for row in self.workers() if not row.lost]
        pids = [int(info["pid"]) for info in told if "pid" in info]  # a test's own hand is no process
        self._seen_pids.update(pids)
        return pids

    def count(self, state: State) -> int:
        async def ask() -> int:
            return (await (await self.tasks.app.client.store()).count(Query.everything()))[state]

        return blocking("count", ask())

    def schedules(self) -> list[ScheduleRow]:
        async def ask() -> list[ScheduleRow]:
            return await (await self.tasks.app.client.store()).schedules()

        return blocking("schedules", ask())

    def logs(self, job: Job[Any]) -> list[str]:
        async def ask() -> list[str]:
            return [line.text for line in await (await self.tasks.app.client.store()).logs(job.id.bytes)]

        return blocking("logs", ask())


def overlaps(lines: list[Line]) -> list[tuple[Line, Line]]:
    """Where an older run of a job ended after a newer one had begun."""
    starts = [line for line in lines if line.word == "START"]
    ends = [line for line in lines if line.word == "END"]
    return [
        (start, end)
        for start in starts
        for end in ends
        if end.job == start.job and end.token < start.token and end.at > start.at
    ]


def phase_of(pid: int) -> Phase:
    """The phase of a live worker, read from its shared state."""
    folder = Path(f"/proc/{pid}/fd")
    fds = [path for path in folder.iterdir() if "mainspring-state" in str(path.readlink())]
    board = SharedState.attach(os.open(fds[0], os.O_RDWR))
    phase = Phase(board.phase)
    board.close()
    return phase


def alive(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and not stat.gone


def kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def children_of(pid: int) -> list[int]:
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [stat.pid for stat in map(read_stat, numbers) if stat and stat.parent == pid and not stat.gone]


def descendants_of(pid: int) -> list[int]:
    found: list[int] = []
    for child in children_of(pid):
        found += [child, *descendants_of(child)]
    return found
