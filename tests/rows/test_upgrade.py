"""B20: jobs that were enqueued with an older signature run under the new code."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.states import Reason, State

LIMIT = 60


def old_app(app: Mainspring) -> Mainspring:
    """The app as it was before the deploy, on the same store."""
    old = Mainspring(app.settings.url)

    @old.task(name="send")
    def send(address: str, copies: int = 1) -> str:
        return f"{copies} x {address}"

    return old


@pytest.mark.row("B20")
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_upgrade_converts_the_old_arguments(app: Mainspring, colour: str) -> None:
    """It is called only for arguments that do not fit."""
    old = old_app(app)
    before = old.call("send", address="ann@example.org", copies=2).enqueue()
    asked: list[dict[str, Any]] = []

    if colour == "def":

        @app.task(name="send")
        def send(to: list[str], times: int) -> str:
            return f"{times} x {', '.join(to)}"

        task: Any = send
    else:

        @app.task(name="send")
        async def asend(to: list[str], times: int) -> str:
            return f"{times} x {', '.join(to)}"

        task = asend

    @task.upgrade
    def from_v1(given: dict[str, Any]) -> dict[str, Any]:
        asked.append(dict(given))
        return {"to": [given["address"]], "times": given["copies"]}

    after = task.enqueue(["bob@example.org"], 3)
    with app.worker():
        assert before.result(timeout=LIMIT) == "2 x ann@example.org"
        assert after.result(timeout=LIMIT) == "3 x bob@example.org"
    assert asked == [{"address": "ann@example.org", "copies": 2}]
    old.close()


@pytest.mark.row("B20")
def test_upgrade_converts_a_bool_where_a_number_is_declared_now(app: Mainspring) -> None:
    """Without an upgrade function the value is a valid number."""
    with Mainspring(app.settings.url) as old:
        for name in ("send", "log"):
            old.task(name=name)(_old)
        before = [old.call("send", urgent=True).enqueue(), old.call("send", urgent=False).enqueue()]
        plain = old.call("log", urgent=True).enqueue()

    @app.task(name="send")
    def send(urgent: int) -> int:
        return urgent

    @app.task(name="log")
    def log(urgent: int) -> int:
        return urgent

    @send.upgrade
    def from_v1(given: dict[str, Any]) -> dict[str, Any]:
        return {"urgent": 10 if given["urgent"] else -10}

    with app.worker():
        assert [job.result(timeout=LIMIT) for job in before] == [10, -10]
        assert plain.result(timeout=LIMIT) == 1


def _old(urgent: bool) -> int:
    """The task before the deploy."""
    return int(urgent)


@pytest.mark.row("B20")
@pytest.mark.parametrize(
    ("returns", "said"),
    [
        (ValueError("cannot"), "the task's upgrade function raised ValueError: cannot"),
        (["a"], "the task's upgrade function returned list"),
        ({"to": object()}, "cannot be stored"),
        ({"wrong": 1}, "wrong"),
    ],
    ids=["raises", "returns no dict", "returns what JSON cannot hold", "returns what does not fit"],
)
def test_a_job_whose_upgrade_fails_is_dead_with_the_reason(app: Mainspring, returns: Any, said: str) -> None:
    old = old_app(app)
    job = old.call("send", address="ann@example.org").enqueue()
    old.close()

    @app.task(name="send", retries=3)
    def send(to: str) -> str:
        return to

    @send.upgrade
    def upgrade(given: dict[str, Any]) -> dict[str, Any]:
        if isinstance(returns, Exception):
            raise returns
        wrong: dict[str, Any] = returns
        return wrong

    with app.worker():
        info = job.join(timeout=LIMIT)
    assert (info.state, info.reason) == (State.DEAD, Reason.UNDECODABLE)
    assert info.error is not None
    assert said in info.error.message


@pytest.mark.row("B20")
def test_without_an_upgrade_the_job_is_dead_and_a_retry_after_the_fix_runs_it(app: Mainspring) -> None:
    old = old_app(app)
    job = old.call("send", address="ann@example.org").enqueue()
    old.close()

    @app.task(name="send")
    def send(to: str) -> str:
        return to

    with app.worker():
        assert job.join(timeout=LIMIT).reason is Reason.UNDECODABLE

    @send.upgrade
    def upgrade(given: dict[str, Any]) -> dict[str, Any]:
        return {"to": given["address"]}

    with app.worker():
        job.retry()
        assert job.result(timeout=LIMIT) == "ann@example.org"
