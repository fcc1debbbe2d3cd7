"""What a failed attempt leads to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.common.backoff import Backoff
from mainspring.errors import Cancel, Discard, Retry, Snooze
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.jobs.world import SECOND, World, error, result


async def ran(world: World, raised: BaseException, *, per_job: int | None = None, **options: Any) -> tuple[bytes, int]:
    """Run a job that raises each time, until nothing is left; returns it and the number of its runs."""
    runs: list[int] = []

    async def fails() -> None:
        runs.append(1)
        raise raised

    body = None if per_job is None else {"options": {"retries": per_job}}
    job = await world.enqueue(world.task(fails, **options), _body=body)
    await world.drain()
    return job, len(runs)


@pytest.mark.row("R1")
@pytest.mark.parametrize("retries", [0, 1, 3])
@pytest.mark.parametrize("of_the_job", [False, True])
async def test_retries_are_counted_exactly(world: World, retries: int, of_the_job: bool) -> None:
    """Retries of the task, or of the job, which override them. Each attempt is stored with its error."""
    options = {"retries": 7, "per_job": retries} if of_the_job else {"retries": retries}
    job, runs = await ran(world, ValueError("no"), **options)
    row = await world.row(job)
    reason = Reason.RETRIES_EXHAUSTED if retries else Reason.FAILED
    assert (runs, row.state, row.reason) == (retries + 1, State.DEAD, reason)
    attempts = await world.attempts(job)
    assert [(a.attempt, a.outcome, error(a).message) for a in attempts] == [
        (n, Outcome.FAILED, "no") for n in range(1, retries + 2)
    ]


@pytest.mark.row("R2")
async def test_the_backoff_gets_the_attempt_and_the_error(world: World) -> None:
    asked: list[tuple[int, str]] = []

    def wait(attempt: int, failure: BaseException | None) -> float:
        asked.append((attempt, repr(failure)))
        return 0

    await ran(world, ValueError("no"), retries=2, backoff=Backoff.of(wait))
    assert asked == [(1, "ValueError('no')"), (2, "ValueError('no')")]


@pytest.mark.row("R2")
async def test_the_store_delays_the_job_by_the_backoff(world: World) -> None:
    async def fails() -> None:
        raise ValueError

    job = await world.enqueue(world.task(fails, retries=1, backoff=Backoff.fixed("1h")))
    running = await world.worker().started()
    row = await world.until(job, State.RETRYING)
    (attempt,) = await world.attempts(job)
    assert row.due == attempt.ended + 3600 * SECOND
    assert await running.drained() == 0


KEY, INDEX = KeyError("k"), IndexError("i")


@pytest.mark.row("R3")
@pytest.mark.parametrize(
    ("options", "raised", "retried"),
    [
        ({}, KEY, True),
        ({"retry_on": (KeyError,)}, KEY, True),
        ({"retry_on": (LookupError,)}, INDEX, True),
        ({"retry_on": (KeyError,)}, INDEX, False),
        ({"never_retry_on": (KeyError,)}, KEY, False),
        ({"never_retry_on": (KeyError,)}, INDEX, True),
        ({"retry_on": (LookupError,), "never_retry_on": (KeyError,)}, KEY, False),
        ({"retry_on": (LookupError,), "never_retry_on": (KeyError,)}, INDEX, True),
        ({"retry_if": lambda error: "k" in str(error)}, KEY, True),
        ({"retry_if": lambda error: "k" in str(error)}, INDEX, False),
        ({"retry_if": lambda error: error.no_such_attribute}, KEY, False),
        ({"retry_if": lambda _: True, "never_retry_on": (KeyError,)}, KEY, False),
    ],
)
async def test_error_classes_and_predicate_decide_about_retries(
    world: World, options: dict[str, Any], raised: BaseException, retried: bool
) -> None:
    """An error that may not be retried makes the job dead at once. A predicate that raises means no retry."""
    job, runs = await ran(world, raised, retries=1, **options)
    row = await world.row(job)
    assert runs == (2 if retried else 1)
    assert row.reason is (Reason.RETRIES_EXHAUSTED if retried else Reason.NOT_RETRYABLE)


@pytest.mark.row("R4")
async def test_retry_after_is_obeyed_exactly_and_counts(world: World) -> None:
    """Whatever the backoff and the error classes are."""

    async def again() -> None:
        raise Retry(after="90s")

    job = await world.enqueue(world.task(again, retries=1, retry_on=(KeyError,), backoff=Backoff.fixed("1h")))
    running = await world.worker().started()
    row = await world.until(job, State.RETRYING)
    (attempt,) = await world.attempts(job)
    assert row.due == attempt.ended + 90 * SECOND
    assert row.attempt == 1
    assert await running.drained() == 0


@pytest.mark.row("R4")
async def test_retry_uses_up_retries(world: World) -> None:
    job, runs = await ran(world, Retry(), retries=2)
    assert runs == 3
    assert (await world.row(job)).reason is Reason.RETRIES_EXHAUSTED


@pytest.mark.row("R4")
async def test_snooze_returns_the_attempt(world: World) -> None:
    """With zero retries a job can snooze any number of times."""
    runs: list[int] = []

    async def sleepy() -> str:
        runs.append(1)
        if len(runs) < 4:
            raise Snooze(for_="1ms")
        return "awake"

    job = await world.enqueue(world.task(sleepy, retries=0))
    await world.drain()
    row = await world.row(job)
    assert (len(runs), row.attempt, result(row)) == (4, 1, "awake")
    assert [a.outcome for a in await world.attempts(job)] == [Outcome.SNOOZED] * 3


@pytest.mark.row("R4")
@pytest.mark.parametrize(
    ("snooze", "due"),
    [
        (lambda _: Snooze(for_="1h"), lambda ended: ended + 3600 * SECOND),
        (lambda moment: Snooze(until=moment), None),
    ],
)
async def test_a_snoozed_job_is_due_at_the_moment_of_its_snooze(
    world: World, snooze: Callable[[datetime], Snooze], due: Callable[[int], int] | None
) -> None:
    moment = (datetime.now(UTC) + timedelta(hours=2)).replace(microsecond=0)

    async def sleepy() -> None:
        raise snooze(moment)

    job = await world.enqueue(world.task(sleepy))
    running = await world.worker().started()
    row = await world.until(job, State.SCHEDULED)
    (attempt,) = await world.attempts(job)
    assert row.due == (due(attempt.ended) if due else int(moment.timestamp()) * SECOND)
    assert await running.drained() == 0


@pytest.mark.parametrize("bad", [Retry(after="soon"), Snooze(for_="soon"), Snooze(until=datetime(2030, 1, 1))])  # noqa: DTZ001 - naive on purpose
async def test_a_signal_with_an_invalid_duration_is_not_retried(world: World, bad: BaseException) -> None:
    job, runs = await ran(world, bad, retries=5)
    row = await world.row(job)
    assert (runs, row.state, row.reason) == (1, State.DEAD, Reason.NOT_RETRYABLE)
    assert error(row).type == "mainspring.errors.InvalidOption"


async def test_cancel_and_discard_end_the_job_whatever_retries_are_left(world: World) -> None:
    cancelled, _ = await ran(world, Cancel("not needed"), retries=5)
    discarded, _ = await ran(world, Discard("hopeless"), retries=5)
    first, second = await world.row(cancelled), await world.row(discarded)
    assert (first.state, first.reason, error(first).message) == (State.CANCELLED, Reason.BY_USER, "not needed")
    assert (second.state, second.reason, error(second).message) == (State.DEAD, Reason.NOT_RETRYABLE, "hopeless")


async def test_a_thread_job_is_retried_too(world: World) -> None:
    runs: list[int] = []

    def flaky() -> int:
        runs.append(1)
        if len(runs) < 3:
            raise OSError("not yet")
        return len(runs)

    job = await world.enqueue(world.task(flaky, retries=2))
    await world.drain()
    assert result(await world.row(job)) == 3


@pytest.mark.row("W6")
async def test_an_ack_early_job_that_failed_is_not_run_again(world: World) -> None:
    job, runs = await ran(world, ValueError("no"), retries=5, early=True)
    assert runs == 1
    assert (await world.row(job)).reason is Reason.FAILED


@pytest.mark.row("W6")
async def test_an_ack_early_job_runs_and_succeeds(world: World) -> None:
    async def once() -> int:
        await asyncio.sleep(0)
        return 1

    job = await world.enqueue(world.task(once, early=True))
    await world.drain()
    assert result(await world.row(job)) == 1
