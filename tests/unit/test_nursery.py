"""A program out of the nursery is like one that was started: the tests that use it show as much."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.nursery import SIZE, Nursed, nursery

TELL = """
import json, os, sys
print(json.dumps({
    "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(), "name": __name__, "parent": os.getppid(),
    "leader": os.getsid(0) == os.getpid(), "env": dict(os.environ), "open": sorted(os.listdir("/proc/self/fd")),
    "encoding": sys.stdout.encoding, "errors": sys.stderr.errors, "read": sys.stdin.read(),
}))
"""
starts = pytest.mark.parametrize("start", [subprocess.Popen, Nursed])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tell.py").write_text(TELL)
    return tmp_path


@pytest.mark.fresh
@pytest.mark.parametrize("command", [["-m", "tell", "a"], ["-c", TELL, "a", "b"]])
def test_it_finds_what_a_fresh_one_finds(folder: Path, command: list[str]) -> None:
    told: list[Any] = []
    for start in (subprocess.Popen, Nursed):
        popen = start(
            [sys.executable, *command], cwd=folder, env={**os.environ, "SHOP": "1"}, start_new_session=True, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        told.append(popen.communicate("word")[0])
        assert popen.returncode == 0
    assert told[0] == told[1]
    assert '"read": "word"' in told[0]


@pytest.mark.fresh
@starts
@pytest.mark.parametrize(
    ("code", "ends", "says"),
    [
        ("raise SystemExit(3)", 3, ""),
        ("raise SystemExit('no')", 1, "no\n"),
        ("import atexit; atexit.register(print, 'late'); print('first')", 0, "first\nlate\n"),
        ("import threading as t, time; t.Thread(target=lambda: time.sleep(0.1) or print('late')).start()", 0, "late\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT, "Interrupt"),
        ("1 / 0", 1, "ZeroDivisionError"),
    ],
)
def test_it_ends_as_a_fresh_one_ends(start: type[subprocess.Popen[str]], code: str, ends: int, says: str) -> None:
    popen = start([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    said, _ = popen.communicate()
    assert popen.returncode == ends
    assert says in said
    assert says or not said


@pytest.mark.fresh
@starts
def test_files_keep_their_numbers(start: type[subprocess.Popen[str]]) -> None:
    ends = [os.pipe() for _ in range(3)]
    code = f"import os; [os.write(fd, b'%d' % n) for n, fd in enumerate({[mine for _, mine in ends]})]"
    popen = start([sys.executable, "-c", code], pass_fds=[mine for _, mine in ends])
    assert popen.wait() == 0
    assert [os.read(fd, 10) for fd, _ in ends] == [b"0", b"1", b"2"]
    for fd in sum(ends, ()):
        os.close(fd)


@pytest.mark.parametrize("more", [{"env": {"PYTHONUTF8": "1"}}, {"env": {"TZ": "UTC+5"}}, {"umask": 0o77}])
def test_what_an_interpreter_reads_first_gets_one_of_its_own(more: dict[str, Any]) -> None:
    code = "import sys; print('mainspring.app' in sys.modules)"
    for options, forked in ((more, "False\n"), ({}, "True\n")):
        popen = Nursed([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, **options)
        assert popen.communicate()[0] == forked


def test_it_leaves_no_child_behind() -> None:
    assert nursery().owner == os.getpid()
    popen = Nursed([sys.executable, "-c", "pass"])
    assert popen.wait() == 0
    with pytest.raises(ChildProcessError):
        os.waitpid(popen.pid, 0)


def test_whoever_is_born_too_late_ends_at_once() -> None:
    """Whoever gave the order has ended meanwhile; here it never was."""
    end, theirs = os.pipe()
    body = json.dumps({"parent": 2**30}).encode()
    socket.send_fds(nursery()._line, [SIZE.pack(len(body))], [theirs])
    nursery()._line.sendall(body)
    os.close(theirs)
    assert os.read(end, 1) == b"", "somebody still has the other end"
    os.close(end)
    assert Nursed([sys.executable, "-c", "pass"]).wait() == 0
