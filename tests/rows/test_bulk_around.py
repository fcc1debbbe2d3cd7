"""W16: what applies to a call of a bulk task as a whole, and what belongs to each of its jobs."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import pytest

from mainspring import AsyncContext, Context, Depends, Event, Key, Mainspring, Middleware
from mainspring.errors import JobDead, NotOpen, SoftTimeout
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.rows.crew import until

LIMIT = 60

pytestmark = pytest.mark.row("W16")


class TestContext:
    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_each_item_has_the_context_of_its_job(self, app: Mainspring, colour: str) -> None:
        def tell(jobs: Sequence[Context], items: list[int]) -> list[UUID]:
            for each, item in zip(jobs, items, strict=True):
                each.progress(item, 10, f"item {item}")
                each.log(f"line of {item}")
            return [each.job_id for each in jobs]

        @app.bulk_task(name="plain", size=3, wait="1h")
        def plain(ctx: Context, items: list[int]) -> list[UUID]:
            return tell(ctx.jobs, items)

        @app.bulk_task(name="awaited", size=3, wait="1h")
        async def awaited(ctx: AsyncContext, items: list[int]) -> list[UUID]:
            return tell(ctx.jobs, items)

        task: Any = plain if colour == "def" else awaited
        jobs = task.enqueue_many(task.s(n) for n in range(3))
        with app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs] == [job.id for job in jobs]
        for n, job in enumerate(jobs):
            progress = job.info().progress
            assert progress is not None
            assert (progress["done"], progress["note"]) == (n, f"item {n}")
            assert [line.text for line in job.logs()] == [f"line of {n}"]

    @pytest.mark.stores("sqlite")
    def test_attributes_of_one_job_are_refused_on_the_context_of_the_call(self, app: Mainspring) -> None:
        said: list[str] = []

        @app.bulk_task(name="bulk")
        def bulk(ctx: Context, items: list[int]) -> list[bool]:
            assert Context.current() is ctx
            for name in ("job_id", "meta", "progress", "spawn"):
                with pytest.raises(NotOpen, match=rf"ctx\.jobs\[i\]\.{name}") as refused:
                    getattr(ctx, name)
                said.append(str(refused.value))
            ctx.check()
            assert ctx.deadline is not None
            return [ctx.cancelled for _ in items]

        job = bulk.enqueue(1)
        with app.worker():
            assert job.result(timeout=LIMIT) is False
        assert len(said) == 4

    @pytest.mark.stores("sqlite")
    def test_log_records_name_the_call_or_the_job(self, app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
        @app.bulk_task(name="bulk", size=2, wait="1h")
        def bulk(ctx: Context, items: list[int]) -> list[None]:
            ctx.logger.warning("of the call")
            ctx.jobs[1].logger.warning("of the second")
            return [None, None]

        jobs = bulk.enqueue_many([bulk.s(1), bulk.s(2)])
        with app.worker():
            jobs[1].result(timeout=LIMIT)
        found = {record.getMessage(): vars(record) for record in caplog.records if record.levelno == logging.WARNING}
        assert (found["of the call"]["task"], found["of the call"]["jobs"]) == ("bulk", 2)
        assert found["of the second"]["job_id"] == str(jobs[1].id)


class TestAround:
    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_middleware_and_dependencies_run_once_for_the_call(self, app: Mainspring, colour: str) -> None:
        seen: list[str] = []

        class Around(Middleware):
            def run(self, ctx: Context, body: Callable[[], Any]) -> Any:
                seen.append(f"before {len(ctx.jobs)} of {ctx.task}")
                return [f"{each}!" for each in body()]

            async def arun(self, ctx: AsyncContext, body: Callable[[], Awaitable[Any]]) -> Any:
                seen.append(f"before {len(ctx.jobs)} of {ctx.task}")
                return [f"{each}!" for each in await body()]

        def session() -> Iterator[str]:
            seen.append("open")
            yield "db"
            seen.append("close")

        app.middleware(Around())
        declare = app.bulk_task(name="bulk", size=3, wait="1h")
        if colour == "def":

            @declare
            def plain(items: list[int], db: str = Depends(session)) -> list[str]:
                seen.append("body")
                return [f"{db} {item}" for item in items]

            jobs = plain.enqueue_many(plain.s(n) for n in range(3))
        else:

            @declare
            async def awaited(items: list[int], db: str = Depends(session)) -> list[str]:
                seen.append("body")
                return [f"{db} {item}" for item in items]

            jobs = awaited.enqueue_many(awaited.s(n) for n in range(3))
        with app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs] == ["db 0!", "db 1!", "db 2!"]
        assert seen == ["before 3 of bulk", "open", "body", "close"]

    def test_hooks_are_called_for_each_job(self, app: Mainspring) -> None:
        heard: list[tuple[str, UUID]] = []

        @app.on("started", "succeeded", "failed", "dead")
        def hear(event: Event) -> None:
            heard.append((event.name, event.job))

        @app.bulk_task(name="bulk", size=2, wait="1h", retries=0)
        def bulk(items: list[int]) -> list[Any]:
            return [ValueError("no") if item else item for item in items]

        good, bad = bulk.enqueue_many([bulk.s(0), bulk.s(1)])
        with app.worker():
            good.join(timeout=LIMIT)
            bad.join(timeout=LIMIT)
        wanted = [("started", good), ("succeeded", good), ("started", bad), ("failed", bad), ("dead", bad)]
        assert sorted(heard, key=str) == sorted([(name, job.id) for name, job in wanted], key=str)

    def test_keys_and_follow_ups_belong_to_each_job(self, app: Mainspring) -> None:
        followed: list[UUID] = []

        @app.task(name="follow")
        def follow(job: UUID) -> None:
            followed.append(job)

        @app.bulk_task(name="bulk", key=Key.arguments("item"), on_success=follow)
        def bulk(items: list[int]) -> list[int]:
            return items

        first, second, again = (bulk.enqueue(n) for n in (1, 2, 1))
        assert again.id == first.id
        with app.worker():
            assert (first.result(timeout=LIMIT), second.result(timeout=LIMIT)) == (1, 2)
            until(lambda: len(followed) == 2, "both are followed")
        assert sorted(followed) == sorted([first.id, second.id])


class TestLimits:
    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_the_shortest_time_limit_of_the_jobs_is_the_limit_of_the_call(self, app: Mainspring, colour: str) -> None:
        never = threading.Event()
        calls: list[int] = []

        @app.bulk_task(name="plain", size=3, wait="200ms", retries=1, backoff="10ms")
        def plain(items: list[int]) -> list[int]:
            calls.append(len(items))
            while len(calls) == 1 and not never.wait(0.01):
                pass
            return items

        @app.bulk_task(name="awaited", size=3, wait="200ms", retries=1, backoff="10ms")
        async def awaited(items: list[int]) -> list[int]:
            calls.append(len(items))
            await asyncio.sleep(600 if len(calls) == 1 else 0)
            return items

        task: Any = plain if colour == "def" else awaited
        limits = enumerate(("10m", "300ms", None))
        jobs = task.enqueue_many(task.s(n).options(timeout=limit) for n, limit in limits)
        with app.worker():
            assert [job.result(timeout=LIMIT) for job in jobs] == [0, 1, 2]
        for job in jobs:
            assert [attempt.outcome for attempt in job.info().attempts] == [Outcome.TIMED_OUT]
        assert calls[0] == 3

    @pytest.mark.stores("sqlite")
    @pytest.mark.parametrize("colour", ["def", "async def"])
    def test_the_soft_limit_raises_in_the_handler_of_the_call(self, app: Mainspring, colour: str) -> None:
        never = threading.Event()

        @app.bulk_task(name="plain", size=2, wait="1h", retries=0, soft_timeout="200ms")
        def plain(items: list[int]) -> list[Any]:
            try:
                while not never.wait(0.01):
                    pass
            except SoftTimeout as late:
                return ["in time", late]
            return items

        @app.bulk_task(name="awaited", size=2, wait="1h", retries=0, soft_timeout="200ms")
        async def awaited(items: list[int]) -> list[Any]:
            try:
                await asyncio.sleep(600)
            except SoftTimeout as late:
                return ["in time", late]
            return items

        task: Any = plain if colour == "def" else awaited
        done, late = task.enqueue_many([task.s(1), task.s(2)])
        with app.worker():
            assert done.result(timeout=LIMIT) == "in time"
            assert late.join(timeout=LIMIT).reason is Reason.TIMED_OUT


def test_an_item_that_cannot_be_decoded_is_dead_and_the_others_run(app: Mainspring, store_url: str) -> None:
    stranger = Mainspring(store_url)
    bad = stranger.call("bulk", "two").enqueue()
    stranger.close()
    calls: list[list[int]] = []

    @app.bulk_task(name="bulk", size=3, wait="1h")
    def bulk(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    jobs = bulk.enqueue_many([bulk.s(1), bulk.s(3)])
    with app.worker():
        assert [job.result(timeout=LIMIT) for job in jobs] == [1, 3]
        assert app.jobs.get(bad.id).join(timeout=LIMIT).reason is Reason.UNDECODABLE
    assert [sorted(call) for call in calls] == [[1, 3]]


def test_an_item_without_the_value_of_by_fails_alone(app: Mainspring, store_url: str) -> None:
    """A producer that enqueues by name cannot check the item."""
    stranger = Mainspring(store_url)
    bad = stranger.call("bulk", {"no": "tenant"}).enqueue()
    stranger.close()

    @app.bulk_task(name="bulk", by="tenant", retries=1, backoff="10ms")
    def bulk(items: list[dict[str, str]]) -> list[str]:
        return [item["tenant"] for item in items]

    good = bulk.enqueue({"tenant": "a"})
    with app.worker():
        assert good.result(timeout=LIMIT) == "a"
        with pytest.raises(JobDead, match="tenant"):
            app.jobs.get(bad.id).result(timeout=LIMIT)
    assert len(app.jobs.get(bad.id).info().attempts) == 2


@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("inline", [False, True])
def test_a_test_app_starts_a_call_without_waiting_for_more_items(app: Mainspring, inline: bool) -> None:
    calls: list[list[int]] = []

    @app.bulk_task(name="bulk", size=10, wait="1h")
    async def bulk(items: list[int]) -> list[int]:
        calls.append(items)
        return items

    with app.test(inline=inline) as t:
        jobs = [bulk.enqueue(n) for n in range(3)]
        t.drain()
        assert [job.result() for job in jobs] == [0, 1, 2]
        assert {job.info().state for job in jobs} == {State.SUCCEEDED}
    assert calls == ([[0], [1], [2]] if inline else [[0, 1, 2]])
