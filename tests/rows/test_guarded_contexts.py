"""R8: blocks that a breaker guards, where contexts are copied, blocks are left elsewhere, or entering is cut short."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars

import pytest

from mainspring import BreakerOpen, Concurrency, Mainspring
from mainspring.errors import InvalidOption, WouldBlockLoop
from tests.rows.crew import until

pytestmark = pytest.mark.row("R8")


def test_a_block_can_be_left_in_another_context(app: Mainspring) -> None:
    """Some frameworks enter and leave a generator in copies of their context."""
    api = app.breaker("api", failures=1, open_for="1h")
    contextvars.copy_context().run(api.__enter__)
    contextvars.copy_context().run(api.__exit__, None, ConnectionError("away"), None)
    assert app.breakers.get("api").state == "open"


@pytest.mark.asyncio
async def test_a_task_that_outlives_its_block_enters_the_breaker_itself(app: Mainspring) -> None:
    api = app.breaker("api", failures=1, open_for="1h")
    left = asyncio.Event()

    async def later() -> None:
        await left.wait()
        with pytest.raises(OSError, match="away"):
            async with api:
                raise OSError("away")
        with pytest.raises(BreakerOpen):
            async with api:
                pass

    async with api:
        task = asyncio.create_task(later())
    left.set()
    await task


@pytest.mark.asyncio
async def test_a_probe_cancelled_while_it_enters_releases_its_place(
    app: Mainspring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release runs in the background. ``until`` fails if a place is still taken: its ttl is an hour here."""
    monkeypatch.setattr("mainspring.limits.holder.TTL", 3600_000_000)
    api = app.breaker("api", open_for="1ms")
    async with api:
        pass
    await app.breakers.atrip("api", "1ms")
    await asyncio.sleep(0.01)

    async def probe() -> None:
        async with api:
            await asyncio.sleep(3600)

    for n in range(20):
        task = asyncio.create_task(probe())
        await asyncio.sleep(n * 0.0005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, BreakerOpen):
            await task
    await asyncio.to_thread(until, lambda: app.breakers.get("api").probing == 0, "no place is taken")


@pytest.mark.asyncio
async def test_a_blocking_block_in_a_loop_is_refused_with_the_async_form(app: Mainspring) -> None:
    with pytest.raises(WouldBlockLoop, match="async with <Breaker api>"), app.breaker("api"):
        pass


def test_trip_reset_and_get_accept_the_breaker_object(app: Mainspring) -> None:
    api = app.breaker("api")
    with api:
        pass
    app.breakers.trip(api)
    assert app.breakers.get(api).state == "open"
    app.breakers.reset(api)
    with pytest.raises(InvalidOption, match="breaker=5"):
        app.breakers.reset(5)  # type: ignore[arg-type]


def test_two_breakers_cannot_have_one_name(app: Mainspring) -> None:
    app.breaker("api", failures=3)
    app.breaker("api", failures=3)
    with pytest.raises(InvalidOption, match="with other options"):
        app.breaker("api")


def test_a_name_with_an_equals_sign_is_refused(app: Mainspring) -> None:
    """The store reads the text after ``=`` as a key, so such a limit would not limit anything."""
    with pytest.raises(InvalidOption, match="contains a ="):
        app.breaker("a=b")
    with pytest.raises(InvalidOption, match="contains a ="):
        app.limiter("a=b", Concurrency(1))
    with pytest.raises(InvalidOption, match="contains a ="):
        app.task(name="a=b", limit=Concurrency(1))(lambda: None)
    with pytest.raises(InvalidOption, match="contains a ="):
        app.task(name="a=b", breaker={})(lambda: None)
