"""Q13: ``expires`` cancels jobs that did not start in time, and never a job that has started."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from mainspring import Mainspring, Retry, Snooze
from mainspring.states import Reason, State

pytestmark = [pytest.mark.row("Q13"), pytest.mark.option("task.expires", "job.expires")]


def test_a_retry_after_the_limit_runs_and_the_follow_up_is_kept(app: Mainspring, store_url: str) -> None:
    attempts: list[str] = []
    dead: list[UUID] = []

    @app.task
    def clean_up(job: UUID) -> None:
        dead.append(job)

    @app.task(retries=2, backoff="1h", expires="30m", on_dead=clean_up)
    def work() -> None:
        attempts.append("failed")
        raise ValueError("no")

    with app.test(url=store_url) as t:
        job = work.enqueue()
        assert job.info().expires is not None
        t.drain()
        info = job.info()
        assert (info.state, info.expires) == (State.RETRYING, None)
        t.clock.advance("1h")
        assert "expired" not in str(job.why())
        assert t.drain(future=True).expired == 0
        info = job.info()
        assert (info.state, info.reason, info.attempt) == (State.DEAD, Reason.RETRIES_EXHAUSTED, 3)
    assert (len(attempts), dead) == (3, [job.id])


@pytest.mark.parametrize("again", [Snooze, Retry])
def test_a_job_that_asks_to_run_again_is_not_cancelled(
    app: Mainspring, store_url: str, again: Callable[[str], Exception]
) -> None:
    ran: list[str] = []

    @app.task(retries=1, expires="30m")
    def work() -> str:
        ran.append("once more")
        if len(ran) == 1:
            raise again("1h")
        return "done"

    with app.test(url=store_url) as t:
        job = work.enqueue()
        t.drain(future=True)
        assert (job.info().state, len(ran)) == (State.SUCCEEDED, 2)


def test_a_retry_by_hand_runs_whenever_it_is_claimed(app: Mainspring, store_url: str) -> None:
    """Of a job that expired, and of a job that was cancelled before its limit."""
    ran: list[str] = []

    @app.task(expires="30m")
    def work(what: str) -> None:
        ran.append(what)

    with app.test(url=store_url) as t:
        cancelled, expired = work.enqueue("cancelled"), work.enqueue("expired")
        cancelled.cancel()
        cancelled.retry()
        t.clock.advance("31m")
        assert t.drain().expired == 1
        assert expired.info().reason is Reason.EXPIRED
        expired.retry()
        t.clock.advance("1d")
        assert t.drain().expired == 0
        assert [each.info().state for each in (cancelled, expired)] == [State.SUCCEEDED] * 2
    assert sorted(ran) == ["cancelled", "expired"]
