"""A name that nothing has: one family of LookupErrors, with the nearest name."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Concurrency, Mainspring
from mainspring.errors import InvalidOption, JobNotFound, NotFound, UnknownTask

ID = "01a1e142-c0dc-7248-9e5f-e502c01970de"


@pytest.fixture
def known(app: Mainspring) -> Mainspring:
    """An app with a task, a queue, a limit, a breaker and a schedule in the store."""
    task = app.task(name="send", queue="email", limit=Concurrency(3), breaker={"failures": 3})(print_nothing)
    task.enqueue()
    app.schedules.put("nightly", task.s(), every="1h")
    return app


def print_nothing() -> None: ...


@pytest.mark.parametrize(
    ("use", "kind", "name", "says"),
    [
        (lambda app: app.schedules.get("nightli"), "schedule", "nightli", "did you mean 'nightly'"),
        (lambda app: app.schedules.disable("nightli"), "schedule", "nightli", "did you mean 'nightly'"),
        (lambda app: app.schedules.trigger("x"), "schedule", "x", "mainspring schedules ls"),
        (lambda app: app.limits.get("send:at-onc"), "limit", "send:at-onc", "did you mean 'send:at-once'"),
        (lambda app: app.limits.set("sand", 3), "limit", "sand", "app.limits.list"),
        (lambda app: app.breakers.get("sand"), "breaker", "sand", "did you mean 'send'"),
        (lambda app: app.breakers.trip("sand"), "breaker", "sand", "app.breakers.list"),
        (lambda app: app.jobs.get(ID), "job", ID, "does not exist"),
        (lambda app: app.dead.get(ID), "job", ID, "does not exist"),
        (lambda app: app.queues.pause("emial"), "queue", "emial", "did you mean 'email'"),
        (lambda app: app.queues.pause("email", "emial"), "queue", "emial", r"pass create=True; in a command, --create"),
        (lambda app: app.queues.resume("emial"), "queue", "emial", "did you mean 'email'"),
        (lambda app: app.queues.drain("emial"), "queue", "emial", "did you mean 'email'"),
        (lambda app: app.queues.purge("emial"), "queue", "emial", "did you mean 'email'"),
        (lambda app: app.queues.disable("emial"), "queue", "emial", "did you mean 'email'"),
        (lambda app: app.queues.enable("emial"), "queue", "emial", "did you mean 'email'"),
        (lambda app: app.queues.configure("emial", max_depth=3), "queue", "emial", "did you mean 'email'"),
        (lambda app: app.queues.reset("emial"), "queue", "emial", "did you mean 'email'"),
    ],
)
def test_an_unknown_name_is_a_lookup_error_with_the_nearest_name(
    known: Mainspring, use: Callable[[Mainspring], Any], kind: str, name: str, says: str
) -> None:
    with pytest.raises(NotFound, match=f"(?s){says}") as caught:
        use(known)
    assert isinstance(caught.value, LookupError)
    assert not isinstance(caught.value, InvalidOption)
    assert (caught.value.kind, caught.value.name) == (kind, name)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.kind, again.name) == (str(caught.value), kind, name)


def test_jobs_and_tasks_belong_to_the_family() -> None:
    assert issubclass(JobNotFound, NotFound)
    assert issubclass(UnknownTask, NotFound)
    assert (UnknownTask("shop.send").kind, UnknownTask("shop.send").name) == ("task", "shop.send")


def test_a_queue_is_changed_before_its_first_job_with_create(app: Mainspring) -> None:
    app.queues.pause("later", create=True)
    assert app.queues.get("later").mode == "paused"
    app.queues.resume("later")
    app.queues.disable("held", create=True)
    app.queues.enable("held")
    app.queues.configure("deep", max_depth=3, create=True)
    assert app.queues.get("deep").max_depth == 3
    app.queues.drain("last", create=True)
    assert app.queues.get("never").counts.total == 0, "reading a queue that nothing names is harmless"


def test_a_queue_with_ended_jobs_or_a_live_worker_exists(store_url: str) -> None:
    with Mainspring(store_url) as app, Mainspring(store_url) as operator:
        task = app.task(name="add", queue="sums")(print_nothing)
        with app.worker(queues=["sums", "idle"]):
            task.enqueue().join(60)
            operator.queues.pause("idle")
            operator.queues.pause("sums")
        operator.queues.resume("sums", "idle")
        operator.queues.pause("sums")
        with pytest.raises(NotFound):
            operator.queues.pause("idle")
