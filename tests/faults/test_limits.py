"""Limits while calls are cut short and wake-ups are lost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mainspring import Concurrency, Mainspring
from mainspring.errors import StoreUnavailable
from mainspring.jobs.job import Job
from mainspring.stores.door import Door
from mainspring.stores.redis.driver.scripts import script
from mainspring.testing import chaos
from tests.timing import patience, short_settings

ROUNDS = 200


@pytest.fixture
def other(store_url: str) -> Iterator[Mainspring]:
    """Another process, as the store sees it."""
    app = Mainspring(store_url)
    yield app
    app.close()


def enqueue_limited(app: Mainspring) -> Job[Any]:
    @app.task(name="limits.slow", limit=Concurrency(1, by="who"))
    def slow(who: str) -> None: ...

    return slow.enqueue("a")


def read_everything(app: Mainspring, job: Job[Any]) -> None:
    """What ``mainspring status``, ``workers ls``, ``limits ls`` and ``explain`` read."""
    assert app.workers.list() == []
    assert {each.kind for each in job.why().obstacles} == {"no_worker"}
    assert app.schedules.list() == []
    assert app.limits.get("limits.slow:at-once/who").declared == 1


@pytest.mark.row("R11", "B5")
def test_reads_succeed_while_limits_are_changed(store_url: str, other: Mainspring) -> None:
    app, over = Mainspring(store_url), threading.Event()
    job = enqueue_limited(app)
    changes = 0

    def change_limits() -> None:
        nonlocal changes
        while not over.is_set():
            changes += 1
            app.limits.set("limits.slow:at-once/who", 1 + changes % 7)

    setter = threading.Thread(target=change_limits)
    setter.start()
    try:
        for _ in range(ROUNDS):
            read_everything(other, other.jobs.get(job.id))
    finally:
        over.set()
        setter.join()
        app.close()
    assert changes > 1


@pytest.mark.row("R11", "B5")
@pytest.mark.stores("postgres", "redis")
def test_reads_succeed_after_a_change_of_a_limit_was_cut_short(
    store_name: str, store_url: str, other: Mainspring
) -> None:
    """The process that sets the limit is gone after its first statement, and no worker runs that could finish."""
    job = enqueue_limited(other)
    request = script("set_limit_size").sha.encode() if store_name == "redis" else b"set_limit_size_v1"
    with chaos.Proxy(store_url) as wire:
        app = Mainspring(wire.url)
        app.limits.reset("limits.slow:at-once/who")  # the server knows the script from now on
        drop = wire.set(chaos.DropReply(to=request))
        with pytest.raises(StoreUnavailable):
            app.limits.set("limits.slow:at-once/who", 5)
        assert drop.dropped == 1
        app.close()
    read_everything(other, job)
    assert other.limits.get("limits.slow:at-once/who").size == 5


class DeafListener:
    """A listener whose connection is half open: no wake-up arrives, and no error."""

    is_always_woken = False

    async def wait(self, timeout: float) -> bool:
        await asyncio.sleep(timeout)
        return False

    def close(self) -> None: ...


@pytest.fixture
def deaf(store_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mainspring]:
    """An app whose workers get no wake-up, and poll too seldom to be of any use."""

    async def listen(*_: object) -> DeafListener:
        return DeafListener()

    monkeypatch.setattr(Door, "listen", listen)
    app = Mainspring(store_url, **{**short_settings(), "poll": "30m"})
    yield app
    app.close()


LIMITS = {
    "unkeyed": Concurrency(3),
    "one at a time": Concurrency(1),
    "keyed": Concurrency(1, by="n"),
    "both": [Concurrency(3), Concurrency(1, by="n")],
}


@pytest.mark.row("R11")
@pytest.mark.parametrize("limit", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("colour", ["async", "thread"])
def test_a_worker_without_wake_ups_uses_the_capacity_that_it_frees(deaf: Mainspring, limit: Any, colour: str) -> None:
    """Its own acks free the capacity, so it looks again at once."""

    def work(n: int) -> None:
        time.sleep(0.01)

    async def awork(n: int) -> None:
        await asyncio.sleep(0.01)

    task = deaf.task(name="limits.work", limit=limit)(work if colour == "thread" else awork)
    jobs = deaf.enqueue_many(task.s(n % 5) for n in range(30))
    with deaf.worker():
        for job in jobs:
            job.join(timeout=patience(10))


@pytest.mark.row("R8")
def test_a_worker_without_wake_ups_goes_on_after_its_probe_closed_a_breaker(deaf: Mainspring) -> None:
    calls = 0

    @deaf.task(name="limits.probe", breaker={"failures": 1, "open_for": "200ms"}, retries=0)
    def work() -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise ConnectionError("away")

    first = work.enqueue()
    with deaf.worker(thread_slots=1):
        assert first.join(timeout=patience(10)).state == "dead"
        jobs = deaf.enqueue_many(work.s() for _ in range(5))
    with deaf.worker():
        for job in jobs:
            assert job.join(timeout=patience(10)).state == "succeeded"
