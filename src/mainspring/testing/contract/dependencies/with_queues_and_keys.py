"""Runs that wait for dependencies obey their queues and unique keys."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import MainspringError, QueueDisabled, QueueDraining, QueueFull, StoreConflict
from mainspring.jobs.query import Query
from mainspring.jobs.records import Batch, Enqueued, FollowUp, UniqueKey
from mainspring.queues.records import DisabledMode, FairKey, QueueMode, QueueSettings
from mainspring.schedules.records import ScheduleDependency, part_mark
from mainspring.states import Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    SECOND,
    Hand,
    bucket,
    ending,
    gone,
    ids,
    job,
    one,
    put_in,
    row,
    running,
    state,
)
from mainspring.testing.contract.unique_keys.replace import MODES, KeyMode

from .release import after, forced, noted, of, succeeds, waiting

__all__ = ["TestDependenciesAndKeys", "TestDependenciesAndQueues"]


@pytest.mark.asyncio
class TestDependenciesAndQueues:
    async def test_released_jobs_have_their_limits_and_fair_keys(self, store: Store) -> None:
        await after(store, "x", "a")
        gate, tenant = bucket("gate", 1), bucket("tenant", 1, key="7")
        fair = FairKey("f")
        lines: list[dict[str, Any]] = [
            {"buckets": [gate]}, {"buckets": [tenant]}, {"fair": fair}, {"buckets": [gate], "fair": fair},
        ]  # fmt: skip
        hand = await Hand(store).join()
        for options in lines:
            first, second = of("x", queue="q", **options), job(**options)
            await put_in(store, first)
            assert await hand.take(9) == ()
            await succeeds(hand, "a")
            await put_in(store, second)
            taken = await hand.take(9)
            assert ids(taken)[:1] == [first.id]
            await hand.succeed(*taken)
            await hand.succeed(*(await hand.take(9)))
            assert await state(store, second) == State.SUCCEEDED

    async def test_a_released_lifo_job_comes_first(self, store: Store) -> None:
        """At its release, and by its priority."""
        await store.configure_queue("q", QueueSettings(order="lifo"))
        await after(store, "x", "a")
        first, second = await one(store, of("x", queue="q")), await one(store, of("x", queue="q", priority=-1))
        plain = await one(store)
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert await waiting(store) == [second.id]
        await after(store, "x")
        assert ids(await hand.take(9)) == [first.id, plain.id, second.id]

    async def test_waiting_runs_count_for_the_depth(self, store: Store) -> None:
        await store.configure_queue("x", QueueSettings(max_depth=2))
        await after(store, "x", "a")
        jobs = [await one(store, of("x")) for _ in range(2)]
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        with pytest.raises(QueueFull):
            await one(store, of("x"))
        assert await waiting(store) == [jobs[1].id]
        await hand.take_one("x/any")
        assert await state(store, await one(store, of("x"))) == State.BLOCKED

    async def test_a_dropped_run_blocks_no_other(self, store: Store) -> None:
        await store.configure_queue("x", QueueSettings(max_depth=2, on_full="drop_oldest"))
        await after(store, "x", "a")
        jobs = [await one(store, of("x")) for _ in range(3)]
        assert await ending(store, jobs[0]) == (State.CANCELLED, Reason.SUPERSEDED)
        assert await waiting(store) == ids(jobs[1:])
        await succeeds(await Hand(store).join(), "a")
        assert [await state(store, each) for each in jobs[1:]] == [State.READY, State.BLOCKED]

    @pytest.mark.parametrize("error", [QueueDraining, QueueDisabled, QueueFull], ids=lambda error: error.__name__)
    @pytest.mark.parametrize("force", [False, True])
    async def test_a_refused_run_does_not_use_recorded_successes(
        self, store: Store, error: type[MainspringError], force: bool
    ) -> None:
        await after(store, "x", "a")
        await succeeds(await Hand(store).join(), "a")
        if error is QueueDraining:
            await store.set_queue_mode(["x"], QueueMode.DRAINING)
        elif error is QueueDisabled:
            await store.disable_queues(["x"], DisabledMode.REJECT)
        else:
            await store.configure_queue("x", QueueSettings(max_depth=1))
            await one(store, job(queue="x"))
        refused = of("x")
        with pytest.raises(error):
            await (forced if force else one)(store, refused)
        assert await gone(store, refused)
        assert await noted(store) == {"a": True}

    async def test_a_skipped_run_does_not_use_recorded_successes(self, store: Store) -> None:
        await after(store, "x", "a")
        await succeeds(await Hand(store).join(), "a")
        await store.disable_queues(["x"], DisabledMode.SKIP)
        first, second, third = await one(store, of("x")), of("x"), of("x", queue="y")
        await forced(store, second)
        for each in (first, second):
            assert await ending(store, each) == (State.CANCELLED, Reason.SKIPPED)
        assert await noted(store) == {"a": True}
        await one(store, third)
        assert await state(store, third) == State.READY

    @pytest.mark.parametrize("how", ["paused", "draining", "disabled"])
    async def test_a_run_is_released_in_every_mode_of_its_queue(self, store: Store, how: str) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        if how == "disabled":
            await store.disable_queues(["x"], DisabledMode.HOLD)
        else:
            await store.set_queue_mode(["x"], QueueMode(how))
        hand = await Hand(store).join()
        await succeeds(hand, "a", "a")
        assert await state(store, made) == State.READY
        assert await noted(store) == {"a": False}
        assert len(await hand.take(9, "x/any")) == (how == "draining")


@pytest.mark.asyncio
class TestDependenciesAndKeys:
    async def test_the_holder_of_a_unique_key_answers(self, store: Store) -> None:
        """A run that is not inserted waits for nothing and uses no recorded success."""
        await after(store, "x", "a")
        holder = await one(store, of("x", unique=UniqueKey(b"k" * 16)))
        assert await put_in(store, of("x", unique=UniqueKey(b"k" * 16))) == [Enqueued(holder.id, False)]
        assert await waiting(store) == [holder.id]
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        claim = await hand.take_one("x/any")
        await succeeds(hand, "a")
        assert await put_in(store, of("x", unique=UniqueKey(b"k" * 16))) == [Enqueued(holder.id, False)]
        assert await noted(store) == {"a": True}
        await hand.succeed(claim)

    async def test_a_superseding_run_waits_behind_all_others(self, store: Store) -> None:
        await after(store, "x", "a")
        first = await one(store, of("x", unique=UniqueKey(b"k" * 16)))
        second = await one(store, of("x"))
        third = await one(store, of("x", unique=UniqueKey(b"k" * 16, conflict="replace")))
        assert await ending(store, first) == (State.CANCELLED, Reason.SUPERSEDED)
        assert await waiting(store) == [second.id, third.id]

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_replaced_run_waits_in_its_position(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        """And once it was released it is not held back."""
        key = UniqueKey(b"k" * 16, 0 if mode == "keep_last" else SECOND, mode=mode)
        await after(store, "x", "a")
        first, second = await one(store, of("x", unique=key)), await one(store, of("x"))
        assert await put_in(store, of("x", unique=key, record=b"new")) == [Enqueued(first.id, False)]
        assert await state(store, first) == State.BLOCKED
        assert await waiting(store) == [first.id, second.id]
        clock.advance("2s")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        found = await row(store, first)
        assert (found.state, found.record) == (State.READY, b"new")
        assert await put_in(store, of("x", unique=key, record=b"newer")) == [Enqueued(first.id, False)]
        assert await waiting(store) == [second.id]
        clock.advance("2s")
        await store.promote()
        assert [claim.record for claim in await hand.take(9, "x/any")] == [b"newer"]

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_run_replaced_by_a_forced_one_is_released(
        self, store: Store, clock: MovableClock, mode: KeyMode
    ) -> None:
        key = UniqueKey(b"k" * 16, 0 if mode == "keep_last" else SECOND, mode=mode)
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        first = await one(store, of("x", unique=key))
        await forced(store, of("x", unique=key))
        assert await waiting(store) == []
        assert await noted(store) == {"a": False, "b": False}
        clock.advance("2s")
        await store.promote()
        assert ids(await hand.take(9, "x/any")) == [first.id]

    @pytest.mark.parametrize("part", [None, "y", "z"])
    async def test_a_run_replaced_by_a_run_of_another_schedule(self, store: Store, part: str | None) -> None:
        """A waiting run keeps waiting in its position; a released run stays released, whatever its new schedule depends
        on.
        """
        await store.set_dependencies([ScheduleDependency("x", ("a",)), ScheduleDependency("y", ("b",))])
        hand = await Hand(store).join()
        held, free = UniqueKey(b"k" * 16, mode="keep_last"), UniqueKey(b"f" * 16, mode="keep_last")
        first, second = await one(store, of("x", unique=held)), await one(store, job(unique=free))
        marks = [part_mark(part)] if part else []
        said = await put_in(store, job(queue="n", unique=held, marks=marks), job(queue="n", unique=free, marks=marks))
        assert [each.created for each in said] == [False, False]
        assert (await waiting(store), await waiting(store, "y")) == ([first.id], [])
        assert ids(await hand.take(9, "n/any")) == [second.id]
        await succeeds(hand, "a")
        assert ids(await hand.take(9, "n/any")) == [first.id]

    async def test_a_run_replaced_by_a_forced_job_of_no_schedule(self, store: Store) -> None:
        """It waits for no dependencies any more, and its old schedule has not started."""
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        key = UniqueKey(b"k" * 16, mode="keep_last")
        first = await one(store, of("x", unique=key))
        await forced(store, job(unique=key))
        assert ids(await hand.take(9)) == [first.id]
        assert await waiting(store) == []
        assert await noted(store) == {"a": True, "b": False}

    async def test_a_keep_last_run_waits_for_the_job_before_it_too(self, store: Store) -> None:
        key = UniqueKey(b"k" * 16, mode="keep_last")
        await after(store, "x", "a")
        hand = await Hand(store).join()
        await forced(store, of("x", unique=key))
        claim = await hand.take_one("x/any")
        second = await one(store, of("x", unique=key))
        await succeeds(hand, "a")
        assert await state(store, second) == State.BLOCKED
        await hand.succeed(claim)
        assert await state(store, second) == State.READY

    async def test_a_repeated_batch_changes_nothing(self, store: Store) -> None:
        await after(store, "x", "a")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        made = of("x")
        sent = Batch(id=new_id().bytes, jobs=(made,), forced=True)
        again = Batch(id=sent.id, jobs=(made,), forced=True, retry=True)
        await store.enqueue(sent)
        await hand.succeed(await hand.take_one("x/any"))
        await succeeds(hand, "a")
        assert await store.enqueue(again) == [Enqueued(made.id, False)]
        assert await noted(store) == {"a": True}

    async def test_a_follow_up_job_is_no_run(self, store: Store) -> None:
        follow = job(id=bytes(16), marks=[part_mark("x")])
        with pytest.raises(StoreConflict, match="is a run of a schedule"):
            await one(store, job(follows=[FollowUp(State.SUCCEEDED, follow)]))

    async def test_enqueue_now_obeys_dependencies(self, store: Store) -> None:
        await after(store, "x", "a")
        made = of("x")
        store.enqueue_now(Batch(id=new_id().bytes, jobs=(made,)))
        assert await state(store, made) == State.BLOCKED
        now = of("x")
        store.enqueue_now(Batch(id=new_id().bytes, jobs=(now,), forced=True))
        assert await state(store, now) == State.READY

    async def test_a_schedule_without_dependencies_and_dependents(self, store: Store) -> None:
        """Jobs with the mark are jobs like all others."""
        await after(store, "other", "else")
        jobs = [of("x", queue="q") for _ in range(5)]
        await put_in(store, *jobs, job())
        hand, claim = await running(store, of("x"))
        await hand.succeed(claim, *(await hand.take(9)))
        assert (await store.count(Query(marks=(part_mark("x"),))))[State.SUCCEEDED] == 6
        assert await noted(store, "other") == {"else": False}
