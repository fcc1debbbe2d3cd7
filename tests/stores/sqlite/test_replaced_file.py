"""The file is replaced under running processes: the new file is never damaged by the log of the former one."""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import StoreError, StoreUnavailable
from mainspring.stores.sqlite.driver import database, files
from mainspring.stores.sqlite.driver.connections import open_reader, open_writer
from tests.rows.project import Project
from tests.stores.sqlite.helpers import child, read_line, write_line
from tests.timing import patience

ENQUEUE = """
from mainspring import Mainspring
app = Mainspring("sqlite:///" + str(path), enqueue_patience="30s")
say("ready")
for line in sys.stdin:
    for _ in range(int(line)):
        app.call("shop.mail", "x" * 500).enqueue()
    say(sum(app.jobs.count().values()))
"""


@contextmanager
def producer(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process with the file open: it enqueues as many jobs as a line says."""
    other = child(ENQUEUE, path)
    try:
        assert read_line(other) == "ready"
        yield other
    finally:
        other.kill()
        other.communicate()


def enqueue_in(other: subprocess.Popen[str], n: int) -> int:
    """How many jobs the file has after the other process has enqueued ``n`` of them."""
    write_line(other, str(n))
    return int(read_line(other))


def copy_of(path: Path) -> Path:
    """A safe copy, as an operator makes it."""
    copy = path.with_suffix(".copy")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("vacuum into ?", (str(copy),))
    return copy


def check(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("pragma integrity_check").fetchall() == [("ok",)]


def count(app: Mainspring) -> int:
    return sum(app.jobs.count().values())


@pytest.mark.parametrize("first", ["new", "old"])
def test_a_copy_that_is_moved_over_the_file_stays_sound(path: Path, first: str) -> None:
    """The first write comes from a new process, or from a process that had the former file open."""
    with producer(path) as one, producer(path) as two:
        enqueue_in(one, 3)
        copy = copy_of(path)
        enqueue_in(one, 60)
        enqueue_in(two, 60)
        copy.replace(path)
        app = Mainspring(f"sqlite:///{path}", enqueue_patience="30s")
        if first == "new":
            with pytest.raises(
                StoreUnavailable, match=f"process {min(one.pid, two.pid)}, {max(one.pid, two.pid)} still"
            ):
                app.jobs.count()
        write_line(one, "1")  # it waits until the second one leaves the former file
        enqueue_in(two, 1)
        assert int(read_line(one)) in (4, 5)
        app.call("shop.mail").enqueue()
        assert count(app) == 6
        app.close()
    check(path)


def test_the_log_that_a_killed_process_left_is_not_applied_to_a_new_file(path: Path) -> None:
    with producer(path) as other:
        enqueue_in(other, 3)
        copy = copy_of(path)
        enqueue_in(other, 100)
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    copy.replace(path)
    app = Mainspring(f"sqlite:///{path}")
    app.call("shop.mail").enqueue()
    assert count(app) == 4
    app.close()
    check(path)


def test_the_log_that_a_killed_process_left_belongs_to_its_own_file(path: Path) -> None:
    """Nothing was replaced: the jobs in the log are kept."""
    with producer(path) as other:
        enqueue_in(other, 50)
        other.send_signal(signal.SIGKILL)
        other.wait()
    app = Mainspring(f"sqlite:///{path}")
    assert count(app) == 50
    app.close()


def test_a_file_and_its_log_that_are_moved_together_are_kept(path: Path, tmp_path: Path) -> None:
    with producer(path) as other:
        enqueue_in(other, 50)
        other.send_signal(signal.SIGKILL)
        other.wait()
    for end in ("", "-wal"):
        file = path.with_name(path.name + end)
        (tmp_path / ("kept" + end)).write_bytes(file.read_bytes())
        (tmp_path / ("kept" + end)).replace(file)
    app = Mainspring(f"sqlite:///{path}")
    assert count(app) == 50
    app.close()


def test_a_file_that_is_replaced_while_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store closes the former file again, and its log is not applied to the new one."""
    first, second = Mainspring(f"sqlite:///{path}"), Mainspring(f"sqlite:///{path}")
    first.call("shop.mail").enqueue()
    copy = copy_of(path)
    first.call("shop.mail").enqueue()
    opened: list[str] = []

    def open_and_replace(file: str, *args: Any) -> sqlite3.Connection:
        connection = open_writer(file, *args)
        if not opened:
            copy.replace(path)
        opened.append(file)
        return connection

    monkeypatch.setattr(database, "open_writer", open_and_replace)
    second.call("shop.mail").enqueue()
    assert count(second) == count(first) == 2
    assert len(opened) >= 2
    second.close()
    first.close()
    check(path)


def test_a_read_opens_no_other_file_than_the_writer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copies: list[Path] = []

    def replace_and_open(file: str) -> sqlite3.Connection:
        if copies:
            copies.pop().replace(path)
        return open_reader(file)

    monkeypatch.setattr(database, "open_reader", replace_and_open)
    app = Mainspring(f"sqlite:///{path}")
    app.call("shop.mail").enqueue()
    copies.append(copy_of(path))
    app.call("shop.mail").enqueue()
    assert count(app) == 1
    app.call("shop.mail").enqueue()
    assert count(app) == 2
    app.close()
    check(path)


async def test_all_stores_of_one_process_move_to_the_new_file(path: Path) -> None:
    """The worker, its heartbeats and an idle client: none of them keeps the others from the new file."""
    app, idle = Mainspring(f"sqlite:///{path}", poll="100ms", lease=patience(3)), Mainspring(f"sqlite:///{path}")

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    await idle.call("shop.mail").aenqueue()
    copy = copy_of(path)
    async with app.worker():
        assert await (await add.aenqueue(1, 2)).aresult(timeout=60) == 3
        copy.replace(path)
        assert await (await add.aenqueue(3, 4)).aresult(timeout=60) == 7
    assert sum((await idle.jobs.acount()).values()) == 2
    await idle.aclose()
    await app.aclose()
    check(path)


def test_an_app_that_was_not_closed_keeps_no_process_from_a_new_file(path: Path) -> None:
    """It is collected, and does not count as a user of the former file."""
    app = Mainspring(f"sqlite:///{path}")
    app.call("shop.mail").enqueue()
    copy = copy_of(path)
    for _ in range(3):
        Mainspring(f"sqlite:///{path}").call("shop.mail").enqueue()
    gc.collect()
    assert len([*Path(f"{path}-wake").glob("*.open")]) == 1
    app.close()
    copy.replace(path)
    with producer(path) as other:
        assert enqueue_in(other, 1) == 2


def test_a_deleted_file_is_made_again(path: Path) -> None:
    with producer(path) as other:
        assert enqueue_in(other, 5) == 5
        path.unlink()
        assert enqueue_in(other, 2) == 2
    check(path)


def test_a_forked_process_leaves_the_file_of_its_parent(path: Path, tmp_path: Path) -> None:
    """Its registration is its own: the parent's end does not show the child as gone."""
    project = Project(tmp_path, f"sqlite:///{path}")
    said = project.python(f"""
        import os, sys
        from pathlib import Path
        from mainspring import Mainspring
        path = Path({str(path)!r})
        app = Mainspring("sqlite:///" + str(path))
        app.call("shop.mail").enqueue()
        def users():
            return sorted(int(file.name.partition("-")[0]) for file in Path(str(path) + "-wake").glob("*.open"))
        if (pid := os.fork()) == 0:
            app.call("shop.mail").enqueue()
            print(users() == [os.getpid()], flush=True)
            app.close()
            os._exit(0)
        os.waitpid(pid, 0)
        print(users() == [])
        app.call("shop.mail").enqueue()
        print(users() == [os.getpid()])
        app.close()
        print(users() == [])
    """)
    assert said.split() == ["True"] * 4
    assert os.fspath(path)


def test_a_deleted_file_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "jobs.db"
    with Mainspring(f"sqlite:///{path}") as app:
        app.call("shop.mail").enqueue()
        for end in ("", "-wal", "-shm"):
            Path(f"{path}{end}").unlink()
        app.call("shop.mail").enqueue()
        assert sum(app.jobs.count().values()) == 1
    assert [line for line in caplog.messages if "was deleted or replaced" in line and "are lost" in line]


def test_a_deleted_file_is_reported_once_and_then_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stores of the process notice it, and each call notices it again while the file cannot be made."""
    folder = tmp_path / "data"
    folder.mkdir()
    url = f"sqlite:///{folder}/jobs.db"

    def warnings() -> int:
        return sum("was deleted or replaced" in line for line in caplog.messages)

    with Mainspring(url, enqueue_patience=0) as app, Mainspring(url, enqueue_patience=0) as other:
        for each in (app, other):
            each.call("shop.mail").enqueue()
        folder.rename(tmp_path / "away")
        for each in (app, other, app, other):
            with pytest.raises(StoreError):
                each.call("shop.mail").enqueue()
        assert warnings() == 1
        monkeypatch.setattr(files, "WARN_SECONDS", 0.0)  # the minute is over
        with pytest.raises(StoreError):
            app.call("shop.mail").enqueue()
        assert warnings() == 2
