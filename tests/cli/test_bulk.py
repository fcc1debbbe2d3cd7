"""Bulk tasks on the command line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cli.conftest import Shop

pytestmark = pytest.mark.stores("sqlite")


@pytest.fixture
def mails(shop: Shop) -> Any:
    @shop.app.bulk_task(name="shop.mails", size=20, by="tenant")
    def mails(items: list[dict[str, str]]) -> list[Any]:
        return [ValueError("nobody") if "to" not in item else f"sent to {item['to']}" for item in items]

    return mails


def test_run_local_calls_a_bulk_task_with_the_one_item_of_the_job(shop: Shop, mails: Any) -> None:
    good, bad = mails.enqueue({"tenant": "a", "to": "you"}), mails.enqueue({"tenant": "a"})
    assert shop.run("jobs", "run", str(good.id), "--local").out == '"sent to you"\n'
    ran = shop.run("jobs", "run", str(bad.id), "--local", "--json")
    assert (ran.code, json.loads(ran.out)["error"]) == (1, "ValueError: nobody")


def test_enqueue_of_a_bulk_task_takes_one_item(shop: Shop, mails: Any) -> None:
    assert shop.run("enqueue", "shop.mails", '{"tenant": "a", "to": "you"}').code == 0
    [info] = shop.app.jobs.list().jobs
    assert info.args == {"item": {"tenant": "a", "to": "you"}}
    assert mails.name == info.task


def test_explain_shows_how_jobs_share_calls(shop: Shop, mails: Any) -> None:
    told = json.loads(shop.run("explain", mails.name, "--json").out)["options"]
    assert (told["size"], told["by"]["value"]) == ({"value": "20", "origin": "@task"}, "tenant")
    assert told["wait"] == {"value": "50ms", "origin": "default"}
    assert "size" not in json.loads(shop.run("explain", "shop.add", "--json").out)["options"]
