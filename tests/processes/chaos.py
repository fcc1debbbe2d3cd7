"""Random faults on a fleet under load, then quiescence and the question: has every job ended as it may?

``Chaos(fleet, seed).run(seconds)`` keeps three supervised workers busy with the mixed load, does one
fault every few seconds and returns a verdict. The same seed gives the same faults in the same order;
what they hit is up to the machine.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from typing import Any

import msgspec

from mainspring import Mainspring
from mainspring.info import JobInfo
from mainspring.job import Job
from mainspring.outcomes import Outcome
from mainspring.states import LIVE, Reason, State
from tests.processes.fleet import LIMIT, Fleet, Line, Supervised, kill, overlaps, until
from tests.processes.mixed import Mixed, check

TARGET = "tests.processes.mixed:app"
WORKERS = 3
LEASE = 2.0
LOADS_PER_SECOND = 4.0
MANY = 1_000_000


class Verdict(msgspec.Struct, kw_only=True):
    """What a run came to. ``problems`` is empty when all promises held."""

    seed: int
    seconds: float
    jobs: int = 0
    runs: int = 0
    faults: dict[str, int] = {}
    taken: dict[str, int] = {}
    """Attempts that their owner did not finish, by outcome."""
    overlaps: int = 0
    """Runs that went on after their lease had ended and another had begun: allowed, and told."""
    dead_by_crashes: int = 0
    lost: int = 0
    problems: list[str] = []


class Stopped(threading.Timer):
    """Processes that stand still for a while. A thread: one of them may have the lock that we ourselves wait for."""

    def __init__(self, pids: list[int], seconds: float) -> None:
        super().__init__(seconds, self._go_on)
        self.pids = pids
        for pid in pids:
            kill(pid, signal.SIGSTOP)
        self.start()

    def _go_on(self) -> None:
        for pid in self.pids:
            kill(pid, signal.SIGCONT)


class Chaos:
    def __init__(self, fleet: Fleet, seed: int) -> None:
        self.fleet = fleet
        self.seed = seed
        self.jobs: list[Job[Any]] = []
        self._random = random.Random(seed)
        self._app = Mainspring(fleet.url)
        self._mixed = Mixed(self._app)
        self._running: list[Supervised] = []
        self._stopped: list[Stopped] = []
        self._faults: Counter[str] = Counter()

    # ---- use --------------------------------------------------------------------------------

    def run(self, seconds: float) -> Verdict:
        """Load and faults for so long, then wait until everything has ended and look."""
        began = time.monotonic()
        self._fill()
        next_fault = began + self._random.uniform(0.5, 2)
        while (now := time.monotonic()) < began + seconds:
            self._load()
            if now >= next_fault:
                self._fault()
                next_fault = now + self._random.uniform(0.5, 2)
            self._fill()
            time.sleep(1 / LOADS_PER_SECOND)
        self._let_all_go_on()
        self._fill()
        self._settle()
        return self._judge(time.monotonic() - began)

    def close(self) -> None:
        """Stop what this run has started."""
        self._let_all_go_on()
        for supervised in self._running:
            if supervised.popen.poll() is None:
                supervised.signal(signal.SIGTERM)
        for supervised in self._running:
            supervised.wait()
        self._app.close()

    # ---- the load ---------------------------------------------------------------------------

    def _load(self) -> None:
        jobs = self._mixed.load(str(self.fleet.folder / f"snoozed{len(self.jobs)}"), seconds=0.3)
        jobs += self._app.enqueue_many([self._mixed.good.s(2.0), self._mixed.thread.s(2.0)])  # so a fault hits many
        self.jobs += jobs
        jobs[0].cancel()

    def _fill(self) -> None:
        """Three supervisors run; the dead ones have their successors."""
        self._running = [each for each in self._running if each.popen.poll() is None]
        while len(self._running) < WORKERS:
            self._running.append(self.fleet.start(target=TARGET, lease=LEASE, sweep=0.3))

    # ---- the faults -------------------------------------------------------------------------

    def _fault(self) -> None:
        supervised = self._random.choice(self._running)
        whom = self._random.choice(["worker", "supervisor", "both"])
        how = self._random.choice(["kill", "kill", "stop", "stop", "restart"])
        stop_for = self._random.uniform(0.5, 3.0) * LEASE
        workers = supervised.worker_pids()
        pids = {"worker": workers, "supervisor": [supervised.pid], "both": [supervised.pid, *workers]}[whom]
        self._stopped = [stopped for stopped in self._stopped if stopped.is_alive()]
        if any({supervised.pid, *workers} & set(stopped.pids) for stopped in self._stopped):
            return  # one fault at a time for each
        self._faults[how if how == "restart" else f"{how} {whom}"] += 1
        if how == "restart":
            supervised.signal(signal.SIGTERM)
            return
        if how == "kill":
            for pid in pids:
                kill(pid, signal.SIGKILL)
        else:
            self._stopped.append(Stopped(pids, stop_for))

    def _let_all_go_on(self) -> None:
        for stopped in self._stopped:
            stopped.join()

    # ---- the end ----------------------------------------------------------------------------

    def _settle(self) -> None:
        """Wait until nothing is live any more; what will not end is told by the verdict."""
        limit = max(10 * LIMIT, len(self.jobs) / 5)
        try:
            until(lambda: not sum(map(self.fleet.count, LIVE)), limit=limit, what="every job has ended")
        except AssertionError:
            return

    def _judge(self, seconds: float) -> Verdict:
        lines = self.fleet.journal()
        by_job: dict[str, list[Line]] = {}
        for line in lines:
            by_job.setdefault(line.job, []).append(line)
        verdict = Verdict(seed=self.seed, seconds=round(seconds, 1), jobs=len(self.jobs), faults=dict(self._faults))
        verdict.runs = sum(line.word == "START" for line in lines)
        taken: Counter[str] = Counter()
        for job in self.jobs:
            info = job.info()
            taken.update(str(attempt.outcome) for attempt in info.attempts)
            self._judge_one(info, by_job.get(str(job.id), []), verdict)
        verdict.taken = {name: taken[name] for name in ("crashed", "lost", "interrupted")}
        return verdict

    def _judge_one(self, info: JobInfo, lines: list[Line], verdict: Verdict) -> None:
        if not info.final:
            verdict.lost += 1
            verdict.problems.append(f"not ended: {info}")
            return
        if problem := check(info, lines, kills=MANY):
            verdict.problems.append(problem)
        verdict.dead_by_crashes += info.state is State.DEAD and info.reason is Reason.CRASHED
        over = {attempt.token for attempt in info.attempts if attempt.outcome is Outcome.LOST}
        for newer, older in overlaps(lines):
            verdict.overlaps += 1
            if older.token not in over:
                verdict.problems.append(f"{info.task} {info.id}: {older} went on beside {newer}, its lease was good")
