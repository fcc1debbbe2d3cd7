"""One line for each job that ends: ``done  add(2, 3) -> 5  12 ms``; and the log format of each surrounding."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import LIMIT, Shop
from tests.cli.watching import Running, on_terminal

Golden = Callable[[str, str], None]

CODE = """
from mainspring import Cancel, Mainspring, Secret, Snooze

app = Mainspring(lease="3s", sweep="500ms", poll="100ms", grace="1s", thread_slots=1, async_slots=0)

@app.task(name="shop.add")
def add(a: int, b: int = 1) -> int:
    return a + b

@app.task(name="shop.flaky", retries=1, backoff="1h")
def flaky(n: int) -> None:
    raise ConnectionError("not yet")

@app.task(name="shop.fail", retries=0)
def fail(why: str) -> None:
    raise ValueError(why)

@app.task(name="shop.refuse")
def refuse(n: int) -> None:
    raise Cancel("not wanted")

@app.task(name="shop.later")
def later(*places: str, **more: int) -> None:
    raise Snooze("1h")

@app.task(name="shop.login", sensitive=["pin"])
def login(user: str, pin: str, *, password: str) -> Secret[str]:
    return Secret("sk-" + password)

@app.task(name="shop.long")
def long(text: str) -> dict[str, str]:
    return {"text": text, "password": "hunter22"}

@app.task(name="shop.unstorable")
def unstorable() -> object:
    return object()
"""


@pytest.fixture
def project(shop: Shop) -> Shop:
    (shop.folder / "app.py").write_text(CODE)
    app = shop.app
    calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
        ("add", (2, 3), {}), ("add", (2,), {"b": 4}), ("flaky", (1,), {}), ("fail", ("no\nway",), {}),
        ("refuse", (1,), {}), ("later", ("a", "b"), {"c": 3}), ("login", ("ann", "4711"), {"password": "hunter22"}),
    ]  # fmt: skip
    app.enqueue_many([app.call(f"shop.{name}", *args, **kwargs) for name, args, kwargs in calls])
    return shop


def job_lines(text: str) -> str:
    """The lines of jobs, without what differs from run to run."""
    text = re.sub(r"(?m)^\S*\d\d:\d\d:\d\d\.\d{3}Z? ", "<time> ", text)
    text = re.sub(r"(?m)  (<1|\d+) ms$", "  <n> ms", text)
    words = "done|failed|dead|cancelled|snoozed"
    return "".join(f"{line}\n" for line in text.splitlines() if re.match(rf"<time> ({words})  |    mainspring", line))


def work(shop: Shop, *flags: str, **env: str) -> str:
    """Run the jobs that are ready; returns standard error, read by a pipe."""
    done = subprocess.run(
        ["python", "-m", "mainspring", "worker", "--burst", *flags], cwd=shop.folder, capture_output=True, text=True,
        env={**os.environ, **env}, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_dev_prints_one_line_for_each_job(project: Shop, golden: Golden) -> None:
    with Running(project, "dev") as dev:
        dev.says(" login('ann', ***")
        assert dev.end() == 0
    golden("job-lines.txt", job_lines(dev.text))


@pytest.mark.stores("sqlite")
def test_dev_prints_only_failures_at_a_higher_level(project: Shop) -> None:
    with Running(project, "dev", "-l", "warning") as dev:
        dev.says("the job is dead")
        dev.says("attempt 1 of 2 failed")
        assert dev.end() == 0
    assert job_lines(dev.text) == ""


@pytest.mark.stores("sqlite")
def test_a_worker_prints_the_lines_at_debug_only(project: Shop, golden: Golden) -> None:
    said = work(project, "-l", "debug")
    golden("job-lines.txt", job_lines(said))
    project.app.call("shop.add", 1).enqueue()
    assert job_lines(work(project)) == ""


@pytest.mark.stores("sqlite")
def test_lines_are_cut_to_the_width_of_the_terminal(shop: Shop) -> None:
    (shop.folder / "app.py").write_text(CODE)
    shop.app.call("shop.long", "x" * 500).enqueue()
    code, said = on_terminal(shop, "worker", "--burst", "-l", "debug")
    assert code == 0
    [line] = [line.rstrip() for line in said.splitlines() if "long(" in line]
    plain = re.sub(r"\x1b\[[\d;]*m", "", line)
    assert len(plain) <= 80  # the terminal of the test has no width of its own
    assert re.search(r" done  long\('x+\.\.\. -> \{'text': 'x+\.\.\.  (<1|\d+) ms$", plain)


@pytest.mark.stores("sqlite")
@pytest.mark.option("cli.worker.log_format", "cli.dev.log_format")
def test_a_pipe_gets_text_unless_json_is_asked_for(project: Shop) -> None:
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    \d+ mainspring", work(project))
    for text in (work(project, "--log-format", "json"), work(project, MAINSPRING_LOG_FORMAT="json")):
        assert {json.loads(line)["level"] for line in text.splitlines()} == {"info"}
    with Running(project, "dev", "--log-format", "json") as dev:
        dev.says('"message":"worker ')
        assert dev.end() == 0


@pytest.mark.stores("sqlite")
def test_kubernetes_gets_json_unless_text_is_asked_for(project: Shop) -> None:
    said = work(project, "-l", "debug", KUBERNETES_SERVICE_HOST="10.0.0.1")
    found = [json.loads(line) for line in said.splitlines()]
    [done] = [line for line in found if line["message"].startswith("done  add(2, 3) -> 5  ")]
    assert (done["level"], done["task"], done["attempt"]) == ("debug", "shop.add", 1)
    assert "job_id" in done
    said = work(project, "--log-format", "text", KUBERNETES_SERVICE_HOST="10.0.0.1")
    assert " INFO " in said


@pytest.mark.stores("sqlite")
def test_the_journal_gets_priorities_and_no_times(project: Shop) -> None:
    reading, writing = os.pipe()
    pipe = os.fstat(writing)
    journal = {"JOURNAL_STREAM": f"{pipe.st_dev}:{pipe.st_ino}"}
    process = subprocess.Popen(
        ["python", "-m", "mainspring", "worker", "--burst", "-l", "debug"], cwd=project.folder, stderr=writing,
        env={**os.environ, **journal},
    )  # fmt: skip
    os.close(writing)
    with os.fdopen(reading) as stream:
        lines = stream.read().splitlines()
    assert process.wait(LIMIT) == 0
    assert all(re.match(r"<[34567]>", line) for line in lines), lines
    assert any(re.match(r"<7>done  add\(2, 3\) -> 5  (<1|\d+) ms$", line) for line in lines)
    assert any(line.startswith("<6>mainspring.worker: worker ") for line in lines)
    assert [line for line in lines if line.startswith("<3>dead  fail('no\\nway'): ValueError: no")]
    assert "<3>    Traceback (most recent call last):" in lines
    assert not any("Z INFO" in line for line in lines)


def test_the_line_of_an_error_has_no_hint(project: Shop) -> None:
    """The hint of our own errors is a second line, which would be shown as a backslash and an n."""
    project.app.call("shop.unstorable").enqueue()
    text = job_lines(work(project, "-l", "debug"))
    [line] = [line for line in text.splitlines() if "unstorable" in line]
    assert line.endswith("result is an object, which cannot be stored (not_retryable)  <n> ms")
