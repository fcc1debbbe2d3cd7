"""Run it: ``python main.py``. Two workers run the tasks. This program triggers runs, breaks one task, repairs it and
prints the results."""

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from etl import BROKEN, HOME, SCORE, app, write

from mainspring import NotTriggered


def main() -> None:
    SCORE.write_text("")
    BROKEN.touch()
    app.schedules.declare()  # workers do this when they start; here no worker has started yet
    ask()
    with workers(2):
        until(lambda: ("schedule_disabled", "report") in lines(), "the report to be disabled")
        show()
        refused("report")
        go_on("fetch-data", "process-data", "cleanup")
        BROKEN.unlink()
        write("mended", "report")
        app.schedules.enable("report")
        until(lambda: last_outcome("report") == "succeeded", "a report")
        show()
    judge()


def ask() -> None:
    """Before any worker is there: a trigger obeys the rules of its schedule."""
    app.schedules.trigger("cleanup")  # the first to be asked for, and the lowest
    refused("cleanup")
    refused("process-data")
    for name in ("report", "fetch-data"):
        app.schedules.trigger(name)
    print()


def refused(name: str) -> None:
    try:
        app.schedules.trigger(name)
    except NotTriggered as error:
        print("not triggered:", error.message)


def go_on(*names: str) -> None:
    """Three more runs of each, while the report is disabled."""
    before = Counter(ended())
    until(lambda: all(Counter(ended())[name] >= before[name] + 3 for name in names), "the others to go on")
    print("the others went on\n")


def show() -> None:
    """The whole set in one call."""
    status = app.schedules.status()
    for each in status.schedules:
        state = "enabled" if each.enabled else f"disabled: {each.note}"
        last = "-" if each.last is None else each.last.outcome
        print(f"{each.name:13} last {last:10} waits for {', '.join(each.waiting_for) or 'nothing':12} {state}")
    for group in status.groups:
        print(f"group {group.name}: {group.running} of {group.max_concurrent} run")
    print()


def judge() -> None:
    """From what the parts themselves wrote down, in order."""
    begun, done, playing = Counter[str](), Counter[str](), Counter[str]()
    most = early = together = 0
    for word, part in lines():
        begun[part] += word == "begins"
        done[part] += word == "ends"
        playing = begun - done
        most = max(most, playing.total())
        early += begun["process-data"] > done["fetch-data"]
        together += bool(playing["cleanup"] and playing["process-data"])
    print("process-data before its fetch-data:", early)
    print("process-data beside cleanup:", together)
    print("most of the group at once:", most)
    print("first to begin:", *sorted([part for word, part in lines() if word == "begins"][:2]))


def last_outcome(name: str) -> str:
    last = app.schedules.get(name).last
    return "" if last is None else last.outcome


def lines() -> list[tuple[str, str]]:
    return [(word, part) for word, part in (line.split() for line in SCORE.read_text().splitlines())]


def ended() -> list[str]:
    return [part for word, part in lines() if word == "ends"]


@contextmanager
def workers(many: int) -> Iterator[None]:
    command = [sys.executable, "-m", "mainspring", "worker", "etl.py"]
    fleet = [subprocess.Popen(command, cwd=HOME, stderr=subprocess.DEVNULL) for _ in range(many)]
    try:
        yield
    finally:
        for process in fleet:
            process.terminate()
        for process in fleet:
            process.wait()


def until(true: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + 90
    while not true():
        if time.monotonic() > give_up:
            sys.exit(f"timed out while waiting for {what}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
