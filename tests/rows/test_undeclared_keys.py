"""Keys that a TypedDict, a dataclass or a struct does not declare are not lost: in arguments, stored jobs, results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from typing_extensions import TypedDict

from mainspring import Key, Mainspring
from mainspring.errors import ArgumentError, JobDead
from mainspring.jobs.check_stored import check
from mainspring.states import Reason

LIMIT = 60


class Mail(TypedDict, total=False):
    to: str
    reply_to: str


@dataclass
class Order:
    id: int
    comment: str = ""


def test_enqueue_refuses_a_key_that_the_type_does_not_declare(app: Mainspring) -> None:
    @app.task(name="send", key=Key.arguments())
    def send(mails: list[Mail], order: Order | None = None) -> None: ...

    with pytest.raises(ArgumentError, match=r"'mails\[1\]' has the key 'replyto', .* did you mean 'reply_to'\?"):
        send.enqueue([{}, {"replyto": "x@y.z"}])  # type: ignore[typeddict-unknown-key]  # the mistake
    with pytest.raises(ArgumentError, match="'order' has the key 'note', which Order does not declare"):
        send.enqueue([], order={"id": 1, "note": "fragile"})  # type: ignore[arg-type]  # the mistake
    assert len(app.jobs.list()) == 0


@pytest.mark.row("B20")
@pytest.mark.parametrize("colour", ["def", "async def"])
def test_a_stored_key_that_the_new_code_does_not_declare_makes_the_job_undecodable(
    app: Mainspring, colour: str
) -> None:
    """``check`` lists it before the deploy, and ``@task.upgrade`` cures it."""
    old = app.call("ship", order={"id": 1, "note": "fragile"}).enqueue()

    if colour == "def":

        @app.task(name="ship")
        def ship(order: Order) -> str:
            return order.comment

        task: Any = ship
    else:

        @app.task(name="ship")
        async def aship(order: Order) -> str:
            return order.comment

        task = aship

    [refused] = check(app).refused
    assert refused.id == old.id
    assert "argument 'order' has the key 'note', which Order does not declare" in refused.why
    with app.worker(), pytest.raises(JobDead) as dead:
        old.result(timeout=LIMIT)
    assert dead.value.reason == Reason.UNDECODABLE

    @task.upgrade
    def from_v1(given: dict[str, Any]) -> dict[str, Any]:
        order = given["order"]
        return {"order": {"id": order["id"], "comment": order["note"]}}

    assert check(app).refused == ()
    app.dead.retry(old)
    with app.worker():
        assert old.result(timeout=LIMIT) == "fragile"


def test_a_result_with_an_undeclared_key_makes_the_job_dead(app: Mainspring) -> None:
    @app.task(name="read", retries=5)
    def read() -> Mail:
        return {"replyto": "x@y.z"}  # type: ignore[typeddict-unknown-key]  # the mistake

    job = read.enqueue()
    with app.worker(), pytest.raises(JobDead, match="result has the key 'replyto'") as dead:
        job.result(timeout=LIMIT)
    assert dead.value.reason == Reason.NOT_RETRYABLE
