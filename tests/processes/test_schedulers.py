"""S5, S7, O4, O8: schedules over real processes that are killed, with clocks that disagree."""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking
from mainspring.common.clock import boottime, from_datetime
from mainspring.schedules import plan as planning
from mainspring.schedules.records import ScheduleRow
from mainspring.states import Reason, State
from mainspring.testing.history import History, Occurrence, check
from tests.processes.fleet import LIMIT, ROOT, Line, until
from tests.processes.playground import JOURNAL
from tests.processes.timetable import PARTS, timetable

SKEWED = Path(__file__).parent / "skewed"
OCCURRENCES = 1_000 if os.environ.get("MAINSPRING_SOAK") else 200
A_WHILE = 80
"""Occurrences after which the next scheduler is killed, at most: a few seconds."""


class Timetables:
    """Processes that schedule and work."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self.folder = folder
        self.journal = folder / "journal"
        self.journal.touch()
        self._started: list[subprocess.Popen[str]] = []
        self.app = Mainspring(url)

    def start(self, skew: float = 0.0) -> subprocess.Popen[str]:
        """A process whose clock is ahead by this many seconds. Returns when its worker claims."""
        file = self.folder / f"skew-{len(self._started)}"
        file.write_text(str(skew))
        env = {
            **os.environ, JOURNAL: str(self.journal), "SKEW_FILE": str(file), "SKEW_OF": "process",
            "PYTHONPATH": f"{SKEWED}:{ROOT}",
        }  # fmt: skip
        popen = subprocess.Popen(
            [sys.executable, "-m", "tests.processes.timetable", self._url, str(self.folder)],
            cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(popen)
        return popen

    def up(self, popen: subprocess.Popen[str]) -> subprocess.Popen[str]:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "up\n"
        return popen

    def ticks(self) -> int:
        """How many occurrences have come to something."""
        return len(self.app.schedules.history("tick", 10_000))

    def wait_for(self, ticks: int) -> None:
        until(lambda: self.ticks() >= ticks)

    def lines(self) -> list[Line]:
        found = [line.split() for line in self.journal.read_text().splitlines()]
        return [Line(word, job, int(token), int(pid), float(at)) for word, job, token, pid, at in found]

    def end(self) -> None:
        for popen in self._started:
            assert popen.stdin is not None
            popen.stdin.close()  # drains it
        for popen in self._started:
            popen.wait(LIMIT)
            assert popen.stdout is not None
            popen.stdout.close()
        self.app.close()


@pytest.fixture
def fleet(store_url: str, tmp_path: Path) -> Iterator[Timetables]:
    fleet = Timetables(store_url, tmp_path)
    try:
        yield fleet
    finally:
        fleet.end()


def kill(popen: subprocess.Popen[str]) -> None:
    os.kill(popen.pid, signal.SIGKILL)
    popen.wait(LIMIT)


def judged(app: Mainspring, name: str) -> History:
    """The results of the occurrences of a schedule, to be checked."""
    [row] = blocking("schedules", _rows(app, name))
    plan = planning.decode(row.doc)
    assert plan.rule is not None
    found = [
        Occurrence(schedule=name, at=from_datetime(run.at), what=run.what, job=str(run.job or ""), count=run.count)
        for run in app.schedules.history(name, 10_000)
    ]
    return History(rules={name: plan.rule}, occurrences=tuple(found))


async def _rows(app: Mainspring, name: str) -> list[ScheduleRow]:
    return await (await app.client.store()).schedules([name])


@pytest.mark.row("S5")
def test_each_occurrence_runs_once_although_schedulers_are_killed(fleet: Timetables) -> None:
    """Five schedulers with clocks up to five seconds apart. One of them is killed again and again."""
    chosen = random.Random(7)
    steps = (chosen.randint(A_WHILE // 2, A_WHILE) for _ in range(OCCURRENCES))
    goals = [goal for goal in itertools.accumulate(steps) if goal <= OCCURRENCES - A_WHILE // 2]
    crew = [fleet.start(skew) for skew in (-5.0, -2.5, 0.0, 2.5, 5.0)]
    for popen in crew:
        fleet.up(popen)
    for goal in goals:
        fleet.wait_for(goal)
        victim = chosen.randrange(len(crew))
        kill(crew[victim])
        crew[victim] = fleet.start(chosen.uniform(-5, 5))
    fleet.wait_for(OCCURRENCES)
    fleet.app.schedules.disable("tick")
    until(lambda: not fleet.app.schedules.get("tick").running + fleet.app.schedules.get("tick").waiting)
    history = judged(fleet.app, "tick")
    assert check(history) == []
    fired = [each for each in history.occurrences if each.what == "fired"]
    assert len(fired) == len(history.occurrences)  # none was missed: one of the five was always there
    counts = fleet.app.jobs.count()
    assert counts[State.SUCCEEDED] == counts.total == len(fired)
    ended = Counter(line.job for line in fleet.lines() if line.word == "END")
    assert set(ended) == {each.job for each in fired}
    print(f"{len(fired)} occurrences, {counts.total} jobs, {len(goals)} schedulers killed")


@pytest.mark.row("S7", "O8")
def test_schedules_survive_kill_9(fleet: Timetables) -> None:
    """Definitions, the next run and the history are kept. The interrupted run runs again, or never if its task acks
    early.
    """
    popen = fleet.up(fleet.start())
    app = fleet.app
    fleet.wait_for(3)
    app.schedules.disable("tick", "quiet")
    until(lambda: not app.schedules.get("tick").running + app.schedules.get("tick").waiting)
    app.schedules.put("nightly", "timetable.long", cron="0 3 * * *", tz="Europe/Kyiv")
    job, once = app.schedules.trigger("long"), app.schedules.trigger("once")
    until(lambda: {line.job for line in fleet.lines()} >= {str(job.id), str(once.id)})
    before, records = app.schedules.status(), app.schedules.history("tick", 10_000)
    assert before["long"].running == (job.id,)
    assert records
    kill(popen)
    after = app.schedules.status()
    assert app.schedules.history("tick", 10_000) == records
    assert [(info.name, info.next, info.enabled, info.rule) for info in after.schedules] == [
        (info.name, info.next, info.enabled, info.rule) for info in before.schedules
    ]
    fleet.up(fleet.start())
    (fleet.folder / "go_on").touch()
    assert job.join(timeout=LIMIT).state is State.SUCCEEDED
    [run] = until(lambda: [run for run in app.schedules.history("long") if run.state is not None])
    assert (run.job, run.state) == (job.id, State.SUCCEEDED)
    [never] = until(lambda: [run for run in app.schedules.history("once") if run.state is not None])
    assert (never.job, never.state, never.reason) == (once.id, State.DEAD, Reason.CRASHED)
    starts = Counter(line.job for line in fleet.lines() if line.word == "START")
    assert (starts[str(job.id)], starts[str(once.id)]) == (2, 1)
    assert app.schedules.get("once").failures == 1
    assert [info.off for info in app.schedules.list()] == ["", "", "", "operator"]


@pytest.mark.row("O2", "O3", "O4", "O8")
def test_seven_schedules_due_at_once_obey_their_rules_when_a_process_dies(fleet: Timetables) -> None:
    """Two run at once, the third after the first, the fourth never beside the fifth. Each runs to its end once, and
    none ends before one of two processes has died.
    """
    at = datetime.now(UTC) + timedelta(seconds=4)
    (fleet.folder / "at").write_text(at.isoformat())
    declaring = timetable(fleet.app.settings.url, fleet.folder)
    assert len(declaring.schedules.declare().added) == 3 + len(PARTS)  # before anybody could fire one of them
    declaring.close()
    crew = [fleet.start(), fleet.start()]
    for popen in crew:
        fleet.up(popen)
    fleet.app.schedules.disable("tick")
    first = until(lambda: [line for line in fleet.lines() if line.word.startswith("START-")])
    victim = next(popen for popen in crew if popen.pid == first[0].pid)
    kill(victim)
    died = boottime()
    (fleet.folder / "go_on").touch()
    fleet.up(fleet.start())
    app = fleet.app
    until(lambda: all(app.schedules.get(name).last_success for name in PARTS))
    spans = _spans(fleet.lines(), victim.pid, died)
    for name, start, _ in spans:
        beside = [other for other, began, ended in spans if began < start < ended and other != name]
        assert len(beside) < 2, (name, beside)
        assert not {"p4", "p5"} <= {name, *beside}, (name, beside)
    ends = Counter(line.word for line in fleet.lines() if line.word.startswith("END-"))
    assert ends == {f"END-{name}": 1 for name in PARTS}
    success_of_first = next(line.at for line in fleet.lines() if line.word == "END-p1")
    assert all(start > success_of_first for name, start, _ in spans if name == "p3")
    assert all(len(app.schedules.history(name)) == 1 for name in PARTS)
    group = next(each for each in app.schedules.status().groups if each.name == "all")
    assert (group.max_concurrent, group.schedules) == (2, PARTS)


def _spans(lines: list[Line], victim: int, died: float) -> list[tuple[str, float, float]]:
    """When each part ran, by name; what the victim ran ended with it."""
    ends = {(line.job, line.token): line.at for line in lines if line.word.startswith("END-")}
    return [
        (line.word.removeprefix("START-"), line.at, ends.get((line.job, line.token), died if line.pid == victim else 0))
        for line in lines
        if line.word.startswith("START-")
    ]
