"""mainspring enqueue."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.cli.jobs.enqueue import read_arguments
from mainspring.jobs.info import JobInfo
from tests.cli.conftest import Shop

Golden = Callable[[str, str], None]


def made(shop: Shop, *words: str) -> JobInfo:
    """The job that the command made."""
    ran = shop.run("enqueue", *words)
    assert ran.code == 0, ran.err
    info: JobInfo = shop.app.jobs.get(ran.out.strip()).info()
    return info


@pytest.mark.row("U2", "Q1")
@pytest.mark.option("cli.enqueue.task", "cli.enqueue.arguments", "cli.enqueue.as_json")
def test_prints_the_id_of_the_new_job(shop: Shop, golden: Golden) -> None:
    ran = shop.call("enqueue", "shop.add", "1", "b=2")
    assert shop.app.jobs.get(ran.out.strip()).info().args == {"a": 1, "b": 2}
    golden("enqueue.txt", ran.out)
    golden("enqueue.json", shop.run("enqueue", "shop.add", "1", "--json").out)


@pytest.mark.parametrize(
    ("words", "args", "kwargs"),
    [
        (["3", "true", "null", '"3"', "[1, 2]", "hello"], [3, True, None, "3", [1, 2], "hello"], {}),
        (["a=3", "b=x=y", "c="], [], {"a": 3, "b": "x=y", "c": ""}),
        (["2024-01-01", "a b", "a-b=c", "NaN"], ["2024-01-01", "a b", "a-b=c", "NaN"], {}),
    ],
)
def test_values_are_json_or_text(words: list[str], args: list[Any], kwargs: dict[str, Any]) -> None:
    assert read_arguments(words) == (args, kwargs)


@pytest.mark.stores("sqlite")
def test_text_becomes_the_type_that_the_task_declares(shop: Shop) -> None:
    info = made(shop, "shop.greet", "you", "at=2026-01-31T12:00:00Z")
    assert info.args["at"].startswith("2026-01-31T12:00:00")


@pytest.mark.stores("sqlite")
def test_a_number_is_text_where_the_task_declares_text(shop: Shop) -> None:
    """So an order number needs no JSON quotes inside the quotes of the shell."""
    assert made(shop, "shop.greet", "42").args["name"] == "42"
    assert made(shop, "shop.greet", "name=42").args["name"] == "42"


@pytest.mark.stores("sqlite")
def test_a_task_can_be_named_by_the_last_part_of_its_name(shop: Shop) -> None:
    assert made(shop, "add", "1").task == "shop.add"


@pytest.mark.option("cli.enqueue.unknown")
@pytest.mark.stores("sqlite")
def test_an_unknown_task_is_refused_with_a_suggestion(shop: Shop) -> None:
    refused = shop.run("enqueue", "shop.ad", "1")
    assert refused.code == 2
    assert "did you mean 'shop.add'?" in refused.err
    assert made(shop, "elsewhere.work", "1", "--unknown").args == {"@": [1]}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["shop.add", "x"], "shop.add(a=...)"),
        (["shop.add"], "'a' missing"),
        (["shop.add", "1", "c=2"], "no argument 'c'"),
        (["shop.add", "a=1", "a=2"], "given twice"),
        (["shop.add", "1", "--meta", "x"], "is not NAME=VALUE"),
        (["shop.add", "1", "--run-at", "soon"], "is not a time"),
        (["shop.add", "1", "--priority", "urgent"], "priority='urgent'"),
        (["shop.add", "1", "--wait-timeout", "1s"], "needs --wait"),
    ],
)
@pytest.mark.stores("sqlite")
def test_bad_input_is_refused_and_nothing_is_enqueued(shop: Shop, words: list[str], says: str) -> None:
    ran = shop.run("enqueue", *words)
    assert (ran.code, says in ran.err) == (2, True), ran.err
    assert shop.app.jobs.count().total == 0


@pytest.mark.option("cli.enqueue.queue", "cli.enqueue.priority", "cli.enqueue.delay", "cli.enqueue.expires")
@pytest.mark.option("cli.enqueue.tags", "cli.enqueue.meta", "cli.enqueue.retries", "cli.enqueue.timeout")
def test_options_of_the_job_are_flags(shop: Shop) -> None:
    now = datetime.now(UTC)
    info = made(
        shop, "shop.add", "1", "--queue", "other", "--priority", "high", "--delay", "1h", "--expires", "2h", "--tag",
        "a", "--tag", "b", "--meta", "n=1", "--meta", "s=x", "--retries", "9", "--timeout", "5m",
    )  # fmt: skip
    assert (info.queue, info.priority, info.state) == ("other", 50, "scheduled")
    assert info.due is not None
    assert info.due > now + timedelta(minutes=59)
    assert info.expires is not None
    assert (info.tags, info.meta) == (("a", "b"), {"n": 1, "s": "x"})
    assert (info.options["retries"], info.options["timeout"]) == (9, "5m")
    assert made(shop, "shop.add", "1", "--priority", "7").priority == 7


@pytest.mark.option("cli.enqueue.run_at")
def test_run_at_is_a_moment_in_utc(shop: Shop) -> None:
    assert made(shop, "shop.add", "1", "--run-at", "2100-01-31T12:00").due == datetime(2100, 1, 31, 12, tzinfo=UTC)


@pytest.mark.row("Q2")
@pytest.mark.option("cli.enqueue.key")
def test_a_key_makes_one_job(shop: Shop) -> None:
    first, second = (shop.run("enqueue", "shop.add", "1", "--key", "k") for _ in range(2))
    assert first.out == second.out
    assert (first.err, "already holds this key" in second.err) == ("", True)
    assert shop.app.jobs.count().total == 1


@pytest.mark.row("U2", "Q12")
@pytest.mark.option("cli.enqueue.wait")
def test_wait_prints_the_result(shop: Shop, golden: Golden) -> None:
    with shop.app.worker():
        ran = shop.call("enqueue", "shop.greet", "you", "--wait")
        document = shop.call("enqueue", "shop.add", "1", "--wait", "--json")
    assert (ran.code, ran.out) == (0, '"hello you"\n')
    golden("enqueue-wait.json", document.out)


def test_wait_ends_with_1_unless_the_job_succeeds(shop: Shop) -> None:
    with shop.app.worker():
        ran = shop.call("enqueue", "shop.fail", "no", "--wait")
    assert (ran.code, ran.out, "ValueError" in ran.err) == (1, "", True)


@pytest.mark.option("cli.enqueue.wait_timeout")
def test_wait_ends_at_its_timeout(shop: Shop) -> None:
    ran = shop.run("enqueue", "shop.add", "1", "--wait", "--wait-timeout", "100ms", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["state"] == "ready"
