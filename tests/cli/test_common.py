"""Flags of every command that uses a store: -A, --url, --namespace, --json, and --watch on listings."""

from __future__ import annotations

import json
import signal
from typing import Any, NamedTuple

import pytest

from mainspring import Concurrency, Mainspring
from mainspring.jobs.job import Job
from tests.cli.conftest import LIMIT, Shop

pytestmark = pytest.mark.stores("sqlite")


class Elsewhere(NamedTuple):
    """Jobs in another namespace of the store, while the app that is found by itself cannot be imported."""

    shop: Shop
    live: Job[Any]
    dead: Job[Any]

    def words(self, command: str) -> list[str]:
        ids = {"LIVE": str(self.live.id), "DEAD": str(self.dead.id)}
        return [ids.get(word, word) for word in command.split()]


@pytest.fixture
def elsewhere(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    app = Mainspring(shop.url, namespace="other", poll="100ms")

    @app.task(name="shop.fail", retries=0)
    def fail() -> None:
        raise ValueError("no")

    with app.worker():
        dead = fail.enqueue()
        dead.join(timeout=LIMIT)
    live = app.call("shop.live").options(queue="only", delay="1h").enqueue()
    app.task(name="shop.rare", limit=Concurrency(3))(fail.fn).options(queue="rare").enqueue()
    app.schedules.put("tidy", fail, cron="0 3 1 1 *")
    app.close()
    monkeypatch.delenv("MAINSPRING_URL")
    code = f"from mainspring import Mainspring\napp = Mainspring({shop.url!r}, namespace='other')\n"
    (shop.folder / "good.py").write_text(code)
    (shop.folder / "app.py").write_text("from mainspring import Mainspring\napp = Mainspring()\n1 / 0\n")
    return Elsewhere(shop, live, dead)


COMMANDS = [
    pytest.param("jobs ls", "only"),
    pytest.param("jobs show LIVE", "only"),
    pytest.param("jobs logs DEAD", "logs"),
    pytest.param("jobs watch DEAD", "shop.fail"),
    pytest.param("jobs cancel LIVE", '"done": 1'),
    pytest.param("jobs retry DEAD", '"done": 1'),
    pytest.param("jobs run-now LIVE", '"done": 1'),
    pytest.param("jobs rm LIVE", '"done": 1'),
    pytest.param("jobs why LIVE", "not_due"),
    pytest.param("limits ls", "shop.rare"),
    pytest.param("limits set shop.rare:at-once 9", '"size": 9'),
    pytest.param("limits reset shop.rare:at-once", '"size": 3'),
    pytest.param("limits rm shop.rare:at-once", "shop.rare:at-once"),
    pytest.param("queues ls", "only"),
    pytest.param("queues pause only", '"scheduled": 1'),
    pytest.param("queues resume only", '"scheduled": 1'),
    pytest.param("queues drain only", '"scheduled": 1'),
    pytest.param("queues purge only --yes", '"done": 1'),
    pytest.param("queues disable only", '"scheduled": 1'),
    pytest.param("queues enable only", '"scheduled": 1'),
    pytest.param("queues configure only --order lifo", '"scheduled": 1'),
    pytest.param("queues reset only", '"scheduled": 1'),
    pytest.param("schedules ls", '"name": "tidy"'),
    pytest.param("schedules show tidy", '"name": "tidy"'),
    pytest.param("schedules next tidy -n 1", '"schedule": "tidy"'),
    pytest.param("schedules history tidy", '"runs": []'),
    pytest.param("schedules run tidy", '"task": "shop.fail"'),
    pytest.param("schedules disable tidy", '"enabled": false'),
    pytest.param("schedules enable tidy", '"enabled": true'),
    pytest.param("schedules rm tidy --yes", '"removed"'),
    pytest.param("schedules backfill tidy 2023-01-01 2024-01-01", "2023-01-01T03:00:00Z"),
    pytest.param("dead ls", "shop.fail"),
    pytest.param("dead show DEAD", "shop.fail"),
    pytest.param("dead stats", "ValueError"),
    pytest.param("dead retry DEAD", '"done": 1'),
    pytest.param("dead rm DEAD", '"done": 1'),
    pytest.param("workers ls", '"workers": []'),
    pytest.param("status", "only"),
    pytest.param("migrate", '"before"'),
]


@pytest.mark.row("C4", "U2")
@pytest.mark.option("cli.jobs.ls.url", "cli.jobs.ls.namespace", "cli.jobs.ls.as_json")
@pytest.mark.option("cli.jobs.show.url", "cli.jobs.show.namespace", "cli.jobs.show.as_json")
@pytest.mark.option("cli.jobs.logs.url", "cli.jobs.logs.namespace")
@pytest.mark.option("cli.jobs.watch.url", "cli.jobs.watch.namespace")
@pytest.mark.option("cli.jobs.cancel.url", "cli.jobs.cancel.namespace", "cli.jobs.cancel.as_json")
@pytest.mark.option("cli.jobs.retry.url", "cli.jobs.retry.namespace", "cli.jobs.retry.as_json")
@pytest.mark.option("cli.jobs.run-now.url", "cli.jobs.run-now.namespace", "cli.jobs.run-now.as_json")
@pytest.mark.option("cli.jobs.rm.url", "cli.jobs.rm.namespace", "cli.jobs.rm.as_json")
@pytest.mark.option("cli.jobs.why.url", "cli.jobs.why.namespace", "cli.jobs.why.as_json")
@pytest.mark.option("cli.limits.ls.url", "cli.limits.ls.namespace", "cli.limits.ls.as_json")
@pytest.mark.option("cli.limits.set.url", "cli.limits.set.namespace", "cli.limits.set.as_json")
@pytest.mark.option("cli.limits.reset.url", "cli.limits.reset.namespace", "cli.limits.reset.as_json")
@pytest.mark.option("cli.limits.rm.url", "cli.limits.rm.namespace", "cli.limits.rm.as_json")
@pytest.mark.option("cli.queues.ls.url", "cli.queues.ls.namespace", "cli.queues.ls.as_json")
@pytest.mark.option("cli.queues.pause.url", "cli.queues.pause.namespace", "cli.queues.pause.as_json")
@pytest.mark.option("cli.queues.resume.url", "cli.queues.resume.namespace", "cli.queues.resume.as_json")
@pytest.mark.option("cli.queues.drain.url", "cli.queues.drain.namespace", "cli.queues.drain.as_json")
@pytest.mark.option("cli.queues.purge.url", "cli.queues.purge.namespace", "cli.queues.purge.as_json")
@pytest.mark.option("cli.queues.disable.url", "cli.queues.disable.namespace", "cli.queues.disable.as_json")
@pytest.mark.option("cli.queues.enable.url", "cli.queues.enable.namespace", "cli.queues.enable.as_json")
@pytest.mark.option("cli.queues.configure.url", "cli.queues.configure.namespace", "cli.queues.configure.as_json")
@pytest.mark.option("cli.queues.reset.url", "cli.queues.reset.namespace", "cli.queues.reset.as_json")
@pytest.mark.option("cli.schedules.ls.url", "cli.schedules.ls.namespace", "cli.schedules.ls.as_json")
@pytest.mark.option("cli.schedules.show.url", "cli.schedules.show.namespace", "cli.schedules.show.as_json")
@pytest.mark.option("cli.schedules.next.url", "cli.schedules.next.namespace", "cli.schedules.next.as_json")
@pytest.mark.option("cli.schedules.history.url", "cli.schedules.history.namespace", "cli.schedules.history.as_json")
@pytest.mark.option("cli.schedules.run.url", "cli.schedules.run.namespace", "cli.schedules.run.as_json")
@pytest.mark.option("cli.schedules.enable.url", "cli.schedules.enable.namespace", "cli.schedules.enable.as_json")
@pytest.mark.option("cli.schedules.disable.url", "cli.schedules.disable.namespace", "cli.schedules.disable.as_json")
@pytest.mark.option("cli.schedules.rm.url", "cli.schedules.rm.namespace", "cli.schedules.rm.as_json")
@pytest.mark.option("cli.schedules.backfill.url", "cli.schedules.backfill.namespace", "cli.schedules.backfill.as_json")
@pytest.mark.option("cli.dead.ls.url", "cli.dead.ls.namespace", "cli.dead.ls.as_json")
@pytest.mark.option("cli.dead.show.url", "cli.dead.show.namespace", "cli.dead.show.as_json")
@pytest.mark.option("cli.dead.stats.url", "cli.dead.stats.namespace", "cli.dead.stats.as_json")
@pytest.mark.option("cli.dead.retry.url", "cli.dead.retry.namespace", "cli.dead.retry.as_json")
@pytest.mark.option("cli.dead.rm.url", "cli.dead.rm.namespace", "cli.dead.rm.as_json")
@pytest.mark.option("cli.workers.ls.url", "cli.workers.ls.as_json")
@pytest.mark.option("cli.status.url", "cli.status.namespace", "cli.status.as_json")
@pytest.mark.option("cli.migrate.url", "cli.migrate.as_json")
@pytest.mark.parametrize(("command", "says"), COMMANDS)
def test_the_store_is_named_by_url_and_namespace(elsewhere: Elsewhere, command: str, says: str) -> None:
    words = elsewhere.words(command)
    ran = elsewhere.shop.run(*words, "--url", elsewhere.shop.url, "--namespace", "other", "--json")
    assert ran.err == ""
    assert says in ran.out
    assert json.loads(ran.out)


@pytest.mark.row("C4", "U2")
@pytest.mark.option("cli.jobs.ls.app", "cli.jobs.show.app", "cli.jobs.logs.app", "cli.jobs.watch.app")
@pytest.mark.option("cli.jobs.cancel.app", "cli.jobs.retry.app", "cli.jobs.run-now.app", "cli.jobs.rm.app")
@pytest.mark.option("cli.jobs.why.app", "cli.limits.ls.app", "cli.limits.set.app", "cli.limits.reset.app")
@pytest.mark.option("cli.limits.rm.app")
@pytest.mark.option("cli.queues.ls.app", "cli.queues.pause.app", "cli.queues.resume.app", "cli.queues.drain.app")
@pytest.mark.option(
    "cli.queues.disable.app", "cli.queues.enable.app", "cli.queues.configure.app", "cli.queues.reset.app"
)
@pytest.mark.option(
    "cli.schedules.ls.app", "cli.schedules.show.app", "cli.schedules.next.app", "cli.schedules.history.app"
)
@pytest.mark.option("cli.schedules.run.app", "cli.schedules.enable.app", "cli.schedules.disable.app")
@pytest.mark.option("cli.schedules.rm.app", "cli.schedules.backfill.app")
@pytest.mark.option("cli.queues.purge.app", "cli.dead.ls.app", "cli.dead.show.app", "cli.dead.stats.app")
@pytest.mark.option("cli.dead.retry.app", "cli.dead.rm.app", "cli.workers.ls.app", "cli.status.app", "cli.migrate.app")
@pytest.mark.parametrize(("command", "says"), COMMANDS)
def test_the_app_is_named_by_a_flag(elsewhere: Elsewhere, command: str, says: str) -> None:
    """Without the flag the command would find an app that cannot be imported."""
    words = elsewhere.words(command)
    unnamed = elsewhere.shop.run(*words)
    assert (unnamed.code, "ZeroDivisionError" in unnamed.err) == (2, True)
    ran = elsewhere.shop.run(*words, "-A", "good.py", "--json")
    assert ran.err == ""
    assert says in ran.out


@pytest.mark.option("cli.workers.ls.namespace", "cli.migrate.namespace")
def test_namespaces_are_separate(shop: Shop) -> None:
    with shop.app.worker():
        mine = shop.run("workers", "ls", "--json", "--url", shop.url)
        theirs = shop.run("workers", "ls", "--json", "--url", shop.url, "--namespace", "other")
    assert (len(json.loads(mine.out)["workers"]), len(json.loads(theirs.out)["workers"])) == (1, 0)
    mine = shop.run("migrate", "--json", "--url", shop.url)
    theirs = shop.run("migrate", "--json", "--url", shop.url, "--namespace", "third")
    assert json.loads(mine.out)["before"] == json.loads(mine.out)["after"]
    assert json.loads(theirs.out)["before"] == 0


@pytest.mark.option("cli.enqueue.app", "cli.explain.app", "cli.check.app", "cli.jobs.run.app")
@pytest.mark.parametrize("command", ["enqueue shop.add 1", "explain shop.add", "check", "jobs run JOB --local"])
def test_commands_that_need_code_accept_an_app(shop: Shop, command: str) -> None:
    job = shop.task("add").enqueue(1)
    (shop.folder / "good.py").write_text((shop.folder / "app.py").read_text())
    (shop.folder / "app.py").write_text("from mainspring import Mainspring\napp = Mainspring()\n1 / 0\n")
    words = [str(job.id) if word == "JOB" else word for word in command.split()]
    assert shop.call(*words, "-A", "good.py").code == 0
    assert shop.call(*words).code == 2


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.ls.watch", "cli.jobs.show.watch", "cli.queues.ls.watch", "cli.dead.ls.watch")
@pytest.mark.option("cli.jobs.why.watch", "cli.limits.ls.watch", "cli.schedules.ls.watch", "cli.schedules.show.watch")
@pytest.mark.option("cli.schedules.next.watch", "cli.schedules.history.watch")
@pytest.mark.option("cli.dead.show.watch", "cli.dead.stats.watch", "cli.workers.ls.watch", "cli.status.watch")
@pytest.mark.parametrize(
    "command",
    [
        "jobs ls",
        "jobs show DEAD",
        "jobs why DEAD",
        "limits ls",
        "queues ls",
        "schedules ls",
        "schedules show tidy",
        "schedules next",
        "schedules history tidy",
        "dead ls",
        "dead show DEAD",
        "dead stats",
        "workers ls",
        "status",
    ],
)
def test_watch_prints_again_and_again_until_ctrl_c(elsewhere: Elsewhere, command: str) -> None:
    """One JSON document per line; exit code 130."""
    words = [*elsewhere.words(command), "-A", "good.py", "--watch", "0.1", "--json"]
    watching = elsewhere.shop.start(*words)
    assert watching.stdout is not None
    first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
    watching.send_signal(signal.SIGINT)
    out, err = watching.communicate(timeout=LIMIT)
    assert first.keys() == second.keys()
    assert (watching.returncode, "Traceback" in err) == (130, False)
    assert all(json.loads(line) for line in out.splitlines())


def test_watch_prints_changes(shop: Shop) -> None:
    """Plain text without the number of seconds."""
    watching = shop.start("queues", "ls", "--watch")
    assert watching.stdout is not None
    for n in range(7):
        shop.task("add").enqueue(n)
    while watching.stdout.readline().split()[:3] != ["default", "open", "7"]:
        pass
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=LIMIT)
    assert watching.returncode == 130
