"""mainspring dead: the dead letters."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable

import pytest

from tests.cli import worlds
from tests.cli.conftest import Shop
from tests.cli.test_acting import acted

Golden = Callable[[str, str], None]

NAMES = ["queue", "task", "tag", "reason", "error", "since", "until", "parent"]


@pytest.mark.row("U2", "R7")
def test_ls_and_stats_and_show(shop: Shop, golden: Golden) -> None:
    pair = worlds.dead(shop)
    shop.task("add").enqueue(1)
    golden("dead-ls.txt", shop.call("dead", "ls").out)
    golden("dead-ls.json", shop.run("dead", "ls", "--json").out)
    golden("dead-stats.txt", shop.run("dead", "stats").out)
    golden("dead-stats.json", shop.run("dead", "stats", "--json").out)
    golden("dead-show.txt", shop.run("dead", "show", str(pair.one.id)).out)
    golden("dead-show.json", shop.run("dead", "show", str(pair.one.id), "--json").out)


@pytest.mark.option("cli.dead.show.id")
def test_show_refuses_jobs_that_are_not_dead(shop: Shop) -> None:
    ran = shop.run("dead", "show", str(shop.task("add").enqueue(1).id))
    assert (ran.code, "ready" in ran.err) == (2, True)


@pytest.mark.row("R7")
@pytest.mark.option("cli.dead.stats.by")
def test_stats_by_task_and_queue(shop: Shop) -> None:
    worlds.dead(shop)
    for by, values in (("task", ["shop.drop", "shop.lost"]), ("queue", ["default", "slow"])):
        document = json.loads(shop.run("dead", "stats", "--by", by, "--json").out)
        assert document["by"] == by
        assert sorted(group["value"] for group in document["groups"]) == values


@pytest.mark.row("U2", "R7")
@pytest.mark.option("cli.dead.ls.queue", "cli.dead.ls.task", "cli.dead.ls.tag", "cli.dead.ls.reason")
@pytest.mark.option("cli.dead.ls.error", "cli.dead.ls.since", "cli.dead.ls.until", "cli.dead.ls.parent")
def test_ls_obeys_each_filter(shop: Shop) -> None:
    pair = worlds.dead(shop)
    assert sorted(pair.filters) == sorted(NAMES)
    for name in NAMES:
        found = json.loads(shop.run("dead", "ls", "--json", *pair.found(name)).out)
        assert [job["id"] for job in found["jobs"]] == [str(pair.expected(name).id)], name


@pytest.mark.option("cli.dead.ls.limit", "cli.dead.ls.cursor")
def test_ls_continues_at_the_cursor(shop: Shop) -> None:
    pair = worlds.dead(shop)
    first = shop.run("dead", "ls", "--limit", "1")
    cursor = re.search(r"More jobs: --cursor (\S+)", first.out)
    assert cursor is not None, first.out
    assert str(pair.other.id) not in first.out
    second = shop.run("dead", "ls", "--limit", "1", "--cursor", cursor[1])
    assert str(pair.other.id) in second.out


@pytest.mark.row("U2", "R7")
@pytest.mark.option("cli.dead.retry.queue", "cli.dead.retry.task", "cli.dead.retry.tag", "cli.dead.retry.reason")
@pytest.mark.option("cli.dead.retry.error", "cli.dead.retry.since", "cli.dead.retry.until", "cli.dead.retry.parent")
@pytest.mark.option("cli.dead.retry.yes", "cli.dead.rm.yes", "cli.dead.rm.queue", "cli.dead.rm.task")
@pytest.mark.option("cli.dead.rm.tag", "cli.dead.rm.reason", "cli.dead.rm.error", "cli.dead.rm.since")
@pytest.mark.option("cli.dead.rm.until", "cli.dead.rm.parent")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("verb", ["retry", "rm"])
@pytest.mark.stores("sqlite")
def test_dead_jobs_are_changed_by_each_filter(shop: Shop, verb: str, name: str) -> None:
    pair = worlds.dead(shop)
    unasked = shop.run("dead", verb, *pair.found(name))
    assert (unasked.code, "--yes" in unasked.err) == (2, True)
    assert not acted(verb, pair.expected(name))
    ran = shop.run("dead", verb, "--yes", *pair.found(name))
    assert ran.code == 0, ran.err
    assert [acted(verb, job) for job in (pair.one, pair.other)] == [name != "until", name == "until"]


@pytest.mark.row("U2", "R7")
@pytest.mark.option("cli.dead.retry.ids", "cli.dead.rm.ids")
def test_dead_jobs_are_changed_by_id(shop: Shop, golden: Golden) -> None:
    pair = worlds.dead(shop)
    golden("dead-retry.txt", shop.call("dead", "retry", str(pair.one.id)).out)
    assert (acted("retry", pair.one), acted("retry", pair.other)) == (True, False)
    golden("dead-rm.txt", shop.run("dead", "rm", str(pair.other.id)).out)
    assert (acted("rm", pair.one), acted("rm", pair.other)) == (False, True)


@pytest.mark.row("R7")
@pytest.mark.option("cli.dead.retry.everything", "cli.dead.retry.rate")
def test_retry_all_obeys_its_rate(shop: Shop, golden: Golden) -> None:
    pair = worlds.dead(shop)
    live = shop.task("add").enqueue(1)
    begun = time.monotonic()
    golden("dead-retry-all.json", shop.run("dead", "retry", "--all", "--rate", "1", "--json").out)
    assert time.monotonic() - begun >= 0.9, "two jobs at one a second"
    assert [job.info().epoch for job in (pair.one, pair.other, live)] == [2, 2, 1]
    assert shop.run("dead", "retry", "--all", "--queue", "slow", "--yes").code == 2


@pytest.mark.row("R7")
@pytest.mark.option("cli.dead.rm.older_than")
def test_rm_by_age(shop: Shop) -> None:
    pair = worlds.dead(shop)
    assert shop.run("dead", "rm", "--older-than", "1h", "--yes").out == "deleted 0 jobs\n"
    assert shop.run("dead", "rm", "--older-than", "0s", "--queue", "slow", "--yes").out == "deleted 1 job\n"
    assert (acted("rm", pair.one), acted("rm", pair.other)) == (True, False)
    assert shop.run("dead", "rm", str(pair.other.id), "--older-than", "1h").code == 2
    assert shop.run("dead", "rm", "--yes").code == 2
