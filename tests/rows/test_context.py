"""W9, W11: what a handler says of its run, and how it gives up, waits and makes children."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any
from uuid import UUID

import pytest

from mainspring import AsyncContext, Call, Context, Discard, JobDead, Key, Mainspring, Query, Snooze
from mainspring.errors import InvalidOption, NotBuilt
from mainspring.states import Reason, State
from mainspring.worker.run.context import log_fields

LIMIT = 60


@pytest.mark.row("W9")
class TestLogLines:
    def test_log_lines_are_stored_with_their_level_and_sent_to_the_logger(
        self, app: Mainspring, caplog: pytest.LogCaptureFixture
    ) -> None:
        @app.task(name="tell", queue="talk", retries=1, backoff="10ms")
        def tell(ctx: Context) -> None:
            ctx.log("begun", number=7)
            ctx.log("it looks bad", level="warning")
            if ctx.attempt == 1:
                raise ValueError

        with caplog.at_level(logging.DEBUG, logger="mainspring.jobs"), app.worker():
            job = tell.enqueue()
            info = job.join(timeout=LIMIT)
        lines = job.logs()
        assert [(line.level, line.text) for line in lines] == 2 * [
            ("info", "begun number=7"),
            ("warning", "it looks bad"),
        ]
        assert [line.n for line in lines] == [1, 2, 3, 4]
        records = [record for record in caplog.records if record.name == "mainspring.jobs"]
        assert [record.levelname for record in records] == ["INFO", "WARNING"] * 2
        assert "begun number=7" in records[0].getMessage()
        assert vars(records[2]).items() >= {
            "job_id": str(job.id), "task": "tell", "queue": "talk", "attempt": 2,
            "worker": info.worker, "trace_id": job.id.hex,
        }.items()  # fmt: skip

    def test_log_lines_are_capped(self, app: Mainspring) -> None:
        @app.task(name="chatty")
        async def chatty(ctx: AsyncContext) -> None:
            for n in range(1_300):
                ctx.log(f"line {n}")
            ctx.log("x" * 10_000)

        with app.worker():
            job = chatty.enqueue()
            job.join(timeout=LIMIT)
        lines = job.logs()
        assert len(lines) == 1_000
        assert lines[-2].text == "line 1299"
        assert len(lines[-1].text) <= 4_000

    def test_log_lines_hide_values_that_look_secret(self, app: Mainspring) -> None:
        @app.task(name="careless")
        def careless(ctx: Context) -> None:
            ctx.log("connecting to postgresql://shop:hunter2@db/shop", password="hunter2")

        with app.worker():
            job = careless.enqueue()
            job.join(timeout=LIMIT)
        assert "hunter2" not in job.logs()[0].text

    def test_a_log_line_with_an_unknown_level_is_refused(self) -> None:
        with pytest.raises(InvalidOption, match="loud"):
            Context.local("t").log("hello", level="loud")


@pytest.mark.row("G1")
def test_log_fields_name_the_job_in_its_task_and_threads(app: Mainspring) -> None:
    """In the job's task, in its thread, in ``asyncio.to_thread``, and in a thread started through ``ctx.bind``."""
    found: dict[str, Any] = {}

    def look(where: str) -> None:
        found[where] = log_fields()

    @app.task(name="in_thread")
    def in_thread(ctx: Context) -> None:
        look("thread")
        own = threading.Thread(target=ctx.bind(look), args=("bound",))
        own.start()
        own.join()

    @app.task(name="on_loop", queue="quick")
    async def on_loop(ctx: AsyncContext) -> None:
        look("task")
        await asyncio.create_task(_below(look))
        await asyncio.to_thread(look, "to_thread")

    jobs = {"in_thread": in_thread.enqueue(), "on_loop": on_loop.enqueue()}
    with app.worker():
        infos = {name: job.join(timeout=LIMIT) for name, job in jobs.items()}
    assert set(found) == {"thread", "bound", "task", "below", "to_thread"}
    for where, fields in found.items():
        task = "in_thread" if where in ("thread", "bound") else "on_loop"
        assert fields == {
            "job_id": str(jobs[task].id), "task": task, "queue": infos[task].queue, "attempt": 1,
            "worker": infos[task].worker, "trace_id": jobs[task].id.hex,
        }  # fmt: skip
    assert log_fields() is None


async def _below(look: Any) -> None:
    look("below")


@pytest.mark.row("W11")
class TestGivingUp:
    def test_discard_makes_the_job_dead_without_a_retry(self, app: Mainspring) -> None:
        @app.task(name="hopeless", retries=5, backoff="1ms")
        def hopeless(ctx: Context) -> None:
            raise Discard("no such customer")

        with app.worker():
            info = hopeless.enqueue().join(timeout=LIMIT)
        assert (info.state, info.reason, info.attempt) == (State.DEAD, Reason.NOT_RETRYABLE, 1)
        assert info.error is not None
        assert "no such customer" in info.error.message

    def test_snooze_runs_the_job_later_and_uses_no_attempt(self, app: Mainspring) -> None:
        ran: list[int] = []

        @app.task(name="patient", retries=0)
        async def patient(ctx: AsyncContext) -> int:
            ran.append(ctx.attempt)
            if len(ran) < 3:
                raise Snooze("20ms")
            return len(ran)

        with app.worker():
            assert patient.enqueue().result(timeout=LIMIT) == 3
        assert ran == [1, 1, 1]


@pytest.mark.row("W11")
class TestChildren:
    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_spawned_jobs_are_linked_and_not_spawned_again_by_a_retry(self, app: Mainspring, colour: str) -> None:
        @app.task(name="child")
        async def child(ctx: AsyncContext, n: int) -> str:
            return ctx.trace_id

        def calls() -> list[Call[str]]:
            return [child.s(1), child.s(2), child.s(1)]

        made: list[list[UUID]] = []
        if colour == "def":

            @app.task(name="parent", retries=2, backoff="10ms")
            def parent(ctx: Context) -> str:
                made.append([ctx.spawn(call).id for call in calls()])
                if ctx.attempt < 3:
                    raise ValueError("after the children were made")
                return ctx.trace_id

            job = parent.enqueue()
        else:

            @app.task(name="parent", retries=2, backoff="10ms")
            async def aparent(ctx: AsyncContext) -> str:
                made.append([(await ctx.spawn(call)).id for call in calls()])
                if ctx.attempt < 3:
                    raise ValueError("after the children were made")
                return ctx.trace_id

            job = aparent.enqueue()
        with app.worker():
            trace = job.result(timeout=LIMIT)
            assert made[0] == made[1] == made[2], "each attempt found the children of the first"
            assert len(set(made[0])) == 3, "two equal calls of one attempt are two children"
            children = [app.jobs.get(each) for each in made[0]]
            assert [each.result(timeout=LIMIT) for each in children] == [trace] * 3
        found = app.jobs.list(Query.where(parent=job.id)).jobs
        assert {each.id for each in found} == set(made[0])
        assert {each.parent for each in found} == {job.id}
        assert {each.trace for each in found} == {trace} == {job.id.hex}
        assert app.jobs.count(Query.where(tasks=["child"])).total == 3

    @pytest.mark.parametrize("keep", [None, "1h"])
    def test_a_keyed_call_that_got_another_job_is_no_child(self, app: Mainspring, keep: str | None) -> None:
        """The retry makes it when the key is free: with ``keep=`` the key is not."""
        ran: list[int] = []

        @app.task(name="child", key=Key.arguments(keep=keep))
        def child(n: int) -> None:
            ran.append(n)

        @app.task(name="parent", retries=1, backoff="10ms")
        def parent(ctx: Context) -> list[str]:
            made = [ctx.spawn(child.s(5)), ctx.spawn(child.s(5))]
            if ctx.attempt == 1:
                assert made[0].id == made[1].id
                made[0].join(timeout=LIMIT)
                raise ValueError("after the child has ended")
            return [str(job.id) for job in made]

        with app.worker():
            first, second = parent.enqueue().result(timeout=LIMIT)
            for each in (first, second):
                app.jobs.get(each).join(timeout=LIMIT)
        assert (first == second) is (keep is not None)
        assert ran == ([5] if keep else [5, 5])

    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_a_task_in_the_place_of_a_call_is_refused(self, app: Mainspring, colour: str) -> None:
        @app.task(name="child")
        async def child() -> None: ...

        wrong: Any = child
        if colour == "def":

            @app.task(name="parent", retries=3)
            def parent(ctx: Context) -> None:
                ctx.spawn(wrong)

            job = parent.enqueue()
        else:

            @app.task(name="parent", retries=3)
            async def aparent(ctx: AsyncContext) -> None:
                await ctx.spawn(wrong)

            job = aparent.enqueue()
        match = r"(?s)ctx\.spawn: call=.*is not a call.*ctx\.spawn\(child\.s\(\.\.\.\)\)"
        with app.worker(), pytest.raises(JobDead, match=r"is not a call") as dead:
            job.result(timeout=LIMIT)
        assert dead.value.reason == Reason.NOT_RETRYABLE
        mistakes: tuple[Any, ...] = (wrong, print, "shop.child")
        for mistake in mistakes:
            with pytest.raises(InvalidOption, match=match if mistake is wrong else r"ctx\.spawn: call=.*is not a call"):
                Context.local("parent").spawn(mistake)

    def test_a_retry_by_hand_spawns_new_children(self, app: Mainspring) -> None:
        @app.task(name="child")
        async def child() -> None: ...

        @app.task(name="parent")
        def parent(ctx: Context) -> str:
            return str(ctx.spawn(child.s()).id)

        with app.worker():
            job = parent.enqueue()
            first = job.result(timeout=LIMIT)
            job.retry()
            second = job.result(timeout=LIMIT)
        assert first != second

    def test_spawned_jobs_have_their_own_options_and_the_trace_of_the_root(self, app: Mainspring) -> None:
        @app.task(name="grandchild", queue="c")
        async def grandchild(ctx: AsyncContext) -> tuple[str, tuple[str, ...], dict[str, Any]]:
            return ctx.trace_id, ctx.tags, ctx.meta

        @app.task(name="child", queue="b")
        async def child(ctx: AsyncContext) -> str:
            made = await ctx.spawn(grandchild.options(tags=["late"], meta={"n": 1}, delay="20ms").s())
            return str(made.id)

        @app.task(name="parent", queue="a")
        def parent(ctx: Context) -> str:
            return str(ctx.spawn(child.s()).id)

        with app.worker():
            job = parent.enqueue()
            made = app.jobs.get(job.result(timeout=LIMIT))
            last = app.jobs.get(made.result(timeout=LIMIT))
            assert last.result(timeout=LIMIT) == (job.id.hex, ("late",), {"n": 1})
        assert last.info().parent == made.id
        assert app.jobs.count(Query.where(tags=["late"])).total == 1

    def test_spawn_in_a_plain_call_enqueues_a_job_without_a_parent(self, app: Mainspring) -> None:
        @app.task(name="child")
        async def child() -> None: ...

        @app.task(name="parent")
        def parent(ctx: Context) -> UUID:
            return ctx.spawn(child.s()).id

        info = app.jobs.get(parent()).info()
        assert (info.state, info.parent) == (State.READY, None)


def test_context_attributes_show_task_tags_meta_and_trace(app: Mainspring) -> None:
    @app.task(name="look", tags=["t"], meta={"a": 1})
    def look(ctx: Context) -> dict[str, Any]:
        return {"task": ctx.task, "tags": list(ctx.tags), "meta": ctx.meta, "trace": ctx.trace_id}

    with app.worker():
        job = look.options(tags=["j"], meta={"b": [2]}).enqueue()
        said = job.result(timeout=LIMIT)
    assert said == {"task": "look", "tags": ["t", "j"], "meta": {"a": 1, "b": [2]}, "trace": job.id.hex}


def test_a_local_context_has_the_attributes_of_a_job_and_checks_what_is_sent() -> None:
    ctx = Context.local("look")
    assert (ctx.task, ctx.tags, ctx.meta, ctx.trace_id) == ("look", (), {}, ctx.job_id.hex)
    assert (ctx.schedule, ctx.occurrence) == (None, None)
    ctx.send({"a": 1})
    ctx.progress(1)
    ctx.log("hello", level="error")
    with pytest.raises(InvalidOption, match="send"):
        ctx.send(object())


@pytest.mark.parametrize("name", ["step", "sleep", "wait_event", "transaction", "checkpoint", "resume"])
def test_context_attributes_that_are_not_built_raise_not_built(name: str) -> None:
    with pytest.raises(NotBuilt):
        getattr(Context.local("t"), name)
