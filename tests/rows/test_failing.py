"""R: what happens when an attempt fails."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from mainspring import AsyncContext, Backoff, Cancel, Context, Discard, Mainspring, Retry, Snooze
from mainspring.errors import JobCancelled, JobDead, SoftTimeout
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State

LIMIT = 60
QUICK = Backoff.fixed("10ms")


@pytest.mark.row("R1")
@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.option("job.retries")
def test_a_job_runs_once_and_then_as_often_as_its_retries(app: Mainspring, retries: int) -> None:
    @app.task(name="fail", retries=5, backoff=QUICK)
    async def fail() -> None:
        raise ValueError("always")

    with app.worker():
        job = fail.options(retries=retries).enqueue()
        with pytest.raises(JobDead, match="ValueError: always") as dead:
            job.result(timeout=LIMIT)
    info = job.info()
    assert dead.value.reason == ("retries_exhausted" if retries else "failed")
    assert [attempt.number for attempt in info.attempts] == list(range(1, retries + 2))
    assert all(attempt.error and "always" in attempt.error.traceback for attempt in info.attempts)
    assert {attempt.outcome for attempt in info.attempts} == {Outcome.FAILED}


@pytest.mark.row("R1")
@pytest.mark.parametrize(
    ("others", "attempts"), [((), 2), ((ConnectionResetError,), 2), ((KeyError,), 1), ((ConnectionRefusedError,), 1)]
)
def test_errors_of_a_task_group_are_compared_one_by_one(
    app: Mainspring, others: tuple[type[Exception], ...], attempts: int
) -> None:
    """asyncio.TaskGroup raises an ExceptionGroup: another attempt needs that all errors in it may be retried."""

    @app.task(name="fail", retries=1, backoff=QUICK, retry_on=OSError, never_retry_on=ConnectionRefusedError)
    async def fail() -> None:
        raise ExceptionGroup("a group", [ConnectionError("away"), *(each("x") for each in others)])

    with app.worker():
        job = fail.enqueue()
        assert job.join(timeout=LIMIT).state == State.DEAD
    assert len(job.info().attempts) == attempts


@pytest.mark.row("R1")
def test_a_signal_out_of_a_task_group_is_obeyed(app: Mainspring) -> None:
    """Unless another error was raised beside it."""

    @app.task(name="snooze", retries=0)
    async def snooze(ctx: AsyncContext, beside: bool) -> int:
        raised: list[Exception] = [Discard("enough")]
        raise ExceptionGroup("a group", [*raised, ValueError("x")] if beside else raised)

    with app.worker():
        alone, beside = snooze.enqueue(False), snooze.enqueue(True)
        assert alone.join(timeout=LIMIT).reason == Reason.NOT_RETRYABLE
        assert beside.join(timeout=LIMIT).reason == Reason.FAILED


@pytest.mark.row("R2")
@pytest.mark.parametrize(
    "backoff",
    [Backoff.fixed("20ms"), Backoff.linear("20ms", step="10ms"), Backoff.exponential("20ms", factor=2, cap="50ms")],
    ids=["fixed", "linear", "exponential"],
)
def test_retries_wait_for_the_backoff(app: Mainspring, backoff: Backoff) -> None:
    @app.task(name="fail", retries=3, backoff=backoff)
    async def fail(ctx: AsyncContext) -> int:
        if ctx.attempt < 4:
            raise ValueError
        return ctx.attempt

    with app.worker():
        job = fail.enqueue()
        assert job.result(timeout=LIMIT) == 4
    attempts = job.info().attempts
    gaps = [later.started - earlier.ended for earlier, later in pairwise(attempts)]
    assert all(gap >= timedelta(0) for gap in gaps)


@pytest.mark.row("R2")
@pytest.mark.option("task.backoff")
def test_a_backoff_function_gets_the_attempt_and_the_error(app: Mainspring) -> None:
    asked: list[tuple[int, str]] = []

    def wait(attempt: int, error: BaseException | None) -> float:
        asked.append((attempt, str(error)))
        return 0.01

    @app.task(name="fail", retries=2, backoff=wait)
    async def fail(ctx: AsyncContext) -> None:
        raise ValueError(f"number {ctx.attempt}")

    with app.worker():
        fail.enqueue().join(timeout=LIMIT)
    assert asked[:2] == [(1, "number 1"), (2, "number 2")]


@pytest.mark.row("R3")
class TestErrorClasses:
    @pytest.mark.option("task.retry_on")
    def test_only_errors_of_retry_on_are_retried(self, app: Mainspring) -> None:
        @app.task(name="fail", retries=3, backoff=QUICK, retry_on=ConnectionError)
        async def fail(ctx: AsyncContext) -> None:
            raise ConnectionResetError if ctx.attempt < 3 else ValueError

        with app.worker():
            info = fail.enqueue().join(timeout=LIMIT)
        assert (info.state, info.reason, len(info.attempts)) == (State.DEAD, Reason.NOT_RETRYABLE, 3)

    @pytest.mark.option("task.never_retry_on")
    def test_errors_of_never_make_the_job_dead_at_once(self, app: Mainspring) -> None:
        @app.task(name="fail", retries=3, backoff=QUICK, never_retry_on=(KeyError,))
        def fail() -> None:
            raise KeyError("no such customer")

        with app.worker():
            info = fail.enqueue().join(timeout=LIMIT)
        assert (info.state, info.reason, len(info.attempts)) == (State.DEAD, Reason.NOT_RETRYABLE, 1)

    @pytest.mark.option("task.retry_if")
    def test_a_predicate_decides_about_the_retry(self, app: Mainspring) -> None:
        @app.task(name="fail", retries=3, backoff=QUICK, retry_if=lambda error: "again" in str(error))
        def fail(ctx: Context) -> None:
            raise ValueError("again" if ctx.attempt == 1 else "no more")

        with app.worker():
            info = fail.enqueue().join(timeout=LIMIT)
        assert (info.state, len(info.attempts)) == (State.DEAD, 2)


@pytest.mark.row("R4")
class TestSignals:
    def test_retry_after_sets_the_delay_and_uses_an_attempt(self, app: Mainspring) -> None:
        @app.task(name="again", retries=1, backoff="1h")
        async def again(ctx: AsyncContext) -> int:
            if ctx.attempt == 1:
                raise Retry(after="30ms")
            return ctx.attempt

        with app.worker():
            assert again.enqueue().result(timeout=LIMIT) == 2

    def test_snooze_uses_no_attempt(self, app: Mainspring) -> None:
        snoozed = threading.Event()

        @app.task(name="later", retries=0)
        async def later(ctx: AsyncContext) -> int:
            if not snoozed.is_set():
                snoozed.set()
                raise Snooze(for_="30ms")
            return ctx.attempt

        with app.worker():
            job = later.enqueue()
            assert job.result(timeout=LIMIT) == 1
        assert [attempt.outcome for attempt in job.info().attempts] == [Outcome.SNOOZED]

    def test_snooze_until_a_moment(self, app: Mainspring) -> None:
        until = datetime.now(UTC) + timedelta(seconds=1)

        @app.task(name="later", retries=0)
        async def later() -> datetime:
            if datetime.now(UTC) < until:
                raise Snooze(until=until)
            return datetime.now(UTC)

        with app.worker():
            assert later.enqueue().result(timeout=LIMIT) >= until

    def test_discard_is_dead_at_once_and_cancel_is_cancelled(self, app: Mainspring) -> None:
        @app.task(name="stop", retries=5)
        def stop(how: str) -> None:
            raise Discard("worthless") if how == "discard" else Cancel("not wanted")

        with app.worker():
            dead = stop.enqueue("discard").join(timeout=LIMIT)
            cancelled = stop.enqueue("cancel")
            with pytest.raises(JobCancelled):
                cancelled.result(timeout=LIMIT)
        assert (dead.state, dead.reason, len(dead.attempts)) == (State.DEAD, Reason.NOT_RETRYABLE, 1)


@pytest.mark.row("R5")
class TestTimeLimits:
    @pytest.mark.option("task.soft_timeout")
    def test_the_soft_limit_raises_in_the_handler(self, app: Mainspring) -> None:
        @app.task(name="tidy", soft_timeout="100ms", timeout="30s")
        async def tidy() -> str:
            import asyncio

            try:
                await asyncio.sleep(LIMIT)
            except SoftTimeout:
                return "tidied up"
            return "never"

        @app.task(name="tidy_thread", soft_timeout="100ms", timeout="30s")
        def tidy_thread() -> str:
            try:
                while True:
                    time.sleep(0.01)
            except SoftTimeout:
                return "tidied up"

        with app.worker():
            assert tidy.enqueue().result(timeout=LIMIT) == "tidied up"
            assert tidy_thread.enqueue().result(timeout=LIMIT) == "tidied up"

    @pytest.mark.option("task.timeout", "task.retries")
    def test_the_hard_limit_ends_the_attempt_and_the_retry_does_not_overlap(self, app: Mainspring) -> None:
        running, most = [0], [0]

        @app.task(name="hang", timeout="100ms", retries=1, backoff=QUICK)
        async def hang() -> None:
            import asyncio

            running[0] += 1
            most[0] = max(most[0], running[0])
            try:
                await asyncio.sleep(LIMIT)
            finally:
                running[0] -= 1

        with app.worker():
            info = hang.enqueue().join(timeout=LIMIT)
        assert (info.state, info.reason) == (State.DEAD, Reason.TIMED_OUT)
        assert [attempt.outcome for attempt in info.attempts] == [Outcome.TIMED_OUT] * 2
        assert most[0] == 1


@pytest.mark.row("R12")
def test_retries_and_delays_survive_a_restart_of_everything(store_url: str) -> None:
    first = Mainspring(store_url, poll="200ms")

    @first.task(name="twice", retries=1, backoff="300ms")
    async def twice(ctx: AsyncContext) -> int:
        if ctx.attempt == 1:
            raise ValueError
        return ctx.attempt

    delayed = twice.options(delay="500ms").enqueue()
    failing = twice.enqueue()
    with first.worker():
        while not failing.info().attempts:
            time.sleep(0.01)
    first.close()

    second = Mainspring(store_url, poll="200ms")
    again = second.task(name="twice", retries=1, backoff="300ms")(twice.fn)
    with second.worker():
        assert again.job(failing.id).result(timeout=LIMIT) == 2
        assert again.job(delayed.id).result(timeout=LIMIT) == 2
    second.close()
