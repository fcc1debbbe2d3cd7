"""An exception that is thrown into a thread in the middle of an enqueue does not hit other threads.

Signal handlers may raise at any instruction of the main thread: ``signal.alarm`` idioms, test time limits,
Ctrl-C. Jobs of other threads are neither lost, nor reported as made when they are not, nor delayed for ever.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mainspring.jobs.records import Enqueued
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.driver.database import SqliteWriter

from .helpers import PATIENCE, batch, job, run, states

PROGRAM = """
import signal, sys, threading, time
from mainspring import Mainspring

class Boom(Exception): ...

app = Mainspring("sqlite:///" + sys.argv[1])

@app.task
def work(n: int) -> int: return n

work.enqueue(0)
over, made, raised = threading.Event(), [], []

def produce() -> None:
    while not over.is_set():
        try:
            made.append(work.enqueue(1))
        except BaseException as error:
            raised.append(error)

inside = False

def struck(*_: object) -> None:
    if inside: raise Boom

threads = [threading.Thread(target=produce, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
signal.signal(signal.SIGALRM, struck)
strikes, until = 0, time.monotonic() + 4
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
while time.monotonic() < until:
    try:
        inside = True
        work.enqueue(2)
        inside = False
    except Boom:
        inside = False
        strikes += 1
signal.signal(signal.SIGALRM, signal.SIG_IGN)
over.set()
for thread in threads: thread.join(60)
found = {info.id for info in app.jobs.iterate()}
print([thread.is_alive() for thread in threads], raised, sum(job.id not in found for job in made), strikes > 0)
"""


def test_a_signal_hits_only_the_main_thread(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(tmp_path / "jobs.db")],
        capture_output=True, text=True, timeout=110, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.stdout.strip() == "[False, False] [] 0 True", done.stdout + done.stderr


@pytest.mark.parametrize("place", ["_serve_group", "_run_group"])
def test_an_interrupted_thread_leaves_other_calls_to_the_next(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exception comes before the work of the group began, whatever the transaction before did."""
    store = SqliteStore(str(tmp_path / "jobs.db"))
    store.enqueue_now(batch(job()))
    real, strikes = getattr(SqliteWriter, place), [KeyboardInterrupt]

    def strike(self: SqliteWriter, group: list[object], *rest: object) -> None:
        if len(group) > 1 and strikes:
            raise strikes.pop()
        real(self, group, *rest)

    monkeypatch.setattr(SqliteWriter, place, strike)
    said: list[object] = []

    def enqueue() -> None:
        made = job()
        try:
            said.append(store.enqueue_now(batch(made)) == [Enqueued(made.id, True)])
        except KeyboardInterrupt:
            said.append("struck")

    with store.database.writer._lock:
        threads = [threading.Thread(target=enqueue, daemon=True) for _ in range(2)]
        for thread in threads:
            thread.start()
        while len(store.database.writer._pending) < 2:
            threading.Event().wait(0.01)
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(said, key=str) == [True, "struck"]
    assert sum(run(states(store)).values()) == 2, "the job of the one that was not struck, and the first"
    run(store.close())
