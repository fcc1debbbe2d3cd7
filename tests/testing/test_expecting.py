"""``t.enqueued`` and its assertions: what fits, and what is said when nothing does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from mainspring import Context, Mainspring, Secret
from mainspring.errors import InvalidOption, UnknownArgument, UnknownTask
from mainspring.states import State


@dataclass
class Point:
    x: int
    y: int


@pytest.fixture
def app() -> Mainspring:
    return Mainspring("sqlite://")


def test_jobs_are_found_by_task_and_arguments(app: Mainspring) -> None:
    """In the order of their enqueue, whatever their state. Arguments that are not named can have any value."""

    @app.task(name="send")
    def send(ctx: Context, to: str, subject: str = "hello", *, copies: int = 1) -> None: ...

    @app.task(name="other")
    def other(n: int) -> None: ...

    with app.test() as t:
        first = send.enqueue("a@b.c")
        t.clock.advance("1s")
        third = send.options(delay="1d").enqueue("a@b.c", subject="late", copies=3)
        second = other.enqueue(7)
        t.drain()
        assert [job.id for job in t.enqueued()] == [first.id, third.id, second.id]
        assert [job.state for job in t.enqueued()] == [State.SUCCEEDED, State.SCHEDULED, State.SUCCEEDED]
        assert [job.id for job in t.enqueued(send)] == [first.id, third.id]
        assert [job.id for job in t.enqueued("other", 7)] == [second.id]
        assert t.assert_enqueued(send, "a@b.c").id == third.id, "the newest"
        assert t.assert_enqueued(send, "a@b.c", "hello").id == first.id, "a default counts as given"
        assert t.assert_enqueued(send, to="a@b.c", copies=3).id == third.id
        assert t.assert_enqueued(subject="late").id == third.id
        t.assert_not_enqueued(send, "x@y.z")
        t.assert_not_enqueued(other, n=8)
        with pytest.raises(UnknownTask, match=r"'never.heard.of' is not known"):
            t.assert_not_enqueued("never.heard.of")


def test_values_are_compared_as_they_are_stored(app: Mainspring) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    @app.task
    def draw(point: Point, at: datetime, tags: set[str]) -> None: ...

    with app.test() as t:
        draw.enqueue(Point(1, 2), moment, {"a"})
        t.assert_enqueued(draw, Point(1, 2), at=moment, tags={"a"})
        t.assert_not_enqueued(draw, Point(2, 1))
        t.assert_not_enqueued(draw, object())


def test_the_message_shows_the_jobs_that_were_enqueued(app: Mainspring) -> None:
    @app.task(name="send", queue="mail")
    def send(to: str, password: Secret[str]) -> None: ...

    with app.test() as t:
        with pytest.raises(AssertionError) as nothing:
            t.assert_enqueued(send, to="x")
        assert str(nothing.value) == "send(to='x') was not enqueued.\nNothing was enqueued."
        send.enqueue("a", Secret("very secret"))
        with pytest.raises(AssertionError) as wrong:
            t.assert_enqueued(send, to="x")
        assert "Enqueued were:\n  send(to='a', password='***')  queue=mail  state=ready" in str(wrong.value)
        with pytest.raises(AssertionError) as unwanted:
            t.assert_not_enqueued(send)
        assert str(unwanted.value).startswith("send() was enqueued.\n")
        for n in range(30):
            send.enqueue(str(n), Secret("very secret"))
        with pytest.raises(AssertionError, match=r"\.\.\. and 11 more$") as many:
            t.assert_enqueued("nothing")
        assert "very secret" not in str(many.value)


def test_jobs_of_an_unknown_task_are_found_by_name(app: Mainspring) -> None:
    with app.test() as t:
        app.call("far.away", 1, n=2).enqueue()
        t.assert_enqueued("far.away", 1, n=2)
        t.assert_not_enqueued("far.away", 2)
        t.assert_not_enqueued("far.away", m=2)


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [((), {"too": 1}, "too"), ((1, 2), {}, "has 1 arguments, 2 were expected")],
)
def test_an_expectation_that_no_job_can_meet_is_an_error(
    app: Mainspring, args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    """A misspelt name would pass every ``assert_not_enqueued``."""

    @app.task
    def send(to: int) -> None: ...

    with app.test() as t, pytest.raises(UnknownArgument, match=says):
        t.assert_not_enqueued(send, *args, **kwargs)


def test_only_tasks_of_this_app_can_be_expected(app: Mainspring) -> None:
    foreign = Mainspring("sqlite://").task(name="foreign")(lambda: None)
    with app.test() as t:
        with pytest.raises(UnknownTask, match="foreign"):
            t.assert_not_enqueued(foreign)
        with pytest.raises(InvalidOption, match="is neither a task nor the name of a task"):
            t.assert_not_enqueued(print)  # type: ignore[arg-type]  # wrong on purpose


def test_the_message_of_a_failed_expectation_shows_no_secrets(app: Mainspring) -> None:
    @app.task(name="pay", sensitive=["card"])
    def pay(card: str, key: Secret[str], to: str = "") -> None: ...

    with app.test() as t:
        pay.enqueue("card-right-9", Secret("key-right-9"))
        with pytest.raises(
            AssertionError, match=r"pay\(card=\*\*\*, key=\*\*\*, to='ann'\) was not enqueued"
        ) as failed:
            t.assert_enqueued(pay, card="card-wrong-9", key=Secret("key-wrong-9"), to="ann")
    assert "-9" not in str(failed.value)
