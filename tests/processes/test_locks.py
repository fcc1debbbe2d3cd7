"""Locks in real processes that are killed or stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import Mainspring
from tests.processes.fleet import ROOT, kill, until
from tests.timing import milliseconds

Start = Callable[..., "Holder"]


class Holder:
    """A process that holds a lock and prints what happens."""

    def __init__(self, url: str, kind: str, ttl: str, folder: Path) -> None:
        self.out = folder / f"{kind}-{len(list(folder.iterdir()))}.out"
        with self.out.open("wb") as out:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.locking", kind, ttl], cwd=ROOT, stdin=subprocess.PIPE,
                stdout=out, env={**os.environ, "MAINSPRING_URL": url},
            )  # fmt: skip

    def words(self) -> list[str]:
        return [line[0] for line in self._said()]

    def number(self, word: str, nth: int = 0) -> int:
        """The fencing number behind the nth such word, once it is said."""

        def said() -> list[int]:
            return [int(line[1]) for line in self._said() if line[0] == word][nth : nth + 1]

        return until(said, what=f"it says {word}")[0]

    def _said(self) -> list[list[str]]:
        """Its lines, of which the last may be half written yet."""
        return [line.split() for line in self.out.read_text().rpartition("\n")[0].splitlines()]

    def signal(self, number: signal.Signals) -> None:
        kill(self.popen.pid, number)

    def end(self) -> int:
        assert self.popen.stdin is not None
        self.popen.stdin.close()
        return self.popen.wait(60)


@pytest.fixture
def start(store_url: str, tmp_path: Path) -> Iterator[Start]:
    made: list[Holder] = []
    folder = tmp_path / "holders"
    folder.mkdir()

    def start(kind: str, ttl: str | None = None) -> Holder:
        made.append(Holder(store_url, kind, ttl or milliseconds(2), folder))
        return made[-1]

    yield start
    for each in made:
        each.signal(signal.SIGKILL)
        each.popen.wait(60)
        assert each.popen.stdin is not None
        each.popen.stdin.close()


@pytest.fixture
def app(store_url: str) -> Iterator[Mainspring]:
    app = Mainspring(store_url)
    yield app
    app.close()


@pytest.mark.row("L2")
def test_the_lock_of_a_killed_process_is_free_within_its_ttl(app: Mainspring, start: Start) -> None:
    holder = start("thread", "2s")
    token = holder.number("held")
    holder.signal(signal.SIGKILL)
    holder.popen.wait(60)
    lock = app.lock("nightly", wait="60s")
    assert lock.remaining() <= timedelta(seconds=2)
    with lock:
        assert lock.token > token


@pytest.mark.row("L3")
@pytest.mark.parametrize("kind", ["thread", "task"])
def test_a_stopped_process_loses_its_lock_and_notices_it(app: Mainspring, start: Start, kind: str) -> None:
    """Another process gets the lock meanwhile with a larger token, and keeps it."""
    holder = start(kind)
    token = holder.number("held")
    holder.signal(signal.SIGSTOP)
    with app.lock("nightly", wait="60s") as lock:
        assert lock.token > token
        holder.signal(signal.SIGCONT)
        assert holder.number("told") == holder.number("LockLost") == token
        assert holder.end() == 0
        assert not lock.lost
        assert lock.is_locked()
        assert app.locks.list()[0].token == lock.token


@pytest.mark.row("L3")
def test_a_stopped_process_notices_the_lost_lock_without_another_holder(app: Mainspring, start: Start) -> None:
    holder = start("thread")
    token = holder.number("held")
    holder.signal(signal.SIGSTOP)
    until(lambda: not app.lock("nightly").is_locked(), what="its time is over")
    holder.signal(signal.SIGCONT)
    assert holder.number("LockLost") == token


@pytest.mark.row("L2")
def test_a_stop_shorter_than_the_ttl_does_not_lose_the_lock(app: Mainspring, start: Start) -> None:
    """The stop is shorter than what is left of the ttl."""
    holder = start("thread", "1h")
    holder.number("held")
    holder.signal(signal.SIGSTOP)
    assert app.lock("nightly").is_locked()
    holder.signal(signal.SIGCONT)
    assert holder.end() == 0
    assert holder.words() == ["held", "over"]
    assert not app.lock("nightly").is_locked()


@pytest.mark.row("L2", "L3")
def test_a_lock_is_lost_only_if_the_gil_is_held_longer_than_its_ttl(start: Start) -> None:
    """A shorter time has no effect. After a longer time the lock is lost and the holder is informed."""
    holder = start("gil", "10s")
    token = holder.number("held")
    assert holder.number("kept") == holder.number("told") == holder.number("LockLost") == token


@pytest.mark.row("L5")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_another_candidate_is_elected_when_the_leader_is_killed(
    app: Mainspring, start: Start, how: signal.Signals
) -> None:
    first = start("leader")
    term = first.number("held")
    first.signal(how)
    second = start("leader")
    assert second.number("held") > term
    first.signal(signal.SIGCONT)
    if how == signal.SIGSTOP:
        assert first.number("told") == term
        assert first.end() == 0
        assert first.words() == ["held", "told", "over"]
    assert [info.token for info in app.locks.list()] == [second.number("held")]


@pytest.mark.row("L5")
def test_a_leader_that_stops_steps_down_at_once(app: Mainspring, start: Start) -> None:
    """Its ttl is an hour, so the next leader cannot have waited for it."""
    first = start("leader", "1h")
    term = first.number("held")
    second = start("leader", "1h")
    assert first.end() == 0
    assert first.words() == ["held", "told", "over"]
    assert second.number("held") > term
    assert second.end() == 0
    assert app.locks.list() == []


@pytest.mark.row("L2", "L3")
def test_many_processes_hold_a_lock_one_after_the_other(app: Mainspring, start: Start) -> None:
    """Some are killed, some are stopped and resumed. The tokens are in the order of the holders."""
    holders = [start("thread") for _ in range(5)]
    order: list[int] = []
    left = list(holders)
    while left:
        (now,) = until(lambda: [each for each in left if "held" in each.words()], what="one of them gets it")
        order.append(now.number("held"))
        left.remove(now)
        if len(left) % 2:
            now.signal(signal.SIGKILL)
        else:
            assert now.end() == 0
            assert "told" not in now.words()
    assert order == sorted(set(order))
