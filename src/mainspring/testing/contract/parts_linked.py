"""What parts wait for can be said anew, and somebody may be in a hurry."""

from __future__ import annotations

import pytest

from mainspring.schedules.records import ScheduleDependency, ScheduleDependencyRow
from mainspring.states import State
from mainspring.stores.base import Store

from .hands import Hand, ids, one, put_in, state
from .parts import after, forced, noted, of, succeeds, waiting

__all__ = ["TestForced", "TestLinks"]


@pytest.mark.asyncio
class TestForced:
    async def test_it_waits_for_nobody(self, store: Store) -> None:
        await after(store, "x", "a")
        first, now = await one(store, of("x")), of("x")
        await forced(store, now)
        assert [await state(store, each) for each in (first, now)] == [State.BLOCKED, State.READY]
        assert await waiting(store) == [first.id]

    async def test_it_takes_the_notes_away(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await forced(store, of("x"), of("x"))
        assert await noted(store) == {"a": False, "b": False}
        assert len(await hand.take(9, "x/any")) == 2

    async def test_it_is_the_one_that_was_released_last(self, store: Store) -> None:
        await after(store, "x", "a")
        await forced(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert await noted(store) == {"a": False}
        await hand.take_one("x/any")
        await succeeds(hand, "a")
        assert await noted(store) == {"a": True}

    async def test_one_that_is_there_already_takes_nothing(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        made = await one(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await forced(store, made)
        assert await state(store, made) == State.BLOCKED
        assert await noted(store) == {"a": True, "b": False}


@pytest.mark.asyncio
class TestLinks:
    async def test_how_they_stand(self, store: Store, second_store: Store) -> None:
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

    async def test_a_hundred_are_named(self, store: Store) -> None:
        await after(store, "x", "a")
        made = [of("x") for _ in range(120)]
        await put_in(store, *made)
        assert await waiting(store) == ids(made[:100])

    async def test_the_last_word_stands(self, store: Store) -> None:
        """What was noted of those that stay is not forgotten, and nothing is noted of a new one."""
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

    async def test_more_hold_back_those_who_wait(self, store: Store) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert await state(store, made) == State.BLOCKED
        await succeeds(hand, "b")
        assert await state(store, made) == State.READY

    async def test_fewer_release_the_first_if_the_rest_is_noted(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        first, second = await one(store, of("x")), await one(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await after(store, "x", "a")
        assert [await state(store, each) for each in (first, second)] == [State.READY, State.BLOCKED]
        assert await noted(store) == {"a": False}

    async def test_none_releases_all_in_their_order(self, store: Store) -> None:
        await after(store, "x", "a")
        made = sorted((of("x") for _ in range(5)), key=lambda each: each.id, reverse=True)
        await put_in(store, *made)
        await after(store, "x")
        hand = await Hand(store).join()
        assert ids(await hand.take(9, "x/any")) == ids(made)
        assert await store.dependencies() == []
        assert await state(store, await one(store, of("x"))) == State.READY

    async def test_nothing_is_kept_of_a_part_that_waits_for_nobody(self, store: Store) -> None:
        """Neither what was noted, nor who was released last."""
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        await forced(store, of("x"))
        await after(store, "x")
        await after(store, "x", "a", "b")
        assert await noted(store) == {"a": False, "b": False}
        await succeeds(hand, "b")
        assert await noted(store) == {"a": False, "b": True}

    async def test_those_that_were_there_before_the_link_do_not_wait(self, store: Store) -> None:
        made = await one(store, of("x"))
        await after(store, "x", "a")
        assert await state(store, made) == State.READY
