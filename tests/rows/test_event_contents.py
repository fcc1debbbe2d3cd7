"""W12: an event carries the arguments, the result or error and the times of its job, so a hook needs no store call."""

from __future__ import annotations

import asyncio
import copy
import pickle
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from mainspring import Context, Event, Mainspring, Secret
from mainspring.codec import Signature
from mainspring.states import Reason, State
from mainspring.tasks.events import EVENTS
from mainspring.worker.records import Beat, Registration, Turn, Want
from tests.rows.crew import until

LIMIT = 60
pytestmark = pytest.mark.row("W12")


@dataclass
class Order:
    number: int
    card: str


def heard_by(app: Mainspring, *names: Any) -> list[Event]:
    events: list[Event] = []
    app.on(*(names or EVENTS))(events.append)
    return events


@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_succeeded_event_has_arguments_result_and_times(app: Mainspring, colour: str) -> None:
    events = heard_by(app, "started", "succeeded")
    if colour == "def":

        @app.task(name="pay", queue="shop")
        def pay(order: Order, password: str, *, tries: int = 1) -> Order:
            return order
    else:

        @app.task(name="pay", queue="shop")
        async def pay(order: Order, password: str, *, tries: int = 1) -> Order:
            return order

    with app.worker():
        job = pay.enqueue(Order(7, "4111"), "hunter2", tries=3)
        job.join(timeout=LIMIT)
        until(lambda: len(events) == 2, "both hooks were called")
    started, succeeded = events
    arguments = {"order": {"number": 7, "card": "4111"}, "password": "***", "tries": 3}
    assert started.args == succeeded.args == arguments
    assert (succeeded.queue, succeeded.attempt, succeeded.error) == ("shop", 1, None)
    assert succeeded.result == Order(7, "4111")
    assert (started.result, started.duration) == (None, None)
    assert succeeded.duration is not None
    assert succeeded.duration == job.info().run  # both are the time of the body, not from its claim to its ack
    for event in events:
        assert event.wait is not None
        assert event.wait >= timedelta(0)
    assert "hunter2" not in repr(events)


def test_a_failed_event_has_arguments_error_and_duration(app: Mainspring) -> None:
    events = heard_by(app, "failed", "retrying", "dead")

    @app.task(name="fails", retries=1, backoff="1ms", sensitive=["card"])
    def fails(ctx: Context, number: int, card: str) -> None:
        raise ValueError(f"number {number}, card {card}")

    with app.worker():
        fails.enqueue(7, "4111-2222").join(timeout=LIMIT)
        until(lambda: len(events) == 4, "the hooks were called")
    assert [(event.name, event.attempt) for event in events] == [
        ("failed", 1), ("retrying", 1), ("failed", 2), ("dead", 2),
    ]  # fmt: skip
    for event in events:
        assert event.args == {"number": 7, "card": "***"}
        assert event.error is not None
        assert event.error.message == "number 7, card ***"
        assert event.result is None
        assert event.duration is not None


def test_the_arguments_of_a_call_by_name_have_the_names_of_the_task(app: Mainspring, other: Mainspring) -> None:
    """The producer knew the name of the task only. The worker knows its parameters, so secrets are hidden too."""
    events = heard_by(app, "succeeded")

    @app.task(name="login")
    def login(user: str, password: str) -> None: ...

    other.call("login", "ann", "hunter2").enqueue()
    with app.worker():
        until(lambda: events, "the hook was called")
    assert events[0].args == {"user": "ann", "password": "***"}


def test_a_secret_result_stays_a_secret(app: Mainspring) -> None:
    events = heard_by(app, "succeeded")

    @app.task(name="gives")
    def gives() -> Secret[str]:
        return Secret("result-secret-2")

    with app.worker():
        gives.enqueue().join(timeout=LIMIT)
        until(lambda: events, "the hook was called")
    assert events[0].result == Secret("result-secret-2")
    assert "result-secret" not in repr(events[0])


def test_an_expired_job_has_arguments_and_no_times(app: Mainspring) -> None:
    events = heard_by(app, "cancelled")

    @app.task(name="late")
    async def late(number: int) -> int:
        return number

    late.options(expires="10ms", queue="unserved").enqueue(7)
    with app.worker():
        until(lambda: events, "the hook was called")
    [event] = events
    assert (event.args, event.reason) == ({"number": 7}, Reason.EXPIRED)
    assert (event.result, event.error, event.duration, event.wait) == (None, None, None, None)


async def test_a_rescued_job_has_arguments_and_no_times(app: Mainspring) -> None:
    events = heard_by(app, "stalled", "dead")

    @app.task(name="early", ack="early")
    async def early(number: int) -> int:
        return number

    await early.aenqueue(7)
    store = await app.client.store()
    await store.beat([Beat("silent", Registration(queues=("default",), tasks=("early",), lease=500_000))])
    taken = await store.turn(Turn(worker="silent", number=1, seen=0, wants=(Want(("default/async",), 1),)))
    assert len(taken.claims) == 1
    async with app.worker():
        await asyncio.to_thread(until, lambda: len(events) == 2, "both hooks were called")
    assert [event.name for event in events] == ["stalled", "dead"]
    for event in events:
        assert event.args == {"number": 7}
        assert (event.result, event.duration, event.wait) == (None, None, None)


def test_a_job_that_is_cancelled_while_it_runs_has_a_duration_and_no_result(app: Mainspring) -> None:
    events = heard_by(app, "succeeded", "cancelled")

    @app.task(name="t")
    def t(ctx: Context, number: int) -> str:
        app.jobs.get(ctx.job_id).cancel()
        return "done all the same"

    with app.worker():
        job = t.enqueue(7)
        assert job.join(timeout=LIMIT).state is State.CANCELLED
        until(lambda: events, "the hook was called")
    [event] = events
    assert (event.name, event.args, event.result) == ("cancelled", {"number": 7}, None)
    assert event.duration is not None


@pytest.mark.stores("sqlite")
def test_arguments_and_result_are_decoded_only_for_a_hook_that_reads_them(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[bytes] = []
    plain = Signature.decode_result

    def decode(self: Signature, data: bytes) -> Any:
        decoded.append(data)
        return plain(self, data)

    monkeypatch.setattr(Signature, "decode_result", decode)
    events = heard_by(app, "succeeded")

    @app.task(name="seven")
    def seven() -> int:
        return 7

    with app.worker():
        seven.enqueue()
        until(lambda: events, "the hook was called")
    assert not decoded
    assert (events[0].result, events[0].result) == (7, 7)
    assert len(decoded) == 1


@pytest.mark.stores("sqlite")
def test_an_event_can_be_copied_pickled_and_compared(app: Mainspring) -> None:
    events = heard_by(app, "succeeded")

    @app.task(name="seven")
    def seven(n: int) -> int:
        return n

    with app.worker():
        seven.enqueue(7)
        until(lambda: events, "the hook was called")
    [event] = events
    for again in (copy.copy(event), copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
        assert (again.args, again.result, again.wait) == ({"n": 7}, 7, event.wait)
        assert again == event
        assert len({event, again}) == 1


def test_a_hook_can_be_tested_with_an_event_made_by_hand() -> None:
    event = Event(
        name="succeeded", job=uuid4(), task="t", queue="q", attempt=1, state=State.SUCCEEDED, at=datetime.now(UTC),
        args={"n": 7}, result=7,
    )  # fmt: skip
    assert (event.args, event.result) == ({"n": 7}, 7)
