"""A body that waits for another job lends its slot: parents never keep their children from running."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from typing import Any

import pytest

from mainspring import Concurrency, Context, Mainspring
from mainspring.errors import JobDead
from mainspring.states import Reason, State

LIMIT = 60


@pytest.mark.parametrize("waiting", ["result", "join"])
def test_parents_in_every_thread_slot_get_the_results_of_their_children(
    app: Mainspring, waiting: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="child")
    def child(n: int) -> int:
        return n + 1

    @app.task(name="parent")
    def parent(n: int) -> int:
        job = child.enqueue(n)
        if waiting == "join":
            assert job.join(timeout=LIMIT).state is State.SUCCEEDED
        return job.result(timeout=LIMIT) * 10

    with app.worker(thread_slots=2):
        jobs = [parent.enqueue(n) for n in range(5)]
        assert [job.result(timeout=LIMIT) for job in jobs] == [10, 20, 30, 40, 50]
    [warning] = [line for line in caplog.messages if "waits for another job" in line]
    assert "'parent'" in warning
    assert "ctx.spawn" in warning
    assert "a flow" in warning


def test_async_parents_in_every_slot_get_the_results_of_their_children(app: Mainspring) -> None:
    @app.task
    async def child(n: int) -> int:
        return n + 1

    @app.task
    async def parent(n: int) -> int:
        jobs = [await child.aenqueue(n), await child.aenqueue(n)]
        return sum(await asyncio.gather(*(job.aresult(timeout=LIMIT) for job in jobs)))

    with app.worker(async_slots=1):
        jobs = [parent.enqueue(n) for n in range(4)]
        assert [job.result(timeout=LIMIT) for job in jobs] == [2, 4, 6, 8]


@pytest.mark.parametrize("options", [{"thread_slots": 1}, {"concurrency": {"default": 1}}, {"concurrency": 1}], ids=str)
def test_a_chain_of_waiting_jobs_ends_with_one_slot(app: Mainspring, options: dict[str, Any]) -> None:
    @app.task(name="dig")
    def dig(depth: int) -> int:
        return 1 + dig.enqueue(depth - 1).result(timeout=LIMIT) if depth else 0

    @app.task(name="async_dig")
    async def async_dig(depth: int) -> int:
        return await (await dig.aenqueue(depth)).aresult(timeout=LIMIT)

    with app.worker(**options):
        assert dig.enqueue(8).result(timeout=LIMIT) == 8
        assert async_dig.enqueue(3).result(timeout=LIMIT) == 3


def test_after_the_waits_a_worker_runs_no_more_bodies_than_it_has_slots(app: Mainspring) -> None:
    lock, running, most = threading.Lock(), Counter[str](), Counter[str]()

    @app.task
    def child() -> None: ...

    @app.task
    def parent() -> None:
        child.enqueue().result(timeout=LIMIT)

    @app.task
    def count() -> None:
        with lock:
            running["now"] += 1
            most["ever"] = max(most["ever"], running["now"])
        time.sleep(0.02)
        with lock:
            running["now"] -= 1

    with app.worker(thread_slots=2):
        for job in [parent.enqueue() for _ in range(6)]:
            job.result(timeout=LIMIT)
        for job in [count.enqueue() for _ in range(4)]:  # threads above the number of slots end with their next body
            job.result(timeout=LIMIT)
        most.clear()
        for job in [count.enqueue() for _ in range(20)]:
            job.result(timeout=LIMIT)
        names = [each.name for each in threading.enumerate() if each.name.startswith("mainspring-slot")]
    assert most["ever"] <= 2
    assert len(names) <= 2


def test_a_time_limit_ends_a_body_that_waits(app: Mainspring) -> None:
    """The wait is interrupted, so the body ends, and its slot is free for the next job."""

    @app.task(queue="nowhere")
    def child() -> None: ...

    @app.task(timeout="300ms", retries=0)
    def parent() -> None:
        child.enqueue().result()

    @app.task
    def after() -> str:
        return "here"

    with app.worker(thread_slots=1, queues=["default"]):
        info = parent.enqueue().join(timeout=LIMIT)
        assert (info.state, info.reason) == (State.DEAD, Reason.TIMED_OUT)
        assert after.enqueue().result(timeout=LIMIT) == "here"


def dead(job: Any) -> Any:
    with pytest.raises(JobDead) as raised:
        job.result(timeout=LIMIT)
    assert raised.value.reason == Reason.NOT_RETRYABLE
    assert raised.value.type_name.endswith("WouldDeadlock")
    return raised.value


@pytest.mark.parametrize("owner", ["task", "key", "queue"])
def test_waiting_for_a_job_that_needs_the_limit_of_its_parent_is_an_error(app: Mainspring, owner: str) -> None:
    limits: dict[str, Any] = {"task": Concurrency(1), "key": Concurrency(1, by="n"), "queue": None}
    if owner == "queue":
        app.queue("narrow", limit=Concurrency(1))

    @app.task(name="dig", queue="narrow" if owner == "queue" else "default", limit=limits[owner])
    def dig(n: int, other: int) -> int:
        return n if other < 0 else dig.enqueue(other, -1).result(timeout=LIMIT)

    with app.worker():
        error = dead(dig.enqueue(1, 1))
        assert "of size 1" in error.error
        if owner == "key":
            assert dig.enqueue(1, 2).result(timeout=LIMIT) == 2


def test_the_size_of_a_limit_that_an_operator_set_decides_whether_a_wait_is_an_error(app: Mainspring) -> None:
    @app.task(name="dig", limit=Concurrency(1))
    def dig(depth: int) -> int:
        return 1 + dig.enqueue(depth - 1).result(timeout=LIMIT) if depth else 0

    with app.worker():
        assert dig.enqueue(0).result(timeout=LIMIT) == 0
        app.limits.set("dig:at-once", 2)
        assert dig.enqueue(1).result(timeout=LIMIT) == 1
        app.limits.set("dig:at-once", 1)
        assert "of size 1" in dead(dig.enqueue(1)).error


def test_a_job_that_waits_for_itself_is_an_error(app: Mainspring) -> None:
    @app.task
    def selfish(ctx: Context) -> None:
        app.jobs.get(ctx.job_id).result(timeout=LIMIT)

    with app.worker():
        assert "its own end" in dead(selfish.enqueue()).error
