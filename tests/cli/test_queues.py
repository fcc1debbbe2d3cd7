"""mainspring queues."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.cli.conftest import LIMIT, Shop

Golden = Callable[[str, str], None]


@pytest.mark.row("U2", "Q9")
def test_ls_counts_the_jobs_of_each_queue(shop: Shop, golden: Golden) -> None:
    shop.task("add").enqueue(1)
    shop.task("fail").options(delay="1h").enqueue("x")
    shop.task("add").options(queue="extra").enqueue(1)
    shop.app.queues.pause("extra")
    golden("queues-ls.txt", shop.call("queues", "ls").out)
    golden("queues-ls.json", shop.run("queues", "ls", "--json").out)


@pytest.mark.row("U2", "Q9")
@pytest.mark.parametrize("command", [["status"], ["queues", "ls"]])
def test_a_queue_that_no_live_worker_serves_is_named(shop: Shop, command: list[str]) -> None:
    shop.task("add").options(queue="solw").enqueue(1)
    said = "no live worker serves queue 'solw', which has 1 ready job"
    with shop.app.worker():
        assert f"{said}; did you mean 'slow'?\n" in shop.call(*command).out
        queues = {queue["name"]: queue for queue in json.loads(shop.call(*command, "--json").out)["queues"]}
    assert (queues["solw"]["workers"], queues["solw"]["unserved"]) == (0, f"{said}; did you mean 'slow'?")
    assert (queues["slow"]["workers"], queues["slow"]["unserved"]) == (1, "")


@pytest.mark.row("U2", "Q9")
@pytest.mark.option("cli.queues.pause.names", "cli.queues.resume.names")
def test_pause_and_resume_print_the_new_state(shop: Shop, golden: Golden) -> None:
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
    assert "refuses new jobs" in shop.run("enqueue", "shop.add", "1").err


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
def test_drain_ends_at_its_timeout(shop: Shop) -> None:
    """Exit code 1. The queue stays draining."""
    shop.task("add").enqueue(1)
    ran = shop.run("queues", "drain", "default", "--wait", "--timeout", "200ms")
    assert ran.code == 1
    assert "'default'" in ran.err
    assert shop.app.queues.get("default").mode == "draining"
    assert shop.run("queues", "drain", "default", "--timeout", "1s").code == 2, "without --wait it means nothing"


@pytest.mark.row("U2", "Q9")
@pytest.mark.option("cli.queues.purge.name", "cli.queues.purge.yes")
def test_purge_deletes_waiting_jobs_after_confirmation(shop: Shop, golden: Golden) -> None:
    kept, gone = shop.task("add").enqueue(1), shop.task("fail").enqueue("x")
    asked = shop.run("queues", "purge", "slow")
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert gone.info().state == "ready"
    golden("queues-purge.txt", shop.run("queues", "purge", "slow", "--yes").out)
    golden("queues-purge.json", shop.run("queues", "purge", "slow", "--yes", "--json").out)
    assert [job.id for job in shop.app.jobs.list().jobs] == [kept.id]


@pytest.mark.row("U2", "Q10")
@pytest.mark.option("cli.queues.disable.name", "cli.queues.disable.how", "cli.queues.enable.names")
def test_disable_and_enable_print_the_new_state(shop: Shop) -> None:
    shop.task("add").enqueue(1)
    assert "disabled (hold)" in shop.run("queues", "disable", "default").out
    assert "disabled (skip)" in shop.run("queues", "disable", "default", "--how", "skip").out
    skipped = shop.task("add").enqueue(2)
    assert "skipped" in shop.run("jobs", "ls").out
    assert "skipped" in shop.run("jobs", "show", str(skipped.id)).out
    (told,) = json.loads(shop.run("queues", "disable", "slow", "--how", "reject", "--json").out)["queues"]
    assert (told["disabled"], "@" in told["disabled_by"]) == ("reject", True)
    assert told["disabled_since"] is not None
    assert "disabled" not in shop.run("queues", "enable", "default", "slow").out
    assert [shop.app.queues.get(name).disabled for name in ("default", "slow")] == [None, None]
    refused = shop.run("queues", "disable", "default", "--how", "off")
    assert (refused.code, "hold" in refused.err) == (2, True)


@pytest.mark.row("U2", "Q13")
@pytest.mark.option("cli.queues.configure.name", "cli.queues.configure.max_depth", "cli.queues.configure.on_full")
@pytest.mark.option("cli.queues.configure.order", "cli.queues.reset.name", "cli.queues.reset.declared")
def test_configure_and_reset_print_the_new_settings(shop: Shop) -> None:
    shop.task("add").enqueue(1)
    words = ["--max-depth", "1000", "--on-full", "wait", "--order", "lifo"]
    assert "1 of 1,000, lifo" in shop.run("queues", "configure", "default", *words).out
    (told,) = json.loads(shop.run("queues", "configure", "default", "--max-depth", "none", "--json").out)["queues"]
    assert (told["max_depth"], told["on_full"], told["order"], told["depth"]) == (None, "wait", "lifo", 1)
    (told,) = json.loads(shop.run("queues", "reset", "default", "--json").out)["queues"]
    assert (told["on_full"], told["order"]) == ("error", "fifo")
    shop.app.queue("once", max_depth=5)
    shop.task("add").options(queue="once").enqueue(1)
    assert "1 of 5" in shop.run("queues", "reset", "once").out
    assert "1 of 5" not in shop.run("queues", "reset", "once", "--declared").out
    for bad in (["--max-depth", "few"], ["--max-depth", "0"], []):
        refused = shop.run("queues", "configure", "default", *bad)
        assert (refused.code, bool(refused.err)) == (2, True)


@pytest.mark.option("cli.queues.pause.create", "cli.queues.drain.create")
@pytest.mark.option("cli.queues.disable.create", "cli.queues.configure.create")
@pytest.mark.parametrize(
    "command", ["pause nosuch", "drain nosuch", "disable nosuch", "configure nosuch --max-depth 5"]
)
def test_changing_an_unknown_queue_asks_for_create(shop: Shop, command: str) -> None:
    shop.task("add").enqueue(1)
    refused = shop.run("queues", *command.split())
    assert refused.code == 2
    assert "queue 'nosuch' is not in the store" in refused.err
    assert "--create" in refused.err
    assert shop.run("queues", *command.split(), "--create").code == 0
    assert shop.run("queues", "resume", "nosuch").code == 0
