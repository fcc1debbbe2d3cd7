"""R8: breakers opened and closed by hand, and what is refused where they are declared."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring import BreakerEvent, BreakerOpen, Mainspring
from mainspring.breakers.declare import DeclaredBreaker
from mainspring.errors import InvalidOption, NotFound, UnknownOption
from mainspring.jobs.job import Job
from mainspring.states import State
from tests.rows.crew import LIMIT, until
from tests.rows.test_breakers import ended


@pytest.mark.row("R8")
class TestByHand:
    @pytest.fixture
    def waiting(self, app: Mainspring) -> list[Job[None]]:
        @app.task(name="shop.send", breaker=app.breaker("mail"))
        def send() -> None: ...

        return app.enqueue_many(send.s() for _ in range(3))

    def test_no_job_starts_until_a_tripped_breaker_is_reset(self, app: Mainspring, waiting: list[Job[None]]) -> None:
        heard: list[BreakerEvent] = []
        app.on("breaker_opened", "breaker_closed")(heard.append)
        app.breakers.trip("mail")
        with app.worker():
            why = until(lambda: [each for each in waiting[0].why().obstacles if each.kind == "breaker"])
            assert "open until an operator resets it" in why[0].text
            assert (app.breakers.get("mail").tripped, app.breakers.get("mail").until) == (True, None)
            app.breakers.reset("mail")
            assert ended(*waiting) == [State.SUCCEEDED] * 3
        app.breakers.reset("mail")
        until(lambda: len(heard) == 2)
        assert [event.name for event in heard] == ["breaker_opened", "breaker_closed"]

    @pytest.mark.asyncio
    async def test_a_breaker_tripped_for_a_time_closes_afterwards(
        self, app: Mainspring, waiting: list[Job[None]]
    ) -> None:
        await app.breakers.atrip("mail", "200ms")
        assert (await app.breakers.aget("mail")).state == "open"
        async with app.worker():
            for job in waiting:
                assert (await job.ajoin(timeout=LIMIT)).state is State.SUCCEEDED
        await app.breakers.atrip("mail", "1h")
        await app.breakers.areset("mail")
        assert [each.state for each in await app.breakers.alist()] == ["closed"]

    def test_unknown_breaker_names_are_refused(self, app: Mainspring, waiting: list[Job[None]]) -> None:
        for verb in (app.breakers.get, app.breakers.trip, app.breakers.reset):
            with pytest.raises(NotFound, match=r"not in the store.*mail"):
                verb("mial")
        with pytest.raises(InvalidOption, match="for_"):
            app.breakers.trip("mail", "0s")


@pytest.mark.row("R8")
class TestRefused:
    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"failures": 0}, "whole number from 1"),
            ({"rate": 1.5}, "above 0 and at most 1"),
            ({"rate": True}, "above 0 and at most 1"),
            ({"rate": 0.5, "failures": 5}, "cannot be combined with rate"),
            ({"minimum": 5}, "works with rate only"),
            ({"over": "1m"}, "works with rate only"),
            ({"open_for": "0s"}, "greater than zero"),
            ({"probes": 0}, "whole number from 1"),
            ({"trip_on": "ValueError"}, "exception classes"),
            ({"fallback": 5}, "must be a function"),
        ],
    )
    def test_bad_breaker_options_are_refused(self, app: Mainspring, options: Any, why: str) -> None:
        for declare in (lambda: app.breaker("x", **options), lambda: app.task(breaker=options)(lambda: None)):
            with pytest.raises(InvalidOption, match=why):
                declare()

    def test_values_that_are_not_a_breaker_are_refused(self, app: Mainspring) -> None:
        with pytest.raises(UnknownOption, match="open_for"):
            app.breaker("x", open_four="30s")  # type: ignore[call-arg]
        with pytest.raises(InvalidOption, match="is not a breaker"):
            app.task(breaker=5)(lambda: None)  # type: ignore[call-overload]
        with pytest.raises(InvalidOption, match="has a fallback"):
            app.task(breaker=app.breaker("x", fallback=lambda: None))(lambda: None)
        with pytest.raises(InvalidOption, match="name"):
            app.breaker("")
        with pytest.raises(InvalidOption, match="cannot be given with breaker_opened"):
            app.on("breaker_opened", task="x")

    def test_the_defaults_of_a_breaker(self, app: Mainspring) -> None:
        limit = app.breaker("x").limit()
        assert (limit.burst, limit.per, limit.size, limit.share) == (5, 30_000_000, 1, 0)
        assert issubclass(BreakerOpen, Exception)
        assert isinstance(app.breaker("x"), DeclaredBreaker)
