"""Days in milliseconds: ``app.test()`` with its clock, on the same worker and store code as in production."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Backoff, Context, Key, Mainspring, Snooze
from mainspring.errors import JobNotFound
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from mainspring.testing import Drained

START = datetime(2030, 1, 31, 12, tzinfo=UTC)


@pytest.mark.row("B12")
@pytest.mark.option("test.url", "test.start")
def test_a_retry_after_three_days_in_a_test_app(app: Mainspring, store_url: str) -> None:
    """Each attempt runs when the test's clock reaches its time, not before, and is recorded with that time."""
    runs: list[int] = []

    @app.task(retries=2, backoff=Backoff.fixed("3d"))
    def sync(ctx: Context) -> str:
        runs.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("try later")
        return "done"

    with app.test(url=store_url, start=START) as t:
        job = sync.enqueue()
        assert t.drain() == Drained(ran=1, retrying=1)
        assert t.drain() == Drained()
        t.clock.advance("2d 23h")
        assert t.drain() == Drained()
        t.clock.advance("1h")
        assert t.drain() == Drained(ran=1, retrying=1)
        t.clock.advance("3d")
        assert t.drain() == Drained(ran=1, succeeded=1)
        assert runs == [1, 2, 3]
        assert job.result() == "done"
        info = job.info()
        assert [each.outcome for each in info.attempts] == [Outcome.FAILED, Outcome.FAILED]
        assert [each.started for each in info.attempts] == [START, START + timedelta(days=3)]
        assert (info.enqueued, info.finished) == (START, START + timedelta(days=6))


@pytest.mark.row("B12")
async def test_a_retry_after_three_days_in_an_async_test(app: Mainspring, store_url: str) -> None:
    runs: list[datetime] = []

    @app.task(retries=5, backoff=Backoff.fixed("3d"))
    async def sync() -> None:
        runs.append(t.clock.now())
        raise ConnectionError("never")

    async with app.test(url=store_url, start=START) as t:
        job = await sync.aenqueue()
        assert await t.adrain(future=True) == Drained(ran=6, retrying=5, dead=1)
        assert runs == [START + timedelta(days=3 * n) for n in range(6)]
        assert (await job.ainfo()).reason is Reason.RETRIES_EXHAUSTED


@pytest.mark.row("B12")
def test_a_month_of_snoozes_in_a_test_app(app: Mainspring, store_url: str) -> None:
    """``future`` moves the clock from one due time to the next, and no further than there are jobs."""
    days: list[int] = []

    @app.task
    def poll(ctx: Context) -> None:
        days.append((t.clock.now() - START).days)
        if len(days) < 31:
            raise Snooze(for_="1d")

    with app.test(url=store_url, start=START) as t:
        poll.enqueue()
        poll.options(run_at=START + timedelta(days=40)).enqueue()
        assert t.drain(future=True) == Drained(ran=32, succeeded=2, snoozed=30)
        assert days == [*range(31), 40]
        assert t.clock.now() == START + timedelta(days=40)


@pytest.mark.row("B12")
def test_expiry_retention_and_windows_obey_the_test_clock(app: Mainspring, store_url: str) -> None:
    ran: list[str] = []

    @app.task(retention="8d")
    def work(what: str) -> None:
        ran.append(what)

    with app.test(url=store_url) as t:
        late = work.options(expires="1h").enqueue("late")
        t.clock.advance("2h")
        assert t.drain() == Drained(expired=1)
        assert (late.info().state, late.info().reason) == (State.CANCELLED, Reason.EXPIRED)

        first = work.options(key=Key("k", window="1d")).enqueue("first")
        t.drain()
        assert work.options(key=Key("k", window="1d")).enqueue("second").id == first.id
        t.clock.advance("1d 1m")
        again = work.options(key=Key("k", window="1d")).enqueue("again")
        assert again.id != first.id
        t.drain()
        assert ran == ["first", "again"]

        t.clock.advance("7d")
        assert t.drain().pruned == 2, "the late one and the first"
        with pytest.raises(JobNotFound):
            first.info()
        assert again.info().state is State.SUCCEEDED


@pytest.mark.row("B12")
def test_a_jump_of_the_clock_takes_no_job_from_its_worker(app: Mainspring, store_url: str) -> None:
    """Leases are judged by observed heartbeats and not by the wall clock: the job runs once and is charged no crash."""

    @app.task
    def long(ctx: Context) -> int:
        t.clock.advance("30d")
        ctx.progress(1, 2)
        short.enqueue()
        return ctx.attempt

    @app.task
    async def short() -> None:
        t.clock.advance("30d")

    with app.test(url=store_url) as t:
        job = long.enqueue()
        assert t.drain() == Drained(ran=2, succeeded=2)
        assert job.result() == 1
        assert (job.info().attempts, job.info().crashes) == ((), 0)
