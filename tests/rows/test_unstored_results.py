"""A result that cannot be stored makes the job dead; a result that is too large is dropped with a warning."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from mainspring import Cancel, Discard, Event, Mainspring, Retry, Snooze
from mainspring.errors import JobDead, ResultTooLarge
from mainspring.states import Reason, State

LIMIT = 60


@dataclass
class Row:
    when: Any


def rows() -> Any:
    return {"rows": [1, 2, 3, Row(complex(1, 2))]}


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_result_that_cannot_be_stored_makes_the_job_dead_without_a_retry(
    app: Mainspring, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="t", retries=5)
    def in_thread() -> Any:
        return rows()

    @app.task(name="at", retries=5)
    async def on_loop() -> Any:
        return rows()

    job = in_thread.enqueue() if colour == "def" else on_loop.enqueue()
    with app.worker(), pytest.raises(JobDead) as dead:
        job.result(timeout=LIMIT)
    assert dead.value.type_name == "mainspring.errors.ResultNotSerializable"
    assert dead.value.reason == Reason.NOT_RETRYABLE
    info = job.info()
    assert (info.state, info.attempt, len(info.attempts)) == (State.DEAD, 1, 1)
    assert info.error is not None
    assert "result['rows'][3].when is a complex" in info.error.message
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert any("result['rows'][3].when is a complex" in line for line in lines)


def test_a_value_of_a_subclass_of_the_declared_type_is_a_valid_argument_and_result(app: Mainspring) -> None:
    """``bool`` is an ``int``, ``OrderedDict`` is a ``dict``: both are read back as the declared type."""

    @app.task(name="t")
    def in_thread(n: int, rows: dict[str, int]) -> int:
        assert (repr(n), type(rows)) == ("1", dict)
        return True

    @app.task(name="at")
    async def on_loop(n: int, rows: dict[str, int]) -> dict[str, int]:
        assert (repr(n), type(rows)) == ("1", dict)
        return OrderedDict(a=True)

    rows = OrderedDict(a=1)
    with app.worker():
        assert repr(in_thread.enqueue(True, rows).result(timeout=LIMIT)) == "1"
        assert repr(on_loop.enqueue(True, rows).result(timeout=LIMIT)) == "{'a': 1}"
        assert app.call("t", True, rows=rows).enqueue().result(timeout=LIMIT) == 1


@pytest.mark.parametrize("mode", ["store", "ignore"])
@pytest.mark.parametrize("colour", ["def", "async def"])
@pytest.mark.parametrize(
    "value",
    [Retry(after="30s"), Snooze(for_="5m"), Cancel(), Discard("no"), Retry, ValueError("no")],
    ids=lambda value: repr(value).partition("(")[0].partition(" ")[0].strip("<"),
)
def test_an_exception_that_is_returned_is_misuse(app: Mainspring, value: Any, colour: str, mode: Any) -> None:
    """It would have no effect, and the job would have succeeded."""

    @app.task(name="t", retries=5, result=mode)
    def in_thread() -> Any:
        return value

    @app.task(name="at", retries=5, result=mode)
    async def on_loop() -> Any:
        return value

    name = value.__name__ if isinstance(value, type) else type(value).__name__
    job = in_thread.enqueue() if colour == "def" else on_loop.enqueue()
    with app.worker(), pytest.raises(JobDead, match=f"returned a {name}, which has no effect") as dead:
        job.result(timeout=LIMIT)
    assert dead.value.reason == Reason.NOT_RETRYABLE
    info = job.info()
    assert (info.attempt, info.error is not None and info.error.type) == (
        1, "mainspring.errors.ResultNotSerializable",
    )  # fmt: skip


@pytest.mark.parametrize("mode", ["store", "ignore"])
def test_an_ignored_result_may_be_anything_else(app: Mainspring, mode: Any) -> None:
    @app.task(name="t", result=mode)
    def kind() -> Any:
        return int if mode == "ignore" else None

    with app.worker():
        assert kind.enqueue().join(timeout=LIMIT).state is State.SUCCEEDED


def test_a_coroutine_as_result_is_not_retried(app: Mainspring) -> None:
    async def work() -> None: ...

    @app.task(retries=5)
    def forgetful() -> Any:
        return work()

    job = forgetful.enqueue()
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert (info.state, info.reason, info.attempt) == (State.DEAD, Reason.NOT_RETRYABLE, 1)


def test_a_task_that_ignores_its_result_may_return_anything(app: Mainspring) -> None:
    @app.task(result="ignore")
    def anything() -> Any:
        return object()

    job = anything.enqueue()
    with app.worker():
        info = job.join(timeout=LIMIT)
    assert (info.state, info.error, info.warning) == (State.SUCCEEDED, None, None)


def test_a_result_that_is_too_large_is_dropped_with_a_warning(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    """The job has succeeded; the log, the info, the event and the reader of the result say what is missing."""
    events: list[Event] = []
    app.on("succeeded")(events.append)

    @app.task
    def huge() -> str:
        return "x" * 2_000_000

    job = huge.enqueue()
    with app.worker(), pytest.raises(ResultTooLarge) as dropped:
        job.result(timeout=LIMIT)
    assert (dropped.value.size, dropped.value.limit, dropped.value.job) == (2_000_002, 1_000_000, job.id)
    info = job.info()
    assert (info.state, info.error) == (State.SUCCEEDED, None)
    assert info.warning == "the result takes 2,000,002 bytes, the limit is 1,000,000; it was dropped"
    assert [(event.state, event.error, event.warning) for event in events] == [(State.SUCCEEDED, None, info.warning)]
    [line] = [each for each in caplog.records if info.warning in each.getMessage()]
    assert line.levelno == logging.WARNING
    assert vars(line)["job_id"] == str(job.id)


def test_an_outcome_that_cannot_be_stored_fails_only_its_own_item(app: Mainspring) -> None:
    @app.bulk_task(size=3, wait="50ms", retries=5)
    def convert(items: Sequence[int]) -> list[Any]:
        return [complex(item) if item == 2 else "x" * 2_000_000 if item == 3 else item for item in items]

    jobs = [convert.enqueue(number) for number in (1, 2, 3)]
    with app.worker():
        infos = [job.join(timeout=LIMIT) for job in jobs]
    assert [info.state for info in infos] == [State.SUCCEEDED, State.DEAD, State.SUCCEEDED]
    assert (infos[1].reason, infos[1].attempt) == (Reason.NOT_RETRYABLE, 1)
    assert infos[1].error is not None
    assert infos[1].error.type == "mainspring.errors.ResultNotSerializable"
    assert [info.warning is not None for info in infos] == [False, False, True]
    assert jobs[0].result() == 1


def test_the_info_of_a_retrying_job_has_its_last_error(app: Mainspring) -> None:
    failed: list[Event] = []
    app.on("retrying")(failed.append)

    @app.task(retries=3, backoff="1h")
    def broken() -> None:
        raise ValueError("no luck")

    job = broken.enqueue()
    with app.worker():
        for info in job.watch(timeout=LIMIT):
            if info.state is State.RETRYING:
                break
    error = job.info().error
    assert error is not None
    assert (error.type, error.message) == ("ValueError", "no luck")


def test_a_tuple_is_read_back_as_declared_or_as_a_list(app: Mainspring) -> None:
    """JSON has no tuples: only the annotation says that the result is one."""

    @app.task(name="declared")
    def declared() -> tuple[int, str]:
        return 1, "x"

    @app.task(name="inside")
    def inside() -> dict[str, tuple[int, ...]]:
        return {"pair": (1, 2)}

    @app.task(name="undeclared")
    def undeclared():  # type: ignore[no-untyped-def]
        return 1, "x"

    with app.worker():
        results = [each.enqueue().result(timeout=LIMIT) for each in (declared, inside, undeclared)]
    assert results == [(1, "x"), {"pair": (1, 2)}, [1, "x"]]
