"""R8: breakers around any code: ``with``, ``async with``, decorators; with fallbacks, and in step with jobs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from mainspring import BreakerEvent, BreakerOpen, Mainspring, Snooze
from mainspring.breakers.breaker import Breaker
from mainspring.errors import InvalidOption, UseError
from mainspring.states import State
from tests.rows.crew import LIMIT, until


def fail(breaker: Breaker, error: BaseException, times: int = 1) -> None:
    for _ in range(times):
        with pytest.raises(type(error)), breaker:
            raise error


def is_open(app: Mainspring, name: str = "api") -> bool:
    return app.breakers.get(name).state == "open"


@pytest.mark.row("R8")
class TestBlocks:
    def test_a_breaker_opens_after_failures_and_refuses_blocks(self, app: Mainspring) -> None:
        api = app.breaker("api", failures=3, open_for="1h")
        fail(api, ConnectionError("away"), 2)
        with api:
            pass
        fail(api, ConnectionError("away"), 2)
        assert not is_open(app), "the success between has made them forgotten"
        fail(api, ConnectionError("away"))
        ran = False
        with pytest.raises(BreakerOpen) as caught, api:
            ran = True
        assert not ran
        assert caught.value.breaker == "api"
        assert timedelta(minutes=59) < caught.value.retry_after <= timedelta(hours=1)
        assert "ConnectionError: away" in str(caught.value)

    @pytest.mark.asyncio
    async def test_a_breaker_guards_async_blocks(self, app: Mainspring) -> None:
        api = app.breaker("api", failures=1, open_for="200ms")
        with pytest.raises(OSError, match="away"):
            async with api:
                raise OSError("away")
        with pytest.raises(BreakerOpen):
            async with api:
                pass

        async def tried() -> bool:
            try:
                async with api:
                    return True
            except BreakerOpen as refused:
                await asyncio.sleep(refused.retry_after.total_seconds())
                return False

        async with asyncio.timeout(LIMIT):
            while not await tried():
                pass
        assert (await app.breakers.aget("api")).state == "closed"

    def test_one_probe_runs_at_a_time(self, app: Mainspring) -> None:
        api = app.breaker("api", open_for="1h")
        with api:
            pass
        app.breakers.trip("api", "1ms")
        until(lambda: app.breakers.get("api").state == "half_open")
        refused: list[BaseException] = []

        def other() -> None:
            try:
                with api:
                    pass
            except BreakerOpen as error:
                refused.append(error)

        with api:
            thread = threading.Thread(target=other)
            thread.start()
            thread.join(LIMIT)
            with api:
                """Once more inside of it: this is one passage."""
        assert len(refused) == 1
        assert app.breakers.get("api").state == "closed"

    def test_a_probe_that_fails_opens_the_breaker_again(self, app: Mainspring) -> None:
        heard: list[BreakerEvent] = []
        app.on("breaker_opened", "breaker_half_open", "breaker_closed")(heard.append)
        api = app.breaker("api", open_for="1h")
        with api:
            pass
        app.breakers.trip("api", "1ms")
        until(lambda: app.breakers.get("api").state == "half_open")
        fail(api, ValueError("no"))
        assert is_open(app)
        app.breakers.reset("api")
        until(lambda: len(heard) == 4)
        names = ["breaker_opened", "breaker_half_open", "breaker_opened", "breaker_closed"]
        assert sorted(event.name for event in heard) == sorted(names)

    def test_jobs_and_blocks_share_a_breaker(self, app: Mainspring) -> None:
        api = app.breaker("api", failures=2, open_for="1h")

        @app.task(name="code.call", breaker=api, retries=0)
        def call(well: bool) -> None:
            with api:
                """Inside of a job that it guards it is passed already."""
                if not well:
                    raise ConnectionError("away")

        with app.worker():
            call.enqueue(False).join(timeout=LIMIT)
            assert app.breakers.get("api").failures == 1
            fail(api, ConnectionError("away"))
            waiting = call.enqueue(True)
            until(lambda: any(each.kind == "breaker" for each in waiting.why().obstacles))
            app.breakers.trip("api", "1ms")
            assert waiting.join(timeout=LIMIT).state is State.SUCCEEDED
            until(lambda: app.breakers.get("api").state == "closed")

    def test_a_job_that_meets_an_open_breaker_is_snoozed(self, app: Mainspring) -> None:
        api = app.breaker("api", open_for="1h")
        with api:
            pass

        @app.task(name="code.meet", retries=0)
        def meet() -> None:
            with api:
                pass

        app.breakers.trip("api", "1h")
        job = meet.enqueue()
        with app.worker():
            until(lambda: job.info().state is State.SCHEDULED)
        assert job.info().attempt == 0

    def test_signals_and_errors_outside_trip_on_do_not_count(self, app: Mainspring) -> None:
        api = app.breaker("api", failures=1)
        for error in (KeyboardInterrupt(), Snooze("1s"), BreakerOpen("other", timedelta(seconds=1))):
            fail(api, error)
        assert not is_open(app)
        picky = app.breaker("picky", failures=1, trip_on=TimeoutError)
        fail(picky, ValueError("not this"))
        assert not is_open(app, "picky")
        fail(picky, TimeoutError("this"))
        assert is_open(app, "picky")

    def test_a_breaker_with_a_rate_counts_successes(self, app: Mainspring) -> None:
        """Successes are reported with the failure that follows them."""
        api = app.breaker("api", rate=0.5, minimum=4, open_for="1h")
        for _ in range(5):
            with api:
                pass
        fail(api, ConnectionError("away"), 4)
        info = app.breakers.get("api")
        assert (info.state, info.failures, info.calls) == ("closed", 4, 9)
        fail(api, ConnectionError("away"))
        assert is_open(app)

    def test_blocks_run_while_the_store_is_away(self, caplog: pytest.LogCaptureFixture) -> None:
        away = Mainspring("redis://127.0.0.1:1/0")
        api = away.breaker("api")
        with api:
            pass
        assert "lets every call through" in caplog.text

    def test_a_breaker_cannot_be_pickled(self, app: Mainspring) -> None:
        import pickle

        with pytest.raises(UseError, match="Breaker"):
            pickle.dumps(app.breaker("api"))


@pytest.mark.row("R8")
class TestDecorator:
    def test_a_breaker_decorates_a_function(self, app: Mainspring) -> None:
        @app.breaker("api", failures=1)
        def ask(n: int, *, well: bool = True) -> int:
            """Asks."""
            if not well:
                raise ConnectionError("away")
            return n

        assert ask(3) == 3
        assert (ask.__name__, ask.__doc__) == ("ask", "Asks.")
        with pytest.raises(ConnectionError):
            ask(3, well=False)
        with pytest.raises(BreakerOpen):
            ask(3)

    @pytest.mark.asyncio
    async def test_a_breaker_decorates_a_coroutine_function(self, app: Mainspring) -> None:
        @app.breaker("api", failures=1)
        async def ask(well: bool) -> int:
            if not well:
                raise ConnectionError("away")
            return 3

        assert await ask(True) == 3
        with pytest.raises(ConnectionError):
            await ask(False)
        with pytest.raises(BreakerOpen):
            await ask(True)

    @pytest.mark.option("breaker.fallback")
    def test_a_fallback_answers_while_the_breaker_is_open(self, app: Mainspring) -> None:
        api = app.breaker("api", failures=1, fallback=lambda n, **_: -n)

        @api
        def ask(n: int, well: bool = True) -> int:
            if not well:
                raise ConnectionError("away")
            return n

        with pytest.raises(ConnectionError):
            ask(3, False)
        assert ask(3) == -3
        app.breakers.reset("api")
        assert ask(3) == 3
        app.breakers.trip("api")
        with pytest.raises(BreakerOpen), api:
            """A block cannot be left out silently."""

    @pytest.mark.asyncio
    async def test_fallbacks_can_be_sync_or_async(self, app: Mainspring) -> None:
        api = app.breaker("api")

        async def cached(n: int) -> str:
            return f"cached {n}"

        @api.at(fallback=cached)
        async def ask(n: int) -> str:
            return str(n)

        @api.at(fallback=lambda _: "none")
        async def tell(n: int) -> str:
            return str(n)

        assert (await ask(1), await tell(1)) == ("1", "1")
        await app.breakers.atrip("api")
        assert (await ask(1), await tell(1)) == ("cached 1", "none")

    def test_objects_that_a_breaker_cannot_decorate_are_refused(self, app: Mainspring) -> None:
        api = app.breaker("api")

        async def cached() -> None: ...

        def numbers() -> Any:
            yield 1

        bad: tuple[Callable[[], Any], ...] = (
            lambda: api(5),  # type: ignore[type-var]
            lambda: api(numbers),
            lambda: api(app.task(name="noop")(lambda: None)),
            lambda: api.at(fallback=cached)(lambda: None),
            lambda: api.at(fallback=5),  # type: ignore[arg-type]
        )
        for declare in bad:
            with pytest.raises(InvalidOption):
                declare()
