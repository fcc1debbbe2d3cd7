"""An open batch whose members are streamed by a producer that is killed twice: it ends once, with every member once.

``./dev soak --only stream`` does the same with 1,000,000 members.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from mainspring import Mainspring
from mainspring.flows.batch import Batch
from tests.processes.fleet import ROOT, Fleet, until
from tests.processes.streaming import Streaming
from tests.timing import patience

SOAK = bool(os.environ.get("MAINSPRING_SOAK"))
MEMBERS = 1_000_000 if SOAK else 20_000
KILLS = (0.3, 0.6)
"""The share of the members that are there when the producer is killed."""
LONGEST = MEMBERS / 50
"""Seconds, on a machine that does not stall."""


@pytest.fixture
def streaming(fleet: Fleet) -> Iterator[Streaming]:
    app = Mainspring(fleet.url)
    yield Streaming(app)
    app.close()


@contextmanager
def started(fleet: Fleet, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """The program of this test, killed in the end."""
    popen = subprocess.Popen(
        [sys.executable, "-m", "tests.processes.streaming", *arguments],
        cwd=ROOT,
        env={**os.environ, "MAINSPRING_URL": fleet.url},
    )
    try:
        yield popen
    finally:
        popen.kill()
        popen.wait(patience(LONGEST))


@pytest.mark.row("B8")
@pytest.mark.timeout(0 if SOAK else 900)
def test_a_batch_of_a_producer_that_is_killed_ends_once(fleet: Fleet, streaming: Streaming) -> None:
    with started(fleet):
        for share in KILLS:
            with started(fleet, str(MEMBERS), "stream") as producer:
                batch = open_batch(streaming)
                wait_for_members(batch, share * MEMBERS)
                producer.send_signal(signal.SIGKILL)
                assert producer.wait(patience(LONGEST)) == -signal.SIGKILL
            found = batch.counts()
            assert share * MEMBERS <= found.total < MEMBERS
            assert not found.closed
        batch = open_batch(streaming)
        assert until(lambda: batch.counts().pending == 0, limit=LONGEST, what="all that was added has ended")
        assert not callbacks(streaming), "the batch is open, and no callback has run"
        with started(fleet, str(MEMBERS), "stream") as producer:
            assert producer.wait(patience(LONGEST)) == 0
        batch.join(timeout=patience(LONGEST))
    found = batch.counts()
    assert (found.total, found.pending, found.succeeded, found.closed) == (MEMBERS, 0, MEMBERS, True)
    assert callbacks(streaming) == ["end", "good"]
    assert sorted(info.args["n"] for info in streaming.app.jobs.iterate(task="member")) == list(range(MEMBERS))


def wait_for_members(batch: Batch, n: float) -> None:
    until(lambda: batch.counts().total >= n, limit=LONGEST, what=f"{n:,.0f} members are in the batch")


def open_batch(streaming: Streaming) -> Batch:
    """The batch that the producer has opened."""
    flows = streaming.app.flows
    (found,) = until(flows.list, what="the batch is open")
    return flows.batch_of(found.id)


def callbacks(streaming: Streaming) -> list[str]:
    """The callbacks that a worker has run."""
    states = ("running", "succeeded", "retrying", "dead")
    return sorted(info.args["word"] for info in streaming.app.jobs.iterate(task="finished", state=states))
