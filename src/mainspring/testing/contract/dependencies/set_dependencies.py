"""Dependencies can be set again, and a forced run does not wait for them."""

from __future__ import annotations

import pytest

from mainspring.schedules.records import ScheduleDependency, ScheduleDependencyRow
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, ids, one, put_in, state

from .release import after, forced, noted, of, succeeds, waiting

__all__ = ["TestForcedRuns", "TestSetDependencies"]


@pytest.mark.asyncio
class TestForcedRuns:
    async def test_a_forced_run_does_not_wait(self, store: Store) -> None:
        await after(store, "x", "a")
        first, now = await one(store, of("x")), of("x")
        await forced(store, now)
        assert [await state(store, each) for each in (first, now)] == [State.BLOCKED, State.READY]
        assert await waiting(store) == [first.id]

    async def test_a_forced_run_deletes_the_recorded_successes(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await forced(store, of("x"), of("x"))
        assert await noted(store) == {"a": False, "b": False}
        assert len(await hand.take(9, "x/any")) == 2

    async def test_a_forced_run_counts_as_the_last_released(self, store: Store) -> None:
        await after(store, "x", "a")
        await forced(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert await noted(store) == {"a": False}
        await hand.take_one("x/any")
        await succeeds(hand, "a")
        assert await noted(store) == {"a": True}

    async def test_a_forced_repeat_of_a_waiting_run_changes_nothing(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        made = await one(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await forced(store, made)
        assert await state(store, made) == State.BLOCKED
        assert await noted(store) == {"a": True, "b": False}


@pytest.mark.asyncio
class TestSetDependencies:
    async def test_dependency_rows_show_successes_and_waiting_runs(self, store: Store, second_store: Store) -> None:
        await store.set_dependencies(
            [ScheduleDependency("y", ("b", "a", "b")), ScheduleDependency("x", ("y",)), ScheduleDependency("z", ())]
        )
        made = [await one(store, of("x")) for _ in range(3)]
        hand = await Hand(store).join()
        await succeeds(hand, "b")
        assert await second_store.dependencies() == [
            ScheduleDependencyRow(name="x", after=(("y", False),), waiting=tuple(ids(made))),
            ScheduleDependencyRow(name="y", after=(("a", False), ("b", True))),
        ]

    async def test_a_row_names_a_hundred_waiting_runs_at_most(self, store: Store) -> None:
        await after(store, "x", "a")
        made = [of("x") for _ in range(120)]
        await put_in(store, *made)
        assert await waiting(store) == ids(made[:100])

    async def test_the_last_call_holds(self, store: Store) -> None:
        """Successes of dependencies that remain stay recorded, and no success of a new dependency is recorded."""
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await after(store, "x", "c", "a")
        assert await noted(store) == {"a": True, "c": False}
        await after(store, "x", "c", "a")
        assert await noted(store) == {"a": True, "c": False}
        await after(store, "x", "c")
        await after(store, "x", "a", "c")
        assert await noted(store) == {"a": False, "c": False}

    async def test_a_new_dependency_holds_back_waiting_runs(self, store: Store) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert await state(store, made) == State.BLOCKED
        await succeeds(hand, "b")
        assert await state(store, made) == State.READY

    async def test_removing_a_dependency_releases_the_first_run(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        first, second = await one(store, of("x")), await one(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await after(store, "x", "a")
        assert [await state(store, each) for each in (first, second)] == [State.READY, State.BLOCKED]
        assert await noted(store) == {"a": False}

    async def test_removing_all_dependencies_releases_all_runs_in_order(self, store: Store) -> None:
        await after(store, "x", "a")
        made = sorted((of("x") for _ in range(5)), key=lambda each: each.id, reverse=True)
        await put_in(store, *made)
        await after(store, "x")
        hand = await Hand(store).join()
        assert ids(await hand.take(9, "x/any")) == ids(made)
        assert await store.dependencies() == []
        assert await state(store, await one(store, of("x"))) == State.READY

    async def test_nothing_is_stored_of_a_schedule_without_dependencies(self, store: Store) -> None:
        """Neither recorded successes nor the run that was released last."""
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await forced(store, of("x"))
        await after(store, "x")
        await after(store, "x", "a", "b")
        assert await noted(store) == {"a": False, "b": False}
        await succeeds(hand, "b")
        assert await noted(store) == {"a": False, "b": True}

    async def test_runs_enqueued_before_the_dependency_do_not_wait(self, store: Store) -> None:
        made = await one(store, of("x"))
        await after(store, "x", "a")
        assert await state(store, made) == State.READY
