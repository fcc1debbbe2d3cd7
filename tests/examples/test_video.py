"""examples/video does what its README says: two programs, one job per file, killed and resumed, cancelled."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "video"

Start = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.row("B1")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLE, tmp_path / "video")


@pytest.fixture
def start(home: Path, store_url: str) -> Iterator[Start]:
    running: list[subprocess.Popen[str]] = []
    env = dict(os.environ) | {
        "MAINSPRING_URL": store_url, "VIDEO_HOME": str(home), "PIECE_TAKES": "0.05",
        "VIDEO_LEASE": "3s",
    }  # fmt: skip

    def begin(*command: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=home, env=env, text=True, stdout=subprocess.PIPE, start_new_session=True
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def ask(start: Start) -> Callable[..., Any]:
    web = start("web.py", "0")
    assert web.stdout is not None
    port = int(web.stdout.readline().split()[-1])

    def ask(method: str, path: str, body: bytes | None = None) -> Any:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=body, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    return ask


def until(ask: Callable[..., Any], job: str, true: Callable[[Any], bool]) -> Any:
    give_up = time.monotonic() + 100
    while not true(seen := ask("GET", f"/jobs/{job}")):
        assert time.monotonic() < give_up, seen
        time.sleep(0.05)
    return seen


def pieces(seen: Any) -> float:
    return float(seen["progress"]["done"]) if seen["progress"] else 0


def test_the_video_example_resumes_a_killed_job_elsewhere(home: Path, start: Start, ask: Callable[..., Any]) -> None:
    first = ask("POST", "/videos/holiday.mov", b"a film")
    again = ask("POST", "/videos/holiday.mov", b"a film")
    assert (first["new"], again) == (True, {"job": first["job"], "new": False})
    worker = start("-m", "mainspring", "worker", "encoding.py")
    until(ask, first["job"], lambda seen: pieces(seen) >= 3)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    kept = len(list((home / "holiday.mov.pieces").iterdir()))
    start("-m", "mainspring", "worker", "encoding.py")
    ended = until(ask, first["job"], lambda seen: seen["state"] not in ("running", "ready", "retrying"))
    assert ended["state"] == "succeeded"
    assert ended["attempts"] == 1, "the attempt that died is in the record"
    assert any(f"have={kept}" in line or f"have={kept - 1}" in line for line in ended["log"])
    assert (home / "holiday.mov.encoded").stat().st_size == 20 * 32
    told = home / "events.txt"
    give_up = time.monotonic() + 50
    while not told.exists():
        assert time.monotonic() < give_up
        time.sleep(0.05)
    assert told.read_text().splitlines() == [f"succeeded {first['job']}"]


def test_the_video_example_cancels_a_job(start: Start, ask: Callable[..., Any]) -> None:
    job = ask("POST", "/videos/long.mov", b"a longer film")["job"]
    start("-m", "mainspring", "worker", "encoding.py")
    until(ask, job, lambda seen: pieces(seen) >= 1)
    assert ask("DELETE", f"/jobs/{job}") == {"cancelled": True}
    assert until(ask, job, lambda seen: seen["state"] == "cancelled")["state"] == "cancelled"
