"""Locks in test mode: on the private store, by the test's clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import LockBusy, LockLost, StoreUnavailable
from mainspring.limits.records import HoldResult
from mainspring.stores.door import Door
from mainspring.testing import TestApp


@pytest.fixture
def app() -> Mainspring:
    """Its own store can never be reached: whatever works, works on the private one."""
    return Mainspring("postgresql://nobody@127.0.0.1:1/nothing")


@pytest.mark.row("L1", "B12")
def test_locks_use_the_store_of_the_test(app: Mainspring) -> None:
    lock = app.lock("nightly", ttl="30s")
    with app.test(), lock:
        assert [info.name for info in app.locks.list()] == ["nightly"]
        with pytest.raises(LockBusy):
            app.lock("nightly").acquire()
    with app.test():
        assert not lock.is_locked()


@pytest.mark.row("L3", "B12")
def test_the_test_clock_decides_when_a_lock_is_lost(app: Mainspring) -> None:
    """Moving the clock past the ttl is the same as stopping the holder, so a test needs no waiting."""
    with app.test() as t:
        lock = app.lock("nightly", ttl="30s")
        lock.acquire()
        t.clock.advance("29s")
        assert not lock.lost
        lock.extend("1h")
        t.clock.advance("59m")
        assert not lock.lost
        t.clock.advance("1m")
        assert lock.lost
        with app.lock("nightly") as next_one:
            assert next_one.token > lock.token
            with pytest.raises(LockLost):
                lock.release()


@pytest.mark.row("L3", "B12")
async def test_a_lost_lock_cancels_async_code_in_a_test(app: Mainspring) -> None:
    async with app.test() as t:

        @app.lock("nightly", ttl="30s")
        async def work() -> None:
            t.clock.advance("31s")
            await asyncio.Event().wait()  # for ever, unless it is cancelled

        with pytest.raises(LockLost):
            await work()


@pytest.mark.row("L4", "B12")
def test_jobs_take_locks_in_a_test(app: Mainspring) -> None:
    called = []

    @app.task(name="locks.report")
    @app.lock("nightly", on_busy="skip")
    def report() -> None:
        called.append(1)

    with app.test() as t:
        with app.lock("nightly"):
            report.enqueue()
            assert t.drain().succeeded == 1
        assert called == []
        report.enqueue()
        t.drain()
        assert called == [1]


@pytest.mark.row("L5", "B12")
async def test_elections_work_in_a_test(app: Mainspring) -> None:
    said: list[tuple[str, int]] = []
    elected = asyncio.Event()

    async def begin(term: int) -> None:
        said.append(("elected", term))
        elected.set()

    it = app.election("main", elected=begin, lost=lambda term: said.append(("lost", term)))
    async with app.test() as t, it:
        await elected.wait()
        elected.clear()
        t.clock.advance("31s")
        assert not it.leader
        await elected.wait()
        assert it.leader
    assert [word for word, _ in said] == ["elected", "lost", "elected", "lost"]
    assert said[0][1] == said[1][1] < said[2][1] == said[3][1]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Callable[[TestApp, str], None]:
    """``slow(t, "10s")``: the store takes this long to answer a hold."""

    def slow(t: TestApp, seconds: str) -> None:
        hold = Door.hold

        async def late(*args: Any, **named: Any) -> HoldResult:
            said = await hold(*args, **named)
            t.clock.advance(seconds)
            return said

        monkeypatch.setattr(Door, "hold", late)

    return slow


@pytest.mark.row("L3", "B12")
def test_the_ttl_counts_from_the_sending_of_the_request(app: Mainspring, slow: Callable[[TestApp, str], None]) -> None:
    """The ttl in the store begins later, so no other holder is admitted before this holder knows of its loss."""
    with app.test() as t:
        lock = app.lock("nightly", ttl="30s")
        slow(t, "10s")
        lock.acquire()
        t.clock.advance("19s")
        assert not lock.lost
        t.clock.advance("1s")
        assert lock.lost
        with pytest.raises(LockLost):
            lock.release()


@pytest.mark.row("L1", "B12")
def test_a_reply_that_arrives_after_the_ttl_is_a_lost_lock(
    app: Mainspring, slow: Callable[[TestApp, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with app.test() as t:
        slow(t, "31s")
        with pytest.raises(StoreUnavailable, match="took longer than the ttl") as caught:
            app.lock("nightly", ttl="30s").acquire()
        assert "longer ttl" in caught.value.hint
        monkeypatch.undo()
        with app.lock("nightly"):
            pass
