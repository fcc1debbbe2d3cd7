"""Run it: ``python main.py``. Three workers, of which one is killed, and schedules that come and go meanwhile."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from housekeeping import NOTES, app, sweep

from mainspring.schedules.info import RunInfo

FLEET = 3


def main() -> None:
    NOTES.write_text("")
    with workers() as fleet:
        until(lambda: len(app.workers.list()) == FLEET, "the workers to start")
        come_and_go()
        # For the show, one that is due every second: a run for each occurrence, whatever happens, and side by side.
        app.schedules.put("show", sweep.s("show"), every="1s", misfire="all", overlap="allow", history=1_000)
        until(lambda: len(noted("ends")) >= 5, "five runs")
        cut = kill_one_at_work(fleet)
        until(lambda: cut.job in {note.job for note in noted("ends")}, "another worker to do that run")
        app.schedules.disable("show", "seen enough")
        until(lambda: all(run.state for run in fired()), "the last runs to end")
        count(cut)
        app.schedules.delete("show")


def come_and_go() -> None:
    """Schedules are made, listed and removed at run time, by any process: this one runs no jobs."""
    app.schedules.put("weekly", sweep.s("exports"), cron="0 4 * * SUN")
    app.schedules.put("monthly", sweep.s("invoices"), cron="0 5 1 * *", tz="America/New_York")
    app.schedules.put("of-ann", sweep.s("ann"), cron="H H(0-5) * * *")  # a time of her own, chosen by the name
    app.schedules.put("once", sweep.s("trial"), at=datetime(2040, 1, 1, tzinfo=UTC))
    show()
    app.schedules.put("weekly", sweep.s("exports"), cron="0 4 * * SAT")  # replaced, not doubled
    for name in ("monthly", "of-ann", "once"):
        app.schedules.delete(name)
    show()


def show() -> None:
    for each in app.schedules.list():
        print(f"{each.name:8} {each.rule:52} next {each.next:%Y-%m-%d %H:%M} UTC")
    print()


def fired() -> list[RunInfo]:
    return [run for run in app.schedules.history("show", 1_000) if run.what == "fired"]


class Note(NamedTuple):
    """What a run wrote down."""

    word: str
    what: str
    job: str
    supervisor: str
    worker: str


def noted(word: str) -> list[Note]:
    notes = [Note(*line.split()) for line in NOTES.read_text().splitlines()]
    return [note for note in notes if (note.word, note.what) == (word, "show")]


def count(cut: Note) -> None:
    """What the store remembers of each occurrence, against what the runs themselves wrote down."""
    runs = fired()
    moments = sorted(run.at for run in runs)
    seconds = {(later - earlier).total_seconds() for earlier, later in pairwise(moments)}
    begun = [note.job for note in noted("begins")]
    again = [note for note in noted("begins") if begun.count(note.job) > 1]
    print("occurrences", len(runs), "each", *sorted(seconds), "s after the one before")
    print("jobs", len({run.job for run in runs}), *{str(run.state) for run in runs})
    print("begun twice", len({note.job for note in again}), "of which by the killed one first",
          len({note.job for note in again if note.worker == cut.worker}))  # fmt: skip
    print("not begun", len({str(run.job) for run in runs} - set(begun)))


def kill_one_at_work(fleet: "dict[int, subprocess.Popen[bytes]]") -> Note:
    """``kill -9`` for a worker in the middle of a run, and for its supervisor: as if their machine had gone."""
    while True:
        last, ended = noted("begins")[-1], {note.job for note in noted("ends")}
        if last.job not in ended:
            os.kill(int(last.supervisor), signal.SIGKILL)
            os.kill(int(last.worker), signal.SIGKILL)
            fleet.pop(int(last.supervisor)).wait()
            print("killed one of three in the middle of a run\n")
            return last
        time.sleep(0.01)


@contextmanager
def workers() -> "Iterator[dict[int, subprocess.Popen[bytes]]]":
    """Three times what you would start on three machines."""
    command = [sys.executable, "-m", "mainspring", "worker", "housekeeping.py"]
    started = [subprocess.Popen(command, cwd=Path(__file__).parent, stderr=subprocess.DEVNULL) for _ in range(FLEET)]
    fleet = {process.pid: process for process in started}
    try:
        yield fleet
    finally:
        for process in fleet.values():
            process.terminate()
        for process in fleet.values():
            process.wait()


def until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + 90
    while not true():
        if time.monotonic() > give_up:
            sys.exit(f"timed out while waiting for {what}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
