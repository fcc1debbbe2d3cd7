"""mainspring jobs cancel, retry, run-now and rm: by id, by filter, after asking."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Query
from mainspring.errors import JobNotFound
from tests.cli import worlds
from tests.cli.conftest import Shop

Golden = Callable[[str, str], None]


def acted(verb: str, job: Any) -> bool:
    """Whether the verb was done to the job."""
    try:
        info = job.info()
    except JobNotFound:
        return verb == "rm"
    done = {"cancel": info.state == "cancelled", "retry": info.epoch == 2, "run-now": info.state == "ready"}
    return bool(done.get(verb, False))


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.cancel.state", "cli.jobs.cancel.queue", "cli.jobs.cancel.task", "cli.jobs.cancel.tag")
@pytest.mark.option("cli.jobs.cancel.since", "cli.jobs.cancel.until", "cli.jobs.cancel.parent", "cli.jobs.cancel.yes")
@pytest.mark.option("cli.jobs.run-now.state", "cli.jobs.run-now.queue", "cli.jobs.run-now.task")
@pytest.mark.option("cli.jobs.run-now.tag", "cli.jobs.run-now.since", "cli.jobs.run-now.until")
@pytest.mark.option("cli.jobs.run-now.parent", "cli.jobs.run-now.yes")
@pytest.mark.parametrize("name", ["state", "queue", "task", "tag", "since", "until", "parent"])
@pytest.mark.parametrize("verb", ["cancel", "run-now"])
@pytest.mark.stores("sqlite")
def test_live_jobs_are_found_by_each_filter(shop: Shop, verb: str, name: str) -> None:
    pair = worlds.live(shop)
    ran = shop.run("jobs", verb, "--yes", *pair.found(name))
    assert ran.code == 0, ran.err
    assert [acted(verb, job) for job in (pair.one, pair.other)] == [name != "until", name == "until"]


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.retry.state", "cli.jobs.retry.queue", "cli.jobs.retry.task", "cli.jobs.retry.tag")
@pytest.mark.option("cli.jobs.retry.reason", "cli.jobs.retry.error", "cli.jobs.retry.since", "cli.jobs.retry.until")
@pytest.mark.option("cli.jobs.retry.parent", "cli.jobs.retry.yes", "cli.jobs.rm.state", "cli.jobs.rm.queue")
@pytest.mark.option("cli.jobs.rm.task", "cli.jobs.rm.tag", "cli.jobs.rm.reason", "cli.jobs.rm.error")
@pytest.mark.option("cli.jobs.rm.since", "cli.jobs.rm.until", "cli.jobs.rm.parent", "cli.jobs.rm.yes")
@pytest.mark.parametrize("name", ["state", "queue", "task", "tag", "reason", "error", "since", "until", "parent"])
@pytest.mark.parametrize("verb", ["retry", "rm"])
@pytest.mark.stores("sqlite")
def test_ended_jobs_are_found_by_each_filter(shop: Shop, verb: str, name: str) -> None:
    pair = worlds.ended(shop)
    ran = shop.run("jobs", verb, "--yes", *pair.found(name))
    assert ran.code == 0, ran.err
    assert [acted(verb, job) for job in (pair.one, pair.other)] == [name != "until", name == "until"]


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.cancel.ids", "cli.jobs.cancel.reason", "cli.jobs.retry.ids", "cli.jobs.rm.ids")
@pytest.mark.option("cli.jobs.run-now.ids")
def test_each_action_changes_a_job_by_id(shop: Shop, golden: Golden) -> None:
    """One job goes through all four commands, with a golden line for each."""
    job = shop.task("add").options(delay="1h").enqueue(1)
    id = str(job.id)
    golden("jobs-run-now.txt", shop.call("jobs", "run-now", id).out)
    assert job.info().state == "ready"
    golden("jobs-cancel.txt", shop.run("jobs", "cancel", id, "--reason", "no need").out)
    assert (job.info().state, job.info().note) == ("cancelled", "no need")
    golden("jobs-retry.txt", shop.run("jobs", "retry", id).out)
    assert (job.info().state, job.info().epoch) == ("ready", 2)
    golden("jobs-rm.txt", shop.run("jobs", "rm", id).out)
    with pytest.raises(JobNotFound):
        job.info()


def test_a_refused_job_is_reported_and_the_others_are_changed(shop: Shop, golden: Golden) -> None:
    """Exit code 1 when a job was in the wrong state, 2 when a job does not exist."""
    live, ended = shop.task("add").enqueue(1), shop.task("add").enqueue(2)
    ended.cancel()
    ran = shop.run("jobs", "cancel", str(ended.id), str(live.id))
    golden("jobs-cancel-refused.txt", ran.out)
    assert (ran.code, live.info().state) == (1, "cancelled")
    document = shop.run("jobs", "cancel", str(ended.id), "--json")
    golden("jobs-cancel-refused.json", document.out)
    assert document.code == 1
    another = shop.task("add").enqueue(1)
    retried = shop.run("jobs", "retry", str(another.id), str(live.id), "--json")
    assert (retried.code, json.loads(retried.out)["done"]) == (1, 1)
    gone = shop.run("jobs", "rm", "01890a5d-ac96-774b-bcce-b302099a8057", str(another.id), "--json")
    assert (gone.code, json.loads(gone.out)["done"]) == (2, 1)


@pytest.mark.option("cli.jobs.retry.rate")
def test_retry_obeys_its_rate(shop: Shop) -> None:
    jobs = [shop.task("add").enqueue(n) for n in range(4)]
    shop.app.jobs.cancel(Query.where(tasks=["shop.add"]))
    begun = time.monotonic()
    ran = shop.run("jobs", "retry", "--task", "shop.add", "--rate", "2", "--yes")
    assert ran.out == "retried 4 jobs\n"
    assert time.monotonic() - begun >= 1.0, "four jobs at two a second"
    assert [job.info().epoch for job in jobs] == [2, 2, 2, 2]


@pytest.mark.parametrize("verb", ["cancel", "retry", "run-now", "rm"])
@pytest.mark.stores("sqlite")
def test_many_jobs_are_not_changed_without_confirmation(shop: Shop, verb: str) -> None:
    """Without a terminal the command refuses and names the flag to add."""
    job = shop.task("add").enqueue(1)
    ran = shop.run("jobs", verb, "--queue", "default")
    assert ran.code == 2
    assert "found 1 job." in ran.err
    assert "--yes" in ran.err
    assert job.info().state == "ready"


@pytest.mark.parametrize("verb", ["cancel", "retry", "run-now", "rm"])
@pytest.mark.stores("sqlite")
def test_jobs_must_be_named_by_id_or_by_filter(shop: Shop, verb: str) -> None:
    job = shop.task("add").enqueue(1)
    nothing = shop.run("jobs", verb, "--yes")
    assert (nothing.code, "no jobs were named" in nothing.err) == (2, True)
    both = shop.run("jobs", verb, str(job.id), "--queue", "default")
    assert (both.code, "not both" in both.err) == (2, True)
    assert job.info().state == "ready"
