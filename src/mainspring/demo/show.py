"""Run the demo: start workers, enqueue jobs, kill one worker, count the results."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import msgspec

from mainspring.app import Mainspring
from mainspring.demo.view import View
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow
from mainspring.states import FINAL, State
from mainspring.worker.records import WorkerRow

PROCESSES = 3


class DemoSummary(msgspec.Struct):
    """The figures of the summary line."""

    enqueued: int = 0
    succeeded: int = 0
    dead: int = 0
    retried: int = 0
    rescued: int = 0
    lost: int = 0
    back_after: float | None = None


def run(seconds: float = 20.0, *, headless: bool = False) -> int:
    """Run the demo. Returns 0 when every job succeeded and none was lost."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mainspring-demo-")))
        os.environ["MAINSPRING_URL"] = f"sqlite:///{folder / 'demo.db'}"
        from mainspring.demo.tasks import app

        view = stack.enter_context(View(headless=headless))
        view.say(f"store   {os.environ['MAINSPRING_URL']}")
        fleet = _start_fleet(folder / "worker.log")
        stack.callback(_stop_fleet, fleet)
        try:
            tally = asyncio.run(Show(app, view, seconds).run())
        except TimeoutError as trouble:
            view.say(f"failed  {trouble}\n{(folder / 'worker.log').read_text()[-3000:]}")
            return 1
        view.summary(tally)
        return 0 if tally.lost == 0 and tally.succeeded == tally.enqueued else 1


def _start_fleet(log: Path) -> subprocess.Popen[bytes]:
    flags = ["-p", str(PROCESSES), "-t", "2"]
    command = [sys.executable, "-m", "mainspring", "worker", "mainspring.demo.tasks:app", *flags]
    with log.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True)


def _stop_fleet(fleet: subprocess.Popen[bytes]) -> None:
    fleet.send_signal(signal.SIGTERM)
    try:
        fleet.wait(40)
    except subprocess.TimeoutExpired:
        os.killpg(fleet.pid, signal.SIGKILL)


class Show:
    """The running demo."""

    def __init__(self, app: Mainspring, view: View, seconds: float) -> None:
        self.app = app
        self.view = view
        self.seconds = seconds
        self.begun = time.monotonic()
        self.killed_at: float | None = None
        self.victims: list[JobRow] = []
        self.tally = DemoSummary()

    async def run(self) -> DemoSummary:
        async with self.app:
            workers = await self._started()
            names = ", ".join(f"{worker.id[:6]} (pid {_pid(worker)})" for worker in workers)
            self.view.say(f"start   {len(workers)} workers: {names}")
            jobs = await _enqueue(self.seconds)
            self.tally.enqueued = len(jobs)
            self.view.say(
                f"work    {len(jobs)} jobs, about {self.seconds:g} s: images in threads, mail on the event loop; "
                "every third mail fails twice and is retried"
            )
            self.begun = time.monotonic()
            return _count(self.tally, await self._watch(jobs))

    async def _watch(self, jobs: list[Job[str]]) -> list[JobRow]:
        """Wait until all jobs have finished, or until a generous time limit; the summary names what is missing."""
        while True:
            rows = await _rows(self.app, jobs)
            self.view.draw(rows)
            passed = time.monotonic() - self.begun
            if self.killed_at is None and passed > self.seconds * 0.2:
                await self._kill(rows)
            self._look_for_victims(rows)
            if all(row.state in FINAL for row in rows) or passed > self.seconds * 3 + 60:
                return rows
            await asyncio.sleep(0.1)

    async def _kill(self, rows: list[JobRow]) -> None:
        """Send SIGKILL to the worker that runs most jobs."""
        held = Counter(row.worker for row in rows if row.state is State.RUNNING)
        for worker in await _fleet(self.app):
            if held and worker.id == held.most_common(1)[0][0]:
                os.kill(_pid(worker), signal.SIGKILL)
                self.killed_at = time.monotonic()
                self.victims = [row for row in rows if row.worker == worker.id and row.state is State.RUNNING]
                held_names = ", ".join(sorted(row.task.rpartition(".")[2] for row in self.victims))
                self.view.say(f"kill    SIGKILL to worker {worker.id[:6]} (pid {_pid(worker)}), running: {held_names}")

    def _look_for_victims(self, rows: list[JobRow]) -> None:
        if self.killed_at is None or self.tally.back_after is not None or not _all_back(rows, self.victims):
            return
        self.tally.back_after = time.monotonic() - self.killed_at
        self.tally.rescued = len(self.victims)
        self.view.say(
            f"rescue  its {len(self.victims)} jobs run again elsewhere {self.tally.back_after:.1f} s after the kill"
        )

    async def _started(self) -> list[WorkerRow]:
        """Wait until all workers have registered."""
        for _ in range(300):
            workers = await _fleet(self.app)
            if len(workers) >= PROCESSES:
                return workers
            await asyncio.sleep(0.1)
        raise TimeoutError("the workers did not start in 30 s; their log:")


async def _enqueue(seconds: float) -> list[Job[str]]:
    """Enqueue work that takes the workers about ``seconds``."""
    from mainspring.demo.tasks import app, resize, send

    pieces = max(4, int(seconds / 2 / 0.12 / 4))
    images = [resize.s(f"photo-{n:02}.jpg", pieces) for n in range(4 * PROCESSES)]
    mail = [send.s(f"user{n}@example.com", n % 3 if n % 3 == 2 else 0) for n in range(24)]
    return await app.aenqueue_many([*images, *mail])


async def _fleet(app: Mainspring) -> list[WorkerRow]:
    store = await app.client.store()
    return [row for row in await store.workers() if not row.lost]


async def _rows(app: Mainspring, jobs: list[Job[str]]) -> list[JobRow]:
    store = await app.client.store()
    found = await store.find(Query.of(*(job.id for job in jobs)), limit=len(jobs))
    return sorted(found.jobs, key=lambda row: row.id)


def _all_back(rows: list[JobRow], victims: list[JobRow]) -> bool:
    tokens = {job.id: job.token for job in victims}
    now = [row for row in rows if row.id in tokens]
    return all(row.state in FINAL or (row.state is State.RUNNING and row.token > tokens[row.id]) for row in now)


def _count(tally: DemoSummary, rows: list[JobRow]) -> DemoSummary:
    tally.succeeded = sum(row.state is State.SUCCEEDED for row in rows)
    tally.dead = sum(row.state is State.DEAD for row in rows)
    tally.retried = sum(row.attempt > 1 for row in rows)
    tally.lost = tally.enqueued - sum(row.state in FINAL for row in rows)
    return tally


def _pid(worker: WorkerRow) -> int:
    pid: int = msgspec.json.decode(worker.info)["pid"]
    return pid
