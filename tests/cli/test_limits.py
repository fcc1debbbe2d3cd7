"""mainspring limits, and mainspring jobs why."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mainspring import Concurrency, Rate
from tests.cli.conftest import Shop

Golden = Callable[[str, str], None]


def call(who: str) -> None: ...


@pytest.fixture
def limited(shop: Shop) -> Shop:
    shop.app.task(name="shop.call", limit=[Concurrency(2), Rate(1, per="1h", by="who")])(call).enqueue("ann")
    return shop


@pytest.mark.row("R9", "R11")
@pytest.mark.option("cli.limits.set.name", "cli.limits.set.size", "cli.limits.reset.name", "cli.limits.rm.name")
def test_limits_are_listed_set_and_reset(limited: Shop, golden: Golden) -> None:
    golden("limits-ls.txt", limited.run("limits", "ls").out)
    golden("limits-ls.json", limited.run("limits", "ls", "--json").out)
    golden("limits-set.txt", limited.run("limits", "set", "shop.call:at-once", "7").out)
    assert limited.app.limits.get("shop.call:at-once").size == 7
    limited.run("limits", "reset", "shop.call:at-once")
    assert limited.app.limits.get("shop.call:at-once").size == 2
    golden("limits-rm.txt", limited.run("limits", "rm", "shop.call:at-once").out)
    assert [limit.name for limit in limited.app.limits.list()] != ["shop.call:at-once"]


def test_an_unknown_limit_is_refused_with_the_nearest_name(limited: Shop) -> None:
    ran = limited.run("limits", "set", "shop.call:at-onc", "7")
    assert (ran.code, "shop.call:at-once" in ran.err) == (2, True)


@pytest.mark.row("B5")
def test_why_lists_everything_that_delays_a_job(limited: Shop) -> None:
    job = limited.app.call("shop.unknown").options(queue="nowhere", delay="1h").enqueue()
    said = json.loads(limited.run("jobs", "why", str(job.id), "--json").out)
    assert [each["kind"] for each in said["obstacles"]] == ["not_due", "no_worker"]
    assert "no live worker serves queue 'nowhere'" in limited.run("jobs", "why", str(job.id)).out
