"""mainspring queues."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import LIMIT, Shop

Golden = Callable[[str, str], None]


@pytest.mark.row("U2", "Q9")
def test_ls_counts_what_each_queue_has(shop: Shop, golden: Golden) -> None:
    shop.task("add").enqueue(1)
    shop.task("fail").options(delay="1h").enqueue("x")
    shop.task("add").options(queue="extra").enqueue(1)
    shop.app.queues.pause("extra")
    golden("queues-ls.txt", shop.call("queues", "ls").out)
    golden("queues-ls.json", shop.run("queues", "ls", "--json").out)


@pytest.mark.row("U2", "Q9")
@pytest.mark.option("cli.queues.pause.names", "cli.queues.resume.names")
def test_pause_and_resume_tell_what_the_queues_are_now(shop: Shop, golden: Golden) -> None:
    golden("queues-pause.txt", shop.run("queues", "pause", "slow", "default").out)
    assert [shop.app.queues.get(name).mode for name in ("slow", "default")] == ["paused", "paused"]
    golden("queues-resume.txt", shop.run("queues", "resume", "slow").out)
    assert [shop.app.queues.get(name).mode for name in ("slow", "default")] == ["open", "paused"]
    golden("queues-resume.json", shop.run("queues", "resume", "default", "--json").out)


@pytest.mark.row("U2", "Q9")
@pytest.mark.option("cli.queues.drain.name")
def test_drain_returns_at_once(shop: Shop, golden: Golden) -> None:
    shop.task("add").enqueue(1)
    ran = shop.run("queues", "drain", "default")
    golden("queues-drain.txt", ran.out)
    assert (ran.code, shop.app.queues.get("default").mode) == (0, "draining")
    assert "takes no more jobs" in shop.run("enqueue", "shop.add", "1").err


@pytest.mark.row("U2", "Q9")
@pytest.mark.option("cli.queues.drain.wait")
def test_drain_waits_until_the_queue_is_empty(shop: Shop) -> None:
    shop.task("add").enqueue(1)
    draining = shop.start("queues", "drain", "default", "--wait", "--json")
    with shop.app.worker():
        out, _ = draining.communicate(timeout=LIMIT)
    [queue] = json.loads(out)["queues"]
    assert (draining.returncode, queue["mode"], queue["counts"]["ready"]) == (0, "draining", 0)


@pytest.mark.option("cli.queues.drain.timeout")
def test_drain_waits_no_longer_than_told(shop: Shop) -> None:
    """The answer is no: exit code 1. The queue stays draining."""
    shop.task("add").enqueue(1)
    ran = shop.run("queues", "drain", "default", "--wait", "--timeout", "200ms")
    assert ran.code == 1
    assert "'default'" in ran.err
    assert shop.app.queues.get("default").mode == "draining"
    assert shop.run("queues", "drain", "default", "--timeout", "1s").code == 2, "without --wait it means nothing"


@pytest.mark.row("U2", "Q9")
@pytest.mark.option("cli.queues.purge.name", "cli.queues.purge.yes")
def test_purge_deletes_what_waits_after_asking(shop: Shop, golden: Golden) -> None:
    kept, gone = shop.task("add").enqueue(1), shop.task("fail").enqueue("x")
    asked = shop.run("queues", "purge", "slow")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert gone.info().state == "ready"
    golden("queues-purge.txt", shop.run("queues", "purge", "slow", "--yes").out)
    golden("queues-purge.json", shop.run("queues", "purge", "slow", "--yes", "--json").out)
    assert [job.id for job in shop.app.jobs.list().jobs] == [kept.id]
