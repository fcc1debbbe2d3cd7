"""The last two members of a join end in one instant, in two worker processes: the join fires once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mainspring import Mainspring, group
from mainspring.client.blocking import run as blocking
from mainspring.states import State
from mainspring.testing.history import History, check, read
from tests.processes.fleet import LIMIT, ROOT, Fleet, until
from tests.processes.meeting import Meeting
from tests.processes.playground import JOURNAL
from tests.timing import patience

ROUNDS = 25
SIDES = ("left", "right")

pytestmark = pytest.mark.row("F2", "F4")


@pytest.fixture
def meeting(fleet: Fleet) -> Iterator[Meeting]:
    app = Mainspring(fleet.url)
    yield Meeting(app)
    app.close()


@contextmanager
def a_worker_of_each_side(fleet: Fleet) -> Iterator[None]:
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.processes.meeting", side],
            cwd=ROOT,
            env={**os.environ, "MAINSPRING_URL": fleet.url, JOURNAL: str(fleet.journal_path)},
        )
        for side in SIDES
    ]
    try:
        until(lambda: len(fleet.workers()) == len(SIDES), what="both workers are registered")
        yield
    finally:
        for each in started:
            each.kill()
            each.wait(LIMIT)


@pytest.mark.timeout(600)
def test_a_chord_of_two(fleet: Fleet, meeting: Meeting) -> None:
    with a_worker_of_each_side(fleet):
        for n in range(ROUNDS):
            members = [meeting.meet.s(str(fleet.folder), side, n).options(queue=side) for side in SIDES]
            assert (group(members) | meeting.both).enqueue().result(timeout=patience(LIMIT)) == 2 * n
        all_is_well(fleet, meeting, callbacks=ROUNDS)


@pytest.mark.timeout(600)
def test_a_batch_of_two(fleet: Fleet, meeting: Meeting) -> None:
    with a_worker_of_each_side(fleet):
        for n in range(ROUNDS):
            with meeting.app.flows.batch("two", on_success=meeting.both.s([n])) as batch:
                for side in SIDES:
                    batch.add(meeting.meet.s(str(fleet.folder), side, n).options(queue=side))
            batch.join(timeout=patience(LIMIT))
            assert batch.counts().succeeded == 2
        all_is_well(fleet, meeting, callbacks=ROUNDS)


def all_is_well(fleet: Fleet, meeting: Meeting, callbacks: int) -> None:
    """Every join has fired once, nothing waits, and no invariant of the history is broken."""
    until(lambda: not any(meeting.app.jobs.count()[state] for state in ("blocked", "ready", "running")))
    assert meeting.app.jobs.count(task="both")[State.SUCCEEDED] == callbacks
    assert len(fleet.journal(word="START")) == 3 * callbacks

    async def recorded() -> History:
        stored = await read(await meeting.app.client.store())
        return History(
            events=stored.events, listed=stored.listed, snapshots=(stored.snapshot,), edges=stored.edges,
            joins=stored.joins,
        )  # fmt: skip

    assert check(blocking("history", recorded())) == []
