"""Tasks with ``executor="process"``: they run in children of the worker, and behave as in threads."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption, JobCancelled, ResultNotSerializable, TaskNotImportable
from mainspring.worker.eligibility import served_pools
from tests.rows.crew import ROOT, until
from tests.timing import patience, short_settings

LONG = 240.0
"""Seconds: a child imports the app before its first job, and a busy machine takes its time for that."""


@pytest.fixture
def heavy(store_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module ``heavy``, imported anew: its app uses the store under test."""
    monkeypatch.setenv("MAINSPRING_URL", store_url)
    monkeypatch.setenv("HEAVY_FOLDER", str(tmp_path))
    sys.modules.pop("tests.rows.heavy", None)
    module = importlib.import_module("tests.rows.heavy")
    yield module
    module.app.close()


@pytest.fixture
def work(heavy: Any) -> Callable[..., Any]:
    """Start an embedded worker with process slots."""
    return lambda **options: heavy.app.worker(**{**short_settings(), "process_slots": 1, **options})


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().split("\n")[:-1] if path.exists() else []


def children() -> set[int]:
    """The live and the dead children of this process that are pool children."""
    return {each.pid for each in psutil.Process().children() if is_pool_child(each)}


def is_pool_child(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE or any("pool_child" in part for part in process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.row("W13")
@pytest.mark.option("task.executor", "worker.process_slots")
def test_a_body_runs_in_a_child_with_everything_that_a_thread_has(heavy: Any, work: Any, tmp_path: Path) -> None:
    with work():
        job = heavy.report.enqueue("hello")
        found = job.result(timeout=LONG)
        assert found["pid"] != os.getpid()
        assert found["state"] == found["pid"], "the lifespan runs in the child"
        assert found["source"] == f"from {found['pid']}"
        assert (found["attempt"], found["job"], found["current"], found["word"]) == (1, str(job.id), True, "hello")
        assert [entry.text for entry in job.logs()] == ["the word is hello size=5"]
        assert list(job.stream()) == [0, 1, 2]
        assert job.info().progress == {"done": 1, "total": 2, "note": "half", "meta": {"word": "hello"}}
        assert lines(tmp_path, "closed") == [str(found["pid"])], "the dependency was closed in the child"
    assert str(found["pid"]) in lines(tmp_path, "ended"), "the lifespan was cleaned up"
    assert not children()


def test_failures_retries_and_signals_are_those_of_a_thread(heavy: Any, work: Any) -> None:
    with work():
        assert heavy.fail_once.enqueue().result(timeout=LONG) == 2
        assert heavy.snooze_once.enqueue().result(timeout=LONG) == 1
        info = heavy.unstorable.enqueue().join(timeout=LONG)
        assert (info.state, info.reason) == ("dead", "not_retryable")
        assert info.error.type.endswith(ResultNotSerializable.__name__)


def test_arguments_and_results_may_be_large(heavy: Any, work: Any) -> None:
    text = "x" * 400_000
    with work():
        assert heavy.echo.enqueue(text).result(timeout=LONG) == text


@pytest.mark.row("R5")
def test_time_limits_end_the_body_and_touch_no_other(heavy: Any, work: Any, tmp_path: Path) -> None:
    """The soft limit raises; the hard one ends a sleep, and kills the child of a body that holds the GIL."""
    with work(process_slots=2):
        assert heavy.soft.enqueue().result(timeout=LONG) == "SoftTimeout"
        neighbour = heavy.gated.enqueue("go")
        until(lambda: lines(tmp_path, "gated"))
        for job in (heavy.sleep.enqueue(60), heavy.hold_gil.enqueue()):
            info = job.join(timeout=LONG)
            assert (info.state, info.reason) == ("dead", "timed_out")
            assert info.error.type.endswith("HardTimeout")
        (tmp_path / "go").touch()
        assert neighbour.result(timeout=LONG) == int(lines(tmp_path, "gated")[0])
        assert len(lines(tmp_path, "gated")) == 1, "it ran once"


@pytest.mark.row("W10")
def test_a_cancel_order_ends_a_body_that_sleeps(heavy: Any, work: Any, tmp_path: Path) -> None:
    with work():
        job = heavy.wait_forever.enqueue()
        (pid,) = until(lambda: lines(tmp_path, "waiting"))
        job.cancel("enough")
        assert job.join(timeout=LONG).state == "cancelled"
        with pytest.raises(JobCancelled):
            job.result(timeout=0)
        assert heavy.pid.enqueue().result(timeout=LONG) == int(pid), "the child goes on"


@pytest.mark.row("P6")
@pytest.mark.parametrize(
    ("how", "text"),
    [("exit", "ended with exit code 7"), ("segfault", "SIGSEGV"), ("kill", "SIGKILL"), ("abort", "SIGABRT")],
)
def test_a_crash_is_charged_to_the_job_that_ran(heavy: Any, work: Any, tmp_path: Path, how: str, text: str) -> None:
    """The job is dead after ``crashes``, with the reason; jobs that waited in the child are not charged."""
    with work():
        pid = heavy.pid.enqueue().result(timeout=LONG)
        guilty, *others = heavy.app.enqueue_many([heavy.die.s(how), *[heavy.add.s(n, 1) for n in range(20)]])
        info = guilty.join(timeout=LONG)
        assert (info.state, info.reason) == ("dead", "crashed")
        assert text in info.error.message
        assert info.error.type.endswith("ChildDied")
        assert len(lines(tmp_path, "died")) == 2
        assert [job.result(timeout=LONG) for job in others] == [n + 1 for n in range(20)]
        assert {job.info().crashes for job in others} == {0}
        assert heavy.pid.enqueue().result(timeout=LONG) != pid
    assert Counter(lines(tmp_path, "added")) == Counter(map(str, range(20))), "each ran once"


def test_jobs_that_kill_their_children_do_not_make_the_pool_fail(heavy: Any, work: Any) -> None:
    """Each child dies in its first job, more often in a row than a pool restarts children that do nothing."""
    with work():
        jobs = heavy.app.enqueue_many([heavy.die.s("kill") for _ in range(5)])
        assert {job.join(timeout=LONG).reason for job in jobs} == {"crashed"}
        assert heavy.pid.enqueue().result(timeout=LONG)


def test_sys_exit_ends_the_attempt_and_not_the_child(heavy: Any, work: Any) -> None:
    with work():
        pid = heavy.pid.enqueue().result(timeout=LONG)
        assert heavy.die.enqueue("sys.exit").join(timeout=LONG).reason == "failed"
        assert heavy.pid.enqueue().result(timeout=LONG) == pid


@pytest.mark.row("P6")
def test_a_stopped_child_is_killed_and_its_job_runs_again(heavy: Any, work: Any, tmp_path: Path) -> None:
    with work():
        job = heavy.gated.enqueue("go")
        (pid,) = until(lambda: lines(tmp_path, "gated"))
        os.kill(int(pid), signal.SIGSTOP)
        until(lambda: len(lines(tmp_path, "gated")) == 2, "the job started again")
        (tmp_path / "go").touch()
        assert job.result(timeout=LONG) != int(pid)


@pytest.mark.row("W14")
@pytest.mark.option("task.pool", "pool.max", "pool.max_jobs_per_child")
def test_a_child_is_replaced_after_a_number_of_jobs(heavy: Any, work: Any, tmp_path: Path) -> None:
    with work():
        jobs = heavy.app.enqueue_many([heavy.counted.s(n) for n in range(9)])
        pids = [job.result(timeout=LONG) for job in jobs]
    assert sorted(Counter(pids).values()) == [3, 3, 3]
    assert Counter(lines(tmp_path, "counted")) == Counter(map(str, range(9)))
    assert not children()


@pytest.mark.row("W14")
@pytest.mark.option("pool.max_memory_per_child")
def test_a_child_is_replaced_when_it_has_grown(heavy: Any, work: Any) -> None:
    with work():
        first = heavy.grow_small.enqueue(1_000).result(timeout=LONG)
        assert heavy.grow_small.enqueue(300_000_000).result(timeout=LONG) == first
        assert heavy.grow_small.enqueue(1_000).result(timeout=LONG) != first


@pytest.mark.option("pool.max_age")
def test_a_child_is_replaced_when_it_is_old(heavy: Any, work: Any) -> None:
    with work():
        pids = [heavy.aged.enqueue().result(timeout=LONG) for _ in range(3)]
    assert len(set(pids)) == 3


@pytest.mark.row("P7")
def test_a_drain_waits_for_the_body_and_ends_the_children(heavy: Any, work: Any, tmp_path: Path) -> None:
    worker = work(drain="60s")
    with worker:
        job = heavy.gated.enqueue("go")
        until(lambda: lines(tmp_path, "gated"))
        (tmp_path / "go").touch()
    assert worker.exit_code == 0
    assert job.info().state == "succeeded"
    assert not children()


@pytest.mark.row("P7")
def test_a_body_that_outlasts_the_drain_is_handed_back_without_blame(heavy: Any, work: Any, tmp_path: Path) -> None:
    worker = work(drain="100ms")
    with worker:
        job = heavy.wait_forever.enqueue()
        until(lambda: lines(tmp_path, "waiting"))
    assert worker.exit_code == 3
    info = job.info()
    assert (info.state, info.crashes, [each.outcome for each in info.attempts]) == ("ready", 0, ["interrupted"])
    assert not children()


def test_a_body_that_waits_for_another_job_lends_its_slot(heavy: Any, work: Any) -> None:
    with work():
        assert heavy.parent.enqueue().result(timeout=LONG) == 6


def test_a_long_body_does_not_hold_up_the_short_jobs_behind_it(heavy: Any, work: Any, tmp_path: Path) -> None:
    """While bodies are short, several jobs wait in each child; they go elsewhere when one of them takes long."""
    with work(process_slots=2):
        jobs = heavy.app.enqueue_many([heavy.add.s(n, 0) for n in range(200)])
        assert [job.result(timeout=LONG) for job in jobs] == list(range(200))
        late = heavy.gated.enqueue("go")
        more = heavy.app.enqueue_many([heavy.add.s(n, 0) for n in range(200, 400)])
        assert [job.result(timeout=LONG) for job in more] == list(range(200, 400))
        (tmp_path / "go").touch()
        late.result(timeout=LONG)
    assert Counter(lines(tmp_path, "added")) == Counter(map(str, range(400))), "each ran once"


def test_a_job_that_waits_behind_a_long_body_gets_a_child_of_its_own(heavy: Any, work: Any, tmp_path: Path) -> None:
    """Also after many short jobs, when several jobs may wait in a child."""
    with work(process_slots=2):
        for n in range(20):
            heavy.add.enqueue(n, 0).result(timeout=LONG)
        late = heavy.gated.enqueue("go")
        until(lambda: lines(tmp_path, "gated"))
        assert heavy.add.enqueue(100, 1).result(timeout=LONG) == 101
        (tmp_path / "go").touch()
        late.result(timeout=LONG)


def test_a_cancel_of_a_job_that_waits_in_a_child_does_not_end_the_body_there(
    heavy: Any, work: Any, tmp_path: Path
) -> None:
    with work(process_slots=1):
        for n in range(20):
            heavy.add.enqueue(n, 0).result(timeout=LONG)
        long, *behind = heavy.app.enqueue_many([heavy.gated.s("go"), *[heavy.add.s(n, 0) for n in range(100, 110)]])
        until(lambda: lines(tmp_path, "gated"))
        behind[0].cancel()
        assert behind[0].join(timeout=LONG).state == "cancelled"
        (tmp_path / "go").touch()
        long.result(timeout=LONG)
        assert [job.result(timeout=LONG) for job in behind[1:]] == list(range(101, 110))
    assert len(lines(tmp_path, "gated")) == 1
    assert "100" not in lines(tmp_path, "added")


@pytest.mark.option("worker.concurrency")
def test_concurrency_counts_the_jobs_of_processes(heavy: Any, work: Any, tmp_path: Path) -> None:
    with work(process_slots=2, concurrency=1):
        first, second = heavy.app.enqueue_many([heavy.gated.s("go"), heavy.gated.s("go")])
        until(lambda: lines(tmp_path, "gated"))
        until(lambda: second.why().obstacles, "the second job is held back")
        assert len(lines(tmp_path, "gated")) == 1
        (tmp_path / "go").touch()
        assert first.result(timeout=LONG)
        assert second.result(timeout=LONG)


def test_a_worker_with_process_slots_alone_runs_jobs_enqueued_by_name(heavy: Any, work: Any, store_url: str) -> None:
    stranger = Mainspring(store_url)
    with work(async_slots=0, thread_slots=0):
        assert stranger.call("tests.rows.heavy.add", 1, 2).enqueue().result(timeout=LONG) == 3
    stranger.close()


def test_a_body_can_end_the_processes_that_it_has_forked(heavy: Any, work: Any) -> None:
    with work():
        assert heavy.terminate_a_fork.enqueue().result(timeout=LONG) == -signal.SIGTERM


def test_hooks_hear_of_the_start_of_a_body(heavy: Any, work: Any, tmp_path: Path) -> None:
    """Of a long body while it runs."""
    heard: list[str] = []

    @heavy.app.on("started", "succeeded", task="tests.rows.heavy.gated")
    def hear(event: Any) -> None:
        heard.append(event.name)

    with work():
        job = heavy.gated.enqueue("go")
        until(lambda: heard == ["started"], "the hook hears of the start")
        (tmp_path / "go").touch()
        job.result(timeout=LONG)
        until(lambda: heard == ["started", "succeeded"], "and of the end")


def test_the_default_pool_is_as_large_as_process_slots(store_url: str) -> None:
    app = Mainspring(store_url)
    app.pool(name="default", max_jobs_per_child=5)

    @app.task(executor="process")
    def some() -> None: ...

    (pool,) = served_pools(app.parts(process_slots=7)).values()
    assert (pool.max, pool.max_jobs_per_child) == (7, 5)


@pytest.mark.row("P6")
def test_children_end_with_a_worker_that_is_killed(heavy: Any, store_url: str, tmp_path: Path) -> None:
    """SIGKILL of the worker: the kernel ends its children, and another worker runs the job again."""
    arguments = [f"--{name}={value}" for name, value in short_settings().items()]
    command = [sys.executable, "-m", "mainspring", "worker", "tests.rows.heavy:app", "--process-slots=1", *arguments]
    supervisor = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        job = heavy.gated.enqueue("go")
        (first,) = until(lambda: lines(tmp_path, "gated"), "the job has started")
        child = psutil.Process(int(first))
        worker = child.parent()
        assert worker is not None
        worker.kill()
        until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "the child ends")
        until(lambda: len(lines(tmp_path, "gated")) == 2, "the job runs again")
        (tmp_path / "go").touch()
        assert job.result(timeout=LONG) == int(lines(tmp_path, "gated")[1])
    finally:
        supervisor.send_signal(signal.SIGTERM)
        assert supervisor.wait(patience(60)) == 0


def test_other_tasks_of_the_worker_run_in_the_worker(heavy: Any, work: Any) -> None:
    with work():
        assert heavy.beside.enqueue().result(timeout=LONG) == os.getpid()


def test_a_job_enqueued_by_name_finds_its_child(heavy: Any, work: Any, store_url: str) -> None:
    stranger = Mainspring(store_url)
    with work():
        assert stranger.call("tests.rows.heavy.add", 1, 2).enqueue().result(timeout=LONG) == 3
    stranger.close()


def test_a_test_runs_such_tasks_in_threads(heavy: Any) -> None:
    with heavy.app.test() as t:
        job = heavy.report.enqueue("inside")
        counted = heavy.counted.enqueue(1)
        t.drain()
        assert job.result(timeout=0)["pid"] == counted.result(timeout=0) == os.getpid()


# ---- refused --------------------------------------------------------------------------------------


def test_what_cannot_run_in_a_process_is_refused(store_url: str) -> None:
    app = Mainspring(store_url)

    with pytest.raises(InvalidOption, match="does not fit a coroutine function"):

        @app.task(executor="process")
        async def awaited() -> None: ...

    with pytest.raises(InvalidOption, match="is not supported for bulk tasks"):

        @app.bulk_task(executor="process")
        def bulk(items: list[int]) -> list[int]:
            return items

    with pytest.raises(InvalidOption, match="needs executor='process'"):

        @app.task(pool="gpu")
        def in_thread() -> None: ...


@pytest.mark.option("pool.min")
def test_pools_are_declared_once_and_by_their_names(store_url: str) -> None:
    app = Mainspring(store_url)
    gpu = app.pool(name="gpu", max=2)
    assert app.pool(name="gpu", max=2) == gpu
    with pytest.raises(InvalidOption, match="declared twice"):
        app.pool(name="gpu", max=3)
    with pytest.raises(InvalidOption, match="is more than max=1"):
        app.pool(name="other", min=2)

    @app.task(executor="process", pool="gqu")
    def misspelt() -> None: ...

    with pytest.raises(InvalidOption, match=r"pool='gqu': is not declared; did you mean 'gpu'"):
        app.worker()


def test_an_app_that_no_process_can_import_is_refused(store_url: str) -> None:
    app = Mainspring(store_url)

    @app.task(executor="process")
    def lost() -> None: ...

    with pytest.raises(TaskNotImportable, match="no module contains this app"), app.worker():
        pass


def test_a_child_that_cannot_start_is_explained_and_the_pool_fails(
    heavy: Any, work: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The import error is logged once, and the jobs stay ready for another worker."""
    monkeypatch.setenv("HEAVY_BREAKS", "1")
    monkeypatch.setattr("mainspring.pools.restart.FIRST_PAUSE", 0.01)
    with work():
        job = heavy.pid.enqueue()
        until(lambda: any("has failed" in record.getMessage() for record in caplog.records), "the pool fails")
    said = [record.getMessage() for record in caplog.records if "cannot be imported twice" in record.getMessage()]
    assert len(said) == 1
    assert job.info().state == "ready"
