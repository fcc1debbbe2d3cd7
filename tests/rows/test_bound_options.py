"""``task.options(...)`` has the same effect wherever a task or a call can be given, or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mainspring import Context, Key, Mainspring, Query
from mainspring.errors import InvalidOption, OptionsOnCall
from mainspring.states import State
from mainspring.testing.app import TestApp
from tests.plugins.outside import SqlOutside
from tests.rows.scheduling import staged
from tests.rows.test_queue import total

LIMIT = 60


@pytest.fixture
def t(store_url: str) -> Iterator[TestApp]:
    with staged(store_url) as t:
        yield t


def adder(app: Mainspring, **o: Any) -> Any:
    return app.task(name="shop.add", **o)(lambda n=0: n + 1)


class TestEnqueueMany:
    def test_the_options_hold_for_every_call(self, app: Mainspring) -> None:
        add = adder(app, tags=["task"])
        jobs = add.options(queue="slow", delay="1h", tags=["all"], meta={"by": "ada"}).enqueue_many(
            [add.s(1), add.s(2)]
        )
        for job in jobs:
            info = job.info()
            assert (info.queue, info.state) == ("slow", State.SCHEDULED)
            assert (set(info.tags), info.meta) == ({"task", "all"}, {"by": "ada"})

    async def test_aenqueue_many_too(self, app: Mainspring) -> None:
        add = adder(app)
        [job] = await add.options(queue="slow", tags=["z"]).aenqueue_many([add.s(1)])
        info = await job.ainfo()
        assert (info.queue, info.tags) == ("slow", ("z",))

    def test_a_bulk_task_too(self, app: Mainspring) -> None:
        @app.bulk_task(size=10)
        def send(items: list[int]) -> list[int]:
            return items

        [job] = send.options(queue="slow").enqueue_many([send.s(1)])
        assert job.info().queue == "slow"

    def test_an_option_of_a_call_is_used_instead(self, app: Mainspring) -> None:
        add = adder(app)
        own = add.s(1).options(queue="fast", tags=["mine"], meta={"by": "bob"})
        [job, other] = add.options(queue="slow", tags=["all"], meta={"by": "ada", "for": 1}).enqueue_many(
            [own, add.s(2)]
        )
        info = job.info()
        assert (info.queue, set(info.tags), info.meta) == ("fast", {"all", "mine"}, {"by": "bob", "for": 1})
        assert other.info().queue == "slow"
        assert own.given.get("queue") == "fast"  # the call itself is unchanged

    def test_a_key_of_arguments_holds_for_each_call(self, app: Mainspring) -> None:
        add = adder(app)
        first, again, other = add.options(key=Key.arguments("n")).enqueue_many([add.s(1), add.s(1), add.s(2)])
        assert (first.id == again.id, other.id == first.id, total(app)) == (True, False, 2)

    def test_a_key_of_text_for_several_calls_is_refused(self, app: Mainspring) -> None:
        """Only the first call would become a job."""
        add = adder(app)
        with pytest.raises(InvalidOption, match=r"(?s)key=.*would be the key of 2 calls.*Key.arguments"):
            add.options(key="k").enqueue_many([add.s(1), add.s(2)])
        assert total(app) == 0
        [one, own] = add.options(key="k").enqueue_many([add.s(1), add.s(2).options(key="other")])
        assert (one.info().key, own.info().key) == ("k", "other")

    def test_options_that_exclude_each_other_are_refused(self, app: Mainspring) -> None:
        add = adder(app)
        later = datetime(2040, 1, 1, tzinfo=UTC)
        with pytest.raises(InvalidOption, match=r"task 'shop.add': delay=.*cannot be given together with run_at"):
            add.options(delay="1h").enqueue_many([add.s(1).options(run_at=later)])
        with pytest.raises(InvalidOption, match=r"(?s)task 'shop.add': .*before it may start"):
            add.options(expires="1m").enqueue_many([add.s(1).options(delay="1h")])
        with pytest.raises(InvalidOption, match=r"task 'shop.add': tags=.*at most 20"):
            add.options(tags=[f"a{n}" for n in range(15)]).enqueue_many(
                [add.s(1).options(tags=[f"b{n}" for n in range(15)])]
            )
        assert total(app) == 0

    def test_no_calls_are_no_jobs(self, app: Mainspring) -> None:
        assert adder(app).options(queue="slow", key="k").enqueue_many([]) == []

    @pytest.mark.stores("sqlite", "postgres")
    def test_a_connection_holds_for_the_batch(self, app: Mainspring, outside: SqlOutside) -> None:
        add = adder(app)
        app.open()
        mine = outside.connect()
        mine.execute("begin")
        add.options(connection=mine).enqueue_many([add.s(1), add.s(2)])
        mine.execute("rollback")
        assert total(app) == 0
        mine.execute("begin")
        add.options(connection=mine, queue="slow").enqueue_many([add.s(1), add.s(2)])
        mine.execute("commit")
        mine.close()
        assert total(app) == 2
        other = outside.connect()
        with pytest.raises(InvalidOption, match="must be the same for all calls"):
            add.options(connection=object()).enqueue_many([add.s(1).options(connection=other)])
        other.close()


class TestSchedules:
    OPTIONS: dict[str, Any] = {"queue": "slow", "priority": 7, "tags": ["nightly"], "expires": "2h", "meta": {"a": 1}}  # noqa: RUF012

    @pytest.mark.parametrize("how", ["put a task", "put a call", "declare"])
    def test_the_runs_have_the_options(self, t: TestApp, how: str) -> None:
        add = adder(t.app, tags=["task"])
        bound = add.options(**self.OPTIONS)
        if how == "declare":
            t.app.schedule("s", every="1h")(bound)
            t.schedules.declare()
        else:
            t.schedules.put("s", bound if how == "put a task" else bound.s(), every="1h")
        info = t.schedules.trigger("s").info()
        assert (info.queue, info.priority, set(info.tags), info.meta) == ("slow", 7, {"task", "nightly"}, {"a": 1})
        assert info.expires is not None

    def test_the_options_of_the_schedule_are_used_first(self, t: TestApp) -> None:
        t.schedules.put("s", adder(t.app).options(queue="slow", tags=["a"]), every="1h", queue="fast", tags=["b"])
        info = t.schedules.trigger("s").info()
        assert (info.queue, set(info.tags)) == ("fast", {"a", "b"})

    def test_a_key_holds_for_the_runs(self, t: TestApp) -> None:
        t.schedules.put("s", adder(t.app).options(key="one"), every="1h")
        assert t.schedules.trigger("s").info().key == "one"

    @pytest.mark.parametrize(
        ("name", "value"), [("delay", "1h"), ("run_at", datetime(2040, 1, 1, tzinfo=UTC)), ("connection", object())]
    )
    def test_what_a_run_cannot_have_is_refused(self, t: TestApp, name: str, value: Any) -> None:
        bound = adder(t.app).options(**{name: value})
        match = rf"schedule 's': {name}=.* is not allowed"
        with pytest.raises(InvalidOption, match=match):
            t.schedules.put("s", bound, every="1h")
        with pytest.raises(InvalidOption, match=match):
            t.schedules.put("s", bound.s(), every="1h")
        with pytest.raises(InvalidOption, match=match):
            t.app.schedule("s", every="1h")(bound)

    def test_jitter_is_compared_with_the_expiry(self, t: TestApp) -> None:
        with pytest.raises(InvalidOption, match="before it may start"):
            t.schedules.put("s", adder(t.app).options(expires="1m"), every="1h", jitter="5m")


class TestFollowUps:
    @pytest.mark.parametrize("event", ["on_success", "on_dead", "on_cancel"])
    def test_the_follow_up_has_the_options(self, t: TestApp, event: str) -> None:
        ran: list[UUID] = []

        @t.app.task(name="shop.after")
        def after(job: UUID) -> None:
            ran.append(job)

        def work() -> None:
            if event == "on_dead":
                raise ValueError

        bound = after.options(queue="slow", priority=7, tags=["z"], meta={"a": 1})
        options: dict[str, Any] = {event: bound}
        job = t.app.task(name="shop.work", retries=0, **options)(work).enqueue()
        if event == "on_cancel":
            job.cancel()
        t.drain()
        [info] = t.jobs.list(task=after)
        assert (info.queue, info.priority, info.tags, info.meta) == ("slow", 7, ("z",), {"a": 1})
        assert ran == [job.id]

    @pytest.mark.parametrize("name", ["key", "connection"])
    def test_a_key_or_a_connection_is_refused(self, t: TestApp, name: str) -> None:
        bound = adder(t.app).options(**{name: "k"})
        for wanted in (bound, bound.s(1)):
            with pytest.raises(InvalidOption, match=rf"on_dead=.*cannot have {name}="):
                t.app.task(name="shop.work", on_dead=wanted)(lambda: None)


class TestChildren:
    def test_a_child_has_the_options(self, t: TestApp) -> None:
        add = adder(t.app)

        @t.app.task(name="shop.parent")
        def parent(ctx: Context) -> None:
            ctx.spawn(add.options(queue="slow", delay="1h", key="k", tags=["z"]).s(1))

        parent.enqueue()
        t.drain()
        [info] = t.jobs.list(task=add)
        assert (info.queue, info.state, info.key, info.tags) == ("slow", State.SCHEDULED, "k", ("z",))


class TestOnlyTheName:
    """Where a task stands for its name, its options would have no effect."""

    def test_conditions_of_a_query(self, app: Mainspring) -> None:
        add = adder(app)
        add.enqueue(1)
        with pytest.raises(InvalidOption, match=r"(?s)task=.*has job options \(queue\).*queue="):
            app.jobs.delete(task=add.options(queue="slow"))
        with pytest.raises(InvalidOption, match="has job options"):
            Query.where(tasks=[add.options(queue="slow")])
        assert total(app) == 1

    def test_the_helpers_of_a_test(self, t: TestApp) -> None:
        add = adder(t.app)
        add.enqueue(1)
        for ask in (t.assert_enqueued, t.assert_not_enqueued, t.enqueued):
            with pytest.raises(InvalidOption, match=r"(?s)has job options \(queue\).*t.assert_enqueued"):
                ask(add.options(queue="slow"), 1)
        t.assert_enqueued(add, 1)

    def test_relations_and_names_of_schedules(self, t: TestApp) -> None:
        add = adder(t.app)
        t.app.schedule(every="1h")(add)
        t.schedules.declare()
        bound = add.options(queue="slow")
        for call in (t.schedules.get, t.schedules.trigger, t.schedules.disable):
            with pytest.raises(InvalidOption, match=r"has job options \(queue\)"):
                call(bound)
        for name in ("depends_on", "blocks"):
            with pytest.raises(InvalidOption, match=rf"{name}=.*has job options \(queue\)"):
                t.app.schedule("other", every="1h", **{name: bound})(add)

    def test_a_plain_call(self, app: Mainspring) -> None:
        with pytest.raises(OptionsOnCall):
            adder(app).options(queue="slow")(1)
