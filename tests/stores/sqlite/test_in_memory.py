"""``sqlite://``: a store in memory serves everything inside one process, and is refused where two would need it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import InMemoryStore
from mainspring.jobs.query import Query
from mainspring.states import State
from mainspring.stores.sqlite.store import SqliteStore
from tests.rows.project import Project

LIMIT = 60


@pytest.fixture
def app() -> Iterator[Mainspring]:
    app = Mainspring("sqlite://", poll="200ms", sweep="500ms")
    yield app
    app.close()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path, "sqlite://")
    project.write("""
        from mainspring import Mainspring

        app = Mainspring("sqlite://")

        @app.task
        def add(a: int, b: int) -> int:
            return a + b

        if __name__ == "__main__":
            raise SystemExit(app.run(until_empty=True))
    """)
    return project


# ---- one process -------------------------------------------------------------------------------------


def test_embedded_worker_runs_jobs_of_the_app(app: Mainspring) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with app.worker():
        assert add.enqueue(2, 3).result(timeout=LIMIT) == 5


def test_embedded_worker_runs_jobs_enqueued_before_it_started(app: Mainspring) -> None:
    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    job = add.enqueue(2, 3)
    with app.worker(until_empty=True):
        assert job.result(timeout=LIMIT) == 5
    assert job.info().state is State.SUCCEEDED


def test_jobs_are_still_there_after_a_worker_that_was_used_first(app: Mainspring) -> None:
    """The worker is the first user of the store, and its end does not delete the store."""

    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    @app.task(name="again")
    def again() -> str:
        return str(add.enqueue(1, 1).id)

    with app.worker():
        inner = again.enqueue().result(timeout=LIMIT)
        assert app.jobs.get(inner).result(timeout=LIMIT) == 2
    assert app.jobs.get(inner).info().state is State.SUCCEEDED


async def test_enqueue_from_several_threads_and_event_loops(app: Mainspring) -> None:
    @app.task(name="double")
    def double(n: int) -> int:
        return 2 * n

    found: list[int] = []

    def from_a_thread(n: int) -> None:
        found.append(double.enqueue(n).result(timeout=LIMIT))

    def from_a_loop(n: int) -> None:
        async def go() -> int:
            return await (await double.aenqueue(n)).aresult(timeout=LIMIT)

        found.append(asyncio.run(go()))

    async with app.worker():
        threads = [threading.Thread(target=from_a_thread, args=(n,)) for n in range(4)]
        threads += [threading.Thread(target=from_a_loop, args=(n,)) for n in range(4, 8)]
        for thread in threads:
            thread.start()
        mine = await (await double.aenqueue(8)).aresult(timeout=LIMIT)
        for thread in threads:
            await asyncio.to_thread(thread.join)
    assert sorted([*found, mine]) == [2 * n for n in range(9)]


def test_two_apps_in_memory_are_two_stores(app: Mainspring) -> None:
    other = Mainspring("sqlite://")

    @other.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    add.enqueue(1, 2)
    assert sum(app.jobs.count().values()) == 0
    assert sum(other.jobs.count().values()) == 1
    other.close()


def test_test_mode_of_an_app_in_memory(app: Mainspring) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with app.test() as t:
        job = add.enqueue(2, 3)
        t.drain()
        assert job.result() == 5


def test_a_body_that_holds_the_gil_keeps_its_job(app: Mainspring, hold_gil: Any) -> None:
    """No other process can take the jobs, so the lease does not need a heartbeat process."""

    @app.task(name="hold")
    def hold(seconds: float) -> str:
        hold_gil(seconds)
        return "held"

    with app.worker(lease="1s"):
        job = hold.enqueue(3.0)
        assert job.result(timeout=LIMIT) == "held"
        assert job.info().attempts == ()


@pytest.fixture
def hold_gil() -> Any:
    import ctypes

    libc = ctypes.PyDLL(None)  # PyDLL keeps the GIL during a call
    return lambda seconds: libc.usleep(int(seconds * 1e6))


def test_an_embedded_worker_starts_no_process(app: Mainspring) -> None:
    with app.worker():
        found = [
            line
            for task in Path("/proc/self/task").iterdir()
            for line in (task / "children").read_text().split()
            if "heartbeat_process" in Path(f"/proc/{line}/cmdline").read_text()
        ]
    assert found == []


# ---- more than one process ---------------------------------------------------------------------------


def test_app_run_is_refused(app: Mainspring) -> None:
    with pytest.raises(InMemoryStore, match=r"app\.run\(\) .* a store in memory"):
        app.run()


@pytest.mark.parametrize(
    "command",
    [["worker", "shop:app"], ["status", "-A", "shop:app"], ["enqueue", "-A", "shop:app", "shop.add", "1", "2"]],
    ids=lambda command: command[0],
)
def test_commands_are_refused_with_one_sentence(project: Project, command: list[str]) -> None:
    ran = project.run("-m", "mainspring", *command)
    assert ran.returncode == (1 if command[0] == "worker" else 2)
    assert "a store in memory" in ran.stderr
    assert "sqlite:///" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_dev_is_refused_with_one_sentence(project: Project) -> None:
    program = subprocess.Popen(
        [sys.executable, "-m", "mainspring", "dev", "shop:app"],
        cwd=project.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert program.stderr is not None
    seen = ""
    for line in program.stderr:
        seen += line
        if "Use a file" in line:
            break
    program.terminate()
    program.communicate(timeout=LIMIT)
    assert "a store in memory" in seen
    assert "sqlite:///" in seen


def test_a_script_with_app_run_is_refused(project: Project) -> None:
    ran = project.run("shop.py")
    assert ran.returncode == 1
    assert "InMemoryStore: app.run()" in ran.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_cannot_use_the_store_of_its_parent(project: Project) -> None:
    said = project.python("""
        import os
        from shop import add
        from mainspring.errors import InMemoryStore
        add.enqueue(1, 2)
        if os.fork() == 0:
            try:
                add.enqueue(1, 2)
                print("enqueued", flush=True)
            except InMemoryStore as error:
                print(error, flush=True)
            os._exit(0)
        os.wait()
    """)
    assert "belongs to the process that opened it" in said


# ---- the end -----------------------------------------------------------------------------------------


def test_close_warns_of_unfinished_jobs(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with app.worker():
        add.enqueue(1, 2).result(timeout=LIMIT)
    add.enqueue(3, 4)
    add.options(delay="1h").enqueue(3, 4)
    with caplog.at_level(logging.WARNING, "mainspring"):
        app.close()
        app.close()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert said[0].startswith("2 unfinished jobs are lost")


def test_close_with_a_running_worker_keeps_the_jobs(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a + b

    with caplog.at_level(logging.WARNING, "mainspring"), app.worker():
        job = add.options(delay="1s").enqueue(1, 2)
        app.close()
        assert job.result(timeout=LIMIT) == 3
    assert caplog.records == []


def test_an_app_that_is_not_used_any_more_warns(caplog: pytest.LogCaptureFixture) -> None:
    def forget() -> None:
        app = Mainspring("sqlite://")
        app.task(name="add")(lambda: None).enqueue()

    with caplog.at_level(logging.WARNING, "mainspring"):
        forget()
        gc.collect()
    assert [record.getMessage()[:25] for record in caplog.records] == ["1 unfinished job is lost "]


def test_the_end_of_the_process_warns_of_unfinished_jobs(project: Project) -> None:
    code = textwrap.dedent("""
        from shop import add
        for _ in range(3):
            add.enqueue(1, 2)
    """)
    ran = project.run("-c", code)
    assert ran.returncode == 0
    assert ran.stderr.count("3 unfinished jobs are lost") == 1
    assert len(ran.stderr.splitlines()) == 1


def test_the_end_of_the_process_is_silent_when_all_jobs_ended(project: Project) -> None:
    code = textwrap.dedent("""
        from shop import add, app
        with app.worker():
            print(add.enqueue(1, 2).result(timeout=60))
    """)
    ran = project.run("-c", code)
    assert (ran.stdout, ran.returncode) == ("3\n", 0)
    assert "unfinished" not in ran.stderr


async def test_a_store_that_is_closed_twice_leaves_the_other_stores_alone() -> None:
    first, second = (SqliteStore(":memory:", shared="twice") for _ in range(2))
    await first.open()
    await second.open()
    await first.close()
    await first.close()
    assert not any((await second.count(Query())).values())
    await second.close()
