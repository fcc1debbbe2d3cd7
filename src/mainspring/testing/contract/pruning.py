"""Retention: by age and number, never the young, the dead apart."""

from __future__ import annotations

import pytest

from mainspring.clock import MovableClock
from mainspring.outcomes import Ack, Outcome
from mainspring.query import Query
from mainspring.records import Claim, Edge, LogLine, Report, Retention
from mainspring.states import State
from mainspring.stores.base import Store

from .hands import ERROR, HOUR, Hand, gone, job, lease, one, put_in, running, state

__all__ = ["TestPrune"]

RULES = Retention(keep=10 * HOUR, keep_count=3, keep_at_least=HOUR, keep_dead=20 * HOUR, keep_workers=HOUR)


async def finished(store: Store, n: int) -> list[Claim]:
    """Some jobs that succeeded, oldest first."""
    done = []
    for _ in range(n):
        hand, claim = await running(store)
        await hand.succeed(claim)
        done.append(claim)
    return done


@pytest.mark.asyncio
class TestPrune:
    async def test_by_age(self, store: Store, clock: MovableClock) -> None:
        (old,) = await finished(store, 1)
        clock.advance("9h")
        assert await store.prune(RULES) == 0
        (young,) = await finished(store, 1)
        clock.advance("61m")
        assert await store.prune(RULES) == 1
        assert await gone(store, old)
        assert await state(store, young) == State.SUCCEEDED

    async def test_by_number_the_oldest_first(self, store: Store, clock: MovableClock) -> None:
        done = []
        for _ in range(5):
            done += await finished(store, 1)
            clock.advance("1m")
        clock.advance("61m")
        assert await store.prune(RULES) == 2
        assert [await gone(store, each) for each in done] == [True, True, False, False, False]

    async def test_never_the_young(self, store: Store, clock: MovableClock) -> None:
        """Results are there for whoever waits, however many there are."""
        await finished(store, 6)
        clock.advance("59m")
        assert await store.prune(RULES) == 0

    async def test_the_dead_are_kept_longer(self, store: Store, clock: MovableClock) -> None:
        """Neither the age of the others nor their number touches a dead letter."""
        hand, dead = await running(store)
        await hand.kill(dead)
        await finished(store, 5)
        clock.advance("19h")
        await store.prune(RULES)
        assert await state(store, dead) == State.DEAD
        clock.advance("61m")
        assert await store.prune(RULES) == 1
        assert await gone(store, dead)

    async def test_cancelled_jobs_go_with_the_succeeded(self, store: Store, clock: MovableClock) -> None:
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

    async def test_in_slices(self, store: Store, clock: MovableClock) -> None:
        await finished(store, 5)
        clock.advance("11h")
        assert [await store.prune(RULES, limit=2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_attempts_and_logs_go_too(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        await store.report(hand.name, [Report(id=claim.id, token=claim.token, logs=(LogLine(1, "INFO", "x"),))])
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        await hand.succeed(await hand.take_one(f"{claim.queue}/any"))
        clock.advance("11h")
        assert await store.prune(RULES) == 1
        assert await store.attempts(claim.id) == []
        assert await store.logs(claim.id) == []

    async def test_children_of_a_pruned_parent_are_not_touched(self, store: Store, clock: MovableClock) -> None:
        hand, claim = await running(store)
        child = await one(store, job(after=[Edge(claim.id)]))
        await hand.succeed(claim)
        clock.advance("11h")
        await store.prune(RULES)
        assert await gone(store, claim)
        assert await state(store, child) == State.READY

    async def test_rows_of_lost_workers_leave_the_fleet(self, store: Store, clock: MovableClock) -> None:
        lost, alive = await Hand(store).join(), await Hand(store).join()
        await store.rescue(lost.name, lost.beats, Outcome.LOST)
        clock.advance("59m")
        await store.prune(RULES)
        assert len(await store.workers()) == 2
        clock.advance("2m")
        await store.prune(RULES)
        assert [each.id for each in await store.workers()] == [alive.name]
