"""Retention: by age and by number, never within ``keep_at_least``, and separately for dead jobs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptReport, Edge, FollowUp, LogLine, Retention, UniqueKey
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, HOUR, Hand, gone, job, lease, one, put_in, row, running, state
from mainspring.worker.records import Claim

__all__ = ["TestPrune"]

RULES = Retention(
    keep=10 * HOUR, keep_count=3, keep_at_least=HOUR, keep_dead=20 * HOUR, keep_dead_count=2, keep_workers=HOUR
)


async def finished(store: Store, n: int = 1, **options: Any) -> list[Claim]:
    """Some jobs that succeeded, oldest first."""
    done = []
    for _ in range(n):
        hand, claim = await running(store, job(queue="own", **options))
        await hand.succeed(claim)
        done.append(claim)
    return done


async def one_finished(store: Store, **options: Any) -> Claim:
    (claim,) = await finished(store, **options)
    return claim


async def died(store: Store, **options: Any) -> Claim:
    hand, claim = await running(store, job(queue="own", **options))
    await hand.kill(claim)
    return claim


@pytest.mark.asyncio
class TestPrune:
    async def test_jobs_are_pruned_by_age(self, store: Store, clock: MovableClock) -> None:
        (old,) = await finished(store, 1)
        clock.advance("9h")
        assert await store.prune(RULES) == 0
        (young,) = await finished(store, 1)
        clock.advance("61m")
        assert await store.prune(RULES) == 1
        assert await gone(store, old)
        assert await state(store, young) == State.SUCCEEDED

    async def test_jobs_are_pruned_by_number_oldest_first(self, store: Store, clock: MovableClock) -> None:
        done = []
        for _ in range(5):
            done += await finished(store, 1)
            clock.advance("1m")
        clock.advance("61m")
        assert await store.prune(RULES) == 2
        assert [await gone(store, each) for each in done] == [True, True, False, False, False]

    async def test_jobs_that_ended_together_stay_together(self, store: Store, clock: MovableClock) -> None:
        """``keep_count`` never leaves fewer jobs than it says."""
        await finished(store, 2)
        clock.advance("1m")
        together = await finished(store, 5)
        clock.advance("61m")
        assert await store.prune(RULES) == 2
        assert [await gone(store, each) for each in together] == [False] * 5

    async def test_a_keep_count_of_zero_keeps_no_job(self, store: Store, clock: MovableClock) -> None:
        await finished(store)
        await died(store)
        rules = Retention(keep_count=0, keep_dead_count=0, keep_at_least=HOUR)
        assert await store.prune(rules) == 0
        clock.advance("61m")
        await finished(store)
        assert await store.prune(rules) == 2

    async def test_jobs_within_keep_at_least_are_never_pruned(self, store: Store, clock: MovableClock) -> None:
        """Results stay for callers that wait, however many there are."""
        await finished(store, 6)
        clock.advance("59m")
        assert await store.prune(RULES) == 0

    async def test_dead_jobs_are_kept_longer(self, store: Store, clock: MovableClock) -> None:
        """Neither the age nor the number of other jobs affects a dead job."""
        hand, dead = await running(store)
        await hand.kill(dead)
        await finished(store, 5)
        clock.advance("19h")
        await store.prune(RULES)
        assert await state(store, dead) == State.DEAD
        clock.advance("61m")
        assert await store.prune(RULES) == 1
        assert await gone(store, dead)

    async def test_dead_jobs_are_pruned_by_number(self, store: Store, clock: MovableClock) -> None:
        """The oldest first, but no young job. Other jobs do not count."""
        dead = []
        for _ in range(4):
            dead.append(await died(store))
            await finished(store)
            clock.advance("1m")
        rules = msgspec.structs.replace(RULES, keep_count=100)
        assert await store.prune(rules) == 0
        clock.advance("58m")
        assert await store.prune(rules) == 2
        assert [await gone(store, each) for each in dead] == [True, True, False, False]

    async def test_cancelled_jobs_are_pruned_like_succeeded_ones(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.cancelled(lease(claim)))
        clock.advance("11h")
        assert await store.prune(RULES) == 1

    async def test_live_jobs_are_never_pruned(self, store: Store, clock: MovableClock) -> None:
        parent = job()
        await put_in(store, parent, job(after=[parent]), job(delay=1000 * HOUR))
        await running(store)
        clock.advance("999h")
        assert await store.prune(RULES) == 0
        assert sum((await store.count(Query.everything())).values()) == 4

    async def test_pruning_in_slices(self, store: Store, clock: MovableClock) -> None:
        await finished(store, 5)
        clock.advance("11h")
        assert [await store.prune(RULES, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_pruning_deletes_attempts_and_logs(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        await store.report(hand.name, [AttemptReport(id=claim.id, token=claim.token, logs=(LogLine(1, "INFO", "x"),))])
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        await hand.succeed(await hand.take_one(f"{claim.queue}/any"))
        clock.advance("11h")
        assert await store.prune(RULES) == 1
        assert await store.attempts(claim.id) == []
        assert await store.logs(claim.id) == []

    async def test_nothing_of_a_pruned_job_is_left(self, store: Store, clock: MovableClock) -> None:
        """A new job with the same id has no mark, stream, progress, follow-up job or key of the old job."""
        first, second = (FollowUp(State.SUCCEEDED, job(id=bytes([n]) * 14 + b"\0\0")) for n in (1, 2))
        old = job(queue="own", marks=["m"], unique=UniqueKey(b"k" * 16), follows=[first, second])
        hand, claim = await running(store, old)
        await store.report(hand.name, [AttemptReport(id=old.id, token=claim.token, progress=b"1", items=((1, b"x"),))])
        await hand.kill(claim)
        clock.advance("21h")
        assert await store.prune(RULES) == 1
        hand, claim = await running(store, job(id=old.id, queue="own", follows=[first]))
        assert (await store.find(Query(marks=("m",)))).jobs == ()
        assert await store.items(old.id) == []
        assert (await row(store, old)).progress is None
        assert (await put_in(store, job(unique=UniqueKey(b"k" * 16))))[0].created
        await hand.succeed(claim)
        assert sum((await store.count(Query.everything())).values()) == 3, "the second follow-up job was made"

    async def test_a_job_that_was_retried_in_the_meantime_stays(self, store: Store, clock: MovableClock) -> None:
        (claim,) = await finished(store)
        clock.advance("11h")
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert await store.prune(RULES) == 0
        assert await state(store, claim) == State.READY

    async def test_children_of_a_pruned_parent_are_not_touched(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        child = await one(store, job(after=[Edge(claim.id)]))
        await hand.succeed(claim)
        clock.advance("11h")
        await store.prune(RULES)
        assert await gone(store, claim)
        assert await state(store, child) == State.READY

    @pytest.mark.parametrize("make", [one_finished, died], ids=["finished", "dead"])
    async def test_a_job_is_pruned_when_its_window_is_over(
        self, store: Store, clock: MovableClock, make: Callable[..., Awaitable[Claim]]
    ) -> None:
        """Whether or not a prune ran before; and other jobs do not wait for it."""
        held = await make(store, unique=UniqueKey(b"k" * 16, 30 * HOUR))
        other = await make(store)
        clock.advance("21h")
        assert [await store.prune(RULES), await store.prune(RULES)] == [1, 0]
        assert await gone(store, other)
        clock.advance("8h")
        assert await store.prune(RULES) == 0
        assert not await gone(store, held)
        clock.advance("1h")
        assert await store.prune(RULES) == 1
        assert await gone(store, held)

    @pytest.mark.parametrize("make", [one_finished, died], ids=["finished", "dead"])
    async def test_a_window_does_not_keep_a_job_that_lost_its_key(
        self, store: Store, clock: MovableClock, make: Callable[..., Awaitable[Claim]]
    ) -> None:
        held = await make(store, unique=UniqueKey(b"k" * 16, 30 * HOUR))
        clock.advance("21h")
        assert await store.prune(RULES) == 0
        await put_in(store, job(unique=UniqueKey(b"k" * 16, 0, "replace")))
        assert await store.prune(RULES) == 1
        assert await gone(store, held)

    @pytest.mark.parametrize("make", [one_finished, died], ids=["finished", "dead"])
    async def test_the_current_retention_decides(
        self, store: Store, clock: MovableClock, make: Callable[..., Awaitable[Claim]]
    ) -> None:
        """Retention may have become longer while a window held the job. Such a job does not stop the pruning of
        others.
        """
        held = await make(store, unique=UniqueKey(b"k" * 16, 30 * HOUR))
        clock.advance("21h")
        assert await store.prune(RULES) == 0
        other = await one_finished(store, keep=9 * HOUR + HOUR // 2)
        clock.advance("10h")
        longer = msgspec.structs.replace(RULES, keep=40 * HOUR, keep_dead=40 * HOUR)
        await store.prune(longer, limit=1)
        assert await gone(store, other)
        assert [await store.prune(longer), await store.prune(longer)] == [0, 0]
        clock.advance("10h")
        assert await store.prune(longer) == 1
        assert await gone(store, held)

    async def test_a_job_whose_window_is_longer_than_its_keep_stays(self, store: Store, clock: MovableClock) -> None:
        held = await one_finished(store, unique=UniqueKey(b"k" * 16, 30 * HOUR), keep=HOUR)
        clock.advance("2h")
        await store.prune(RULES)
        assert not await gone(store, held)
        clock.advance("29h")
        await store.prune(RULES)
        assert await gone(store, held)

    async def test_rows_of_lost_workers_are_pruned(self, store: Store, clock: MovableClock) -> None:
        lost, alive = await Hand(store).join(), await Hand(store).join()
        await store.rescue(lost.name, lost.beats, Outcome.LOST)
        clock.advance("59m")
        await store.prune(RULES)
        assert len(await store.workers()) == 2
        clock.advance("2m")
        await store.prune(RULES)
        assert [each.id for each in await store.workers()] == [alive.name]
