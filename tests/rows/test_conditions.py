"""Which jobs a call means: conditions as keywords of app.jobs and app.dead, and the pages they return."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import Mainspring, Query
from mainspring.errors import InvalidOption, UnknownOption
from mainspring.jobs.manager import Page
from mainspring.jobs.query import AllConditions
from mainspring.states import State


@pytest.fixture
def mixed(app: Mainspring) -> Any:
    """Jobs of two tasks and three queues: scheduled, ready and cancelled."""
    email = app.queue("email")

    @app.task(name="send", queue=email, tags=["mail"])
    def send(to: str) -> str:
        return to

    @app.task(name="add")
    def add(a: int) -> int:
        return a

    send.enqueue("a")
    send.options(delay="1h", tags=["late"]).enqueue("b")
    add.enqueue(1).cancel()
    add.options(queue="sums").enqueue(2)
    return send, add, email


def found(page: Page) -> list[tuple[str, str, str]]:
    return sorted((job.task, job.queue, job.state) for job in page)


SENT = [("send", "email", "ready"), ("send", "email", "scheduled")]


def test_conditions_are_keywords_with_one_value_or_several(app: Mainspring, mixed: Any) -> None:
    send, add, email = mixed
    assert found(app.jobs.list(queue="email")) == SENT
    assert found(app.jobs.list(queue=email)) == SENT
    assert found(app.jobs.list(task=send)) == SENT
    assert found(app.jobs.list(task="send", state="ready")) == SENT[:1]
    assert found(app.jobs.list(task=[send, add], state=["cancelled", State.SCHEDULED])) == [
        ("add", "default", "cancelled"),
        SENT[1],
    ]
    assert found(app.jobs.list(states=["cancelled"])) == [("add", "default", "cancelled")]
    assert found(app.jobs.list(tag="mail")) == SENT
    assert found(app.jobs.list(tag=["mail", "late"])) == SENT[1:]
    assert len(app.jobs.list(queue=None, state=None)) == 4
    assert app.jobs.count(task=send).total == 2
    assert [job.task for job in app.jobs.iterate(queue="sums")] == ["add"]
    assert found(app.jobs.list(Query.where(task=add, queue="sums"))) == [("add", "sums", "ready")]


async def test_conditions_work_in_the_async_versions(app: Mainspring, mixed: Any) -> None:
    assert found(await app.jobs.alist(queue="email")) == SENT
    assert [job.queue async for job in app.jobs.aiterate(queue="sums")] == ["sums"]
    assert (await app.jobs.acount(queue="sums")).total == 1
    await app.aclose()


def test_conditions_choose_the_jobs_that_are_changed(app: Mainspring, mixed: Any) -> None:
    send, add, _ = mixed
    assert app.jobs.run_now(task=send) == 1
    assert app.jobs.reprioritise(task=send, priority="high") == 2
    assert [job.priority for job in app.jobs.list(task=send)] == [50, 50]
    assert app.jobs.cancel(queue="sums", reason="not needed") == 1
    assert app.jobs.retry(task=add, state="cancelled", rate=None) == 2
    assert app.jobs.delete(task=add) == 2
    assert app.jobs.count().total == 2
    for change in (app.jobs.cancel, app.jobs.retry, app.jobs.delete, app.jobs.run_now, app.dead.retry):
        with pytest.raises(InvalidOption, match=r"is empty\n  To act on every job, pass Query.everything"):
            change()
        with pytest.raises(InvalidOption, match="is empty"):
            change(queue=None)
    assert app.jobs.count().total == 2


def test_dead_jobs_are_found_by_conditions(app: Mainspring) -> None:
    @app.task(name="fail", retries=0)
    def fail(n: int) -> None:
        raise ValueError(n)

    jobs = [fail.enqueue(1), fail.options(queue="other").enqueue(2)]
    with app.worker(queues=["default", "other"]):
        for job in jobs:
            job.join(60)
    assert len(app.dead.list(error="ValueError", task=fail)) == 2
    assert found(app.dead.list(queue="other")) == [("fail", "other", "dead")]
    assert app.dead.delete(queue="other") == 1
    assert app.dead.delete(task=fail, since="1h") == 1
    assert not app.dead.list()


def test_a_duration_counts_back_from_the_time_of_the_store(app: Mainspring) -> None:
    with app.test() as t:

        @app.task(name="tick")
        def tick() -> None: ...

        old = tick.enqueue()
        t.advance("2h")
        new = tick.enqueue()
        assert [job.id for job in app.jobs.list(task=tick, since="1h")] == [new.id]
        assert [job.id for job in app.jobs.list(task=tick, until=timedelta(hours=1))] == [old.id]
        assert len(app.jobs.list(since=datetime(2000, 1, 1, tzinfo=UTC))) == 2
        assert [job.id for job in app.jobs.iterate(since=3600)] == [new.id]


@pytest.mark.parametrize(
    ("conditions", "error", "says"),
    [
        (
            {"state": "failed"},
            InvalidOption,
            r"state='failed': must be one of .*\n  A job that failed for good is dead",
        ),
        ({"state": "pending"}, InvalidOption, "waits for a worker is ready"),
        ({"statee": "dead"}, UnknownOption, "app.jobs.list: option 'statee' does not exist; did you mean 'state'"),
        ({"since": "yesterday"}, InvalidOption, "since='yesterday'"),
        ({"since": object}, InvalidOption, "is neither a moment nor a duration"),
        ({"since": datetime(2030, 1, 1)}, InvalidOption, "no time zone"),  # noqa: DTZ001  # refused
        ({"state": "dead", "states": ["dead"]}, InvalidOption, "cannot be given together with states"),
        ({"states": "dead"}, InvalidOption, "must be a list"),
        ({"queue": []}, InvalidOption, "names nothing"),
        ({"query": Query.everything(), "state": "dead"}, InvalidOption, "together with conditions"),
    ],
)
@pytest.mark.stores("sqlite")
def test_wrong_conditions_are_refused_with_the_fix(
    app: Mainspring, conditions: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=f"(?s){says}"):
        app.jobs.list(**conditions)
    with pytest.raises(error, match=f"(?s){says}".replace("app.jobs.list", "app.jobs.iterate")):
        app.jobs.iterate(**conditions)


@pytest.mark.stores("sqlite")
def test_every_condition_of_a_query_is_a_keyword(app: Mainspring) -> None:
    values: dict[str, Any] = {"since": "1h", "until": "1h", "ended_before": "1h"}
    id = "01a1e142-c0dc-7248-9e5f-e502c01970de"
    some = {"state": "dead", "reason": "crashed", "parent": id, "flow": id}
    for name in AllConditions.__annotations__:
        value = values.get(name) or some.get(name.removesuffix("s"), "x")
        many = name.endswith("s")
        given: Any = {name: [value] if many else value}
        assert len(app.jobs.list(**given)) == 0


def test_a_page_is_a_sequence_with_a_cursor(app: Mainspring) -> None:
    @app.task(name="add")
    def add(a: int) -> int:
        return a

    jobs = app.enqueue_many([add.s(n) for n in range(5)])
    page = app.jobs.list(limit=4)
    assert (len(page), bool(page), page.cursor is None) == (4, True, False)
    assert [job.id for job in page] == [job.id for job in reversed(jobs[1:])]
    assert page[0].id == jobs[4].id
    assert page[-1] in page
    assert page[1:3] == page.jobs[1:3]
    assert repr(page).startswith(f"<Page of 4: add {jobs[4].id} ready, ")
    assert repr(page).endswith(", and 1 more; more with cursor=>")
    assert len(repr(page)) < 300
    rest = app.jobs.list(limit=4, cursor=page.cursor)
    assert (len(rest), rest.cursor) == (1, None)
    nothing = app.jobs.list(state="dead")
    assert (not nothing, list(nothing), repr(nothing)) == (True, [], "<Page: no jobs>")
