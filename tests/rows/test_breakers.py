"""R8: a breaker shared by the fleet opens, probes and resets; jobs wait meanwhile and do not fail."""

from __future__ import annotations

import threading
from typing import Unpack

import pytest

from mainspring import (
    AsyncContext,
    BreakerEvent,
    Concurrency,
    Discard,
    Mainspring,
    RateLimited,
    Snooze,
)
from mainspring.errors import NotFound
from mainspring.jobs.job import Job
from mainspring.options.typed import BreakerOptions
from mainspring.states import State
from tests.rows.crew import LIMIT, Crew, Tasks, until


class Service:
    """The other side: well or not, and how often it was called."""

    def __init__(self, app: Mainspring, **breaker: Unpack[BreakerOptions]) -> None:
        self.app = app
        self.away = True
        self.calls = 0
        self.error: BaseException = ConnectionError("away")

        @app.task(name="shop.pay", breaker=breaker, retries=0, limit=Concurrency(1))
        def pay(well: bool) -> None:
            """One at a time, so that the order of calls is that of jobs."""
            self.calls += 1
            if self.away and not well:
                raise self.error

        self.pay = pay

    def enqueue(self, *well: bool) -> list[Job[None]]:
        return self.app.enqueue_many(self.pay.s(each) for each in well)

    def state(self) -> str:
        return self.app.breakers.get("shop.pay").state

    def opens(self) -> None:
        until(lambda: self.state() == "open", "open")


def ended(*jobs: Job[None]) -> list[State]:
    return [job.join(timeout=LIMIT).state for job in jobs]


@pytest.mark.row("R8")
class TestJobs:
    @pytest.mark.option("task.breaker", "breaker.failures")
    def test_jobs_wait_while_the_breaker_is_open(self, app: Mainspring) -> None:
        service = Service(app, failures=3, open_for="1h")
        jobs = service.enqueue(*[False] * 10)
        with app.worker(), app.worker():
            assert ended(*jobs[:3]) == [State.DEAD] * 3
            service.opens()
            info = app.breakers.get("shop.pay")
            assert (info.state, info.failures, info.threshold, info.tripped) == ("open", 3, 3, False)
            assert info.error == "ConnectionError: away"
            assert service.calls <= 3 + 2, "each worker may start one more before it has counted"
            waiting = jobs[9].info()
            assert (waiting.state, waiting.attempt) == (State.READY, 0)
            (found,) = [each for each in jobs[9].why().obstacles if each.kind == "breaker"]
            assert "is open until" in found.text
            assert "3 failures, the last: ConnectionError: away" in found.text
            assert found.until == info.until
            service.away = False
            app.breakers.reset("shop.pay")
            assert ended(*jobs[5:]) == [State.SUCCEEDED] * 5

    @pytest.mark.option("breaker.open_for")
    def test_an_open_breaker_probes_until_a_call_succeeds(self, app: Mainspring) -> None:
        """Each failed probe is one more call. The first probe that succeeds lets all jobs run."""
        heard: list[BreakerEvent] = []
        app.on("breaker_opened", "breaker_half_open", "breaker_closed")(heard.append)
        service = Service(app, failures=2, open_for="300ms")
        jobs = service.enqueue(*[False] * 12)
        with app.worker():
            until(lambda: service.calls >= 4, "two probes have failed")
            service.away = False
            jobs[-1].join(timeout=LIMIT)
        names = [event.name.removeprefix("breaker_") for event in heard]
        failed = sum(job.info().state is State.DEAD for job in jobs)
        assert names == ["opened", *["half_open", "opened"] * (failed - 2), "half_open", "closed"]
        first = heard[0]
        assert (first.breaker, first.failures, first.error) == ("shop.pay", 2, "ConnectionError: away")
        assert first.until is not None
        assert first.worker

    @pytest.mark.option("breaker.probes")
    def test_no_more_probes_than_allowed_run_at_once_in_the_fleet(self, app: Mainspring) -> None:
        go_on, inside = threading.Event(), threading.Semaphore(0)
        together = app.breaker("together", probes=2)

        @app.task(name="shop.probe", breaker=together)
        def probe() -> None:
            inside.release()
            go_on.wait(LIMIT)

        jobs = app.enqueue_many(probe.s() for _ in range(8))
        app.breakers.trip("together", "100ms")
        with app.worker(), app.worker():
            assert inside.acquire(timeout=LIMIT)
            assert inside.acquire(timeout=LIMIT)
            info = app.breakers.get("together")
            assert (info.state, info.probing, info.probes) == ("half_open", 2, 2)
            last = until(lambda: [each for each in jobs[-1].why().obstacles if each.kind == "breaker"])
            assert "half open, and its probes are running" in last[0].text
            assert len(last[0].jobs) == 2
            assert not inside.acquire(timeout=1.0)
            go_on.set()
            for job in jobs:
                job.join(timeout=LIMIT)

    @pytest.mark.option("breaker.rate", "breaker.minimum")
    def test_a_breaker_with_a_rate_opens_after_the_minimum_of_calls(self, app: Mainspring) -> None:
        service = Service(app, rate=0.5, minimum=6, open_for="1h")
        with app.worker():
            ended(*service.enqueue(False, False, False, True, True))
            assert service.state() == "closed", "five are not enough, though most have failed"
            ended(*service.enqueue(True, False))
            service.opens()
            info = app.breakers.get("shop.pay")
            assert (info.failures, info.calls, info.rate, info.threshold) == (4, 7, 0.5, 6)

    def test_successes_of_all_workers_keep_a_breaker_closed(self, app: Mainspring) -> None:
        service = Service(app, rate=0.5, minimum=4, open_for="1h")
        with app.worker(), app.worker():
            ended(*service.enqueue(*[True] * 20))
            until(lambda: app.breakers.get("shop.pay").calls == 20, "told of once a second")
            ended(*service.enqueue(*[False] * 10))
            assert service.state() == "closed"

    @pytest.mark.option("breaker.over")
    def test_failures_older_than_the_window_do_not_count(self, app: Mainspring) -> None:
        service = Service(app, rate=0.5, minimum=3, over="1s", open_for="1h")
        with app.worker():
            ended(*service.enqueue(False, False))
            until(lambda: app.breakers.get("shop.pay").failures == 0, "the window is over")
            ended(*service.enqueue(False))
            assert service.state() == "closed"

    @pytest.mark.option("breaker.trip_on")
    def test_only_the_chosen_errors_count(self, app: Mainspring) -> None:
        service = Service(app, failures=1, open_for="1h", trip_on=(TimeoutError, Discard))
        with app.worker():
            ended(*service.enqueue(False, False))
            assert service.state() == "closed"
            service.error = Discard("asked for")
            ended(*service.enqueue(False))
            service.opens()

    def test_errors_that_are_not_failures_of_the_service_do_not_count(self, app: Mainspring) -> None:
        @app.task(name="shop.try", breaker={"failures": 1}, never_retry_on=KeyError, retries=0)
        def attempt(how: int) -> None:
            if how < 4:
                raise (KeyError("bad input"), Discard(), Snooze("1h"), RateLimited("1h"))[how]
            raise ConnectionError("away")

        with app.worker():
            jobs = app.enqueue_many(attempt.s(how) for how in range(4))
            until(lambda: all(job.info().state in (State.DEAD, State.SCHEDULED) for job in jobs))
            assert app.breakers.get("shop.try").state == "closed"
            attempt.enqueue(4)
            until(lambda: app.breakers.get("shop.try").state == "open")

    def test_timeouts_count(self, app: Mainspring) -> None:
        @app.task(name="shop.hang", breaker={"failures": 1}, timeout="200ms", retries=0)
        async def hang(ctx: AsyncContext) -> None:
            import asyncio

            await asyncio.sleep(LIMIT)

        hang.enqueue()
        with app.worker():
            until(lambda: app.breakers.list() and app.breakers.get("shop.hang").state == "open")
            assert "Timeout" in app.breakers.get("shop.hang").error

    def test_a_crash_counts(self, crew: Crew, tasks: Tasks) -> None:
        crew.start()
        crew.start()
        tasks.guarded.enqueue()  # now that both are up: it ends whoever takes it
        until(lambda: tasks.app.breakers.list() and tasks.app.breakers.get("crew.guarded").state == "open")
        assert "crashed" in tasks.app.breakers.get("crew.guarded").error

    def test_tasks_share_a_breaker(self, app: Mainspring) -> None:
        payments = app.breaker("payments", failures=1)

        @app.task(name="shop.charge", breaker=payments, retries=0)
        def charge() -> None:
            raise ConnectionError("away")

        @app.task(name="shop.refund", breaker=payments)
        def refund() -> None: ...

        with app.worker():
            charge.enqueue().join(timeout=LIMIT)
            waiting = refund.enqueue()
            until(lambda: any(each.name == "payments" for each in waiting.why().obstacles))
            app.breakers.reset("payments")
            assert ended(waiting) == [State.SUCCEEDED]

    def test_the_declaration_of_the_last_worker_applies(self, app: Mainspring, store_url: str) -> None:
        first = Service(app, failures=5)
        first.enqueue(True)
        other = Mainspring(store_url)
        Service(other, failures=7, open_for="2m")
        with other.worker():
            until(lambda: other.breakers.get("shop.pay").threshold == 7)
        assert app.breakers.get("shop.pay").open_for.total_seconds() == 120
        other.close()

    def test_breakers_are_not_listed_among_the_limits(self, app: Mainspring) -> None:
        Service(app, failures=5).enqueue(True)
        assert [limit.name for limit in app.limits.list()] == ["shop.pay:at-once"]
        with pytest.raises(NotFound, match="not in the store"):
            app.limits.set("shop.pay:breaker", 1)
        with pytest.raises(NotFound, match="not in the store"):
            app.limits.delete("shop.pay:breaker")
