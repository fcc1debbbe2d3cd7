"""A run is released once each dependency of its schedule has succeeded since the last start."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.common.ids import new_id
from mainspring.jobs.records import Batch, NewJob
from mainspring.schedules.records import ScheduleDependency, part_mark
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, ids, job, limits_of, one, put_in, state

__all__ = ["TestRelease"]


def of(part: str, *, marks: tuple[str, ...] = (), **options: Any) -> NewJob:
    """A run of a schedule, in a queue of that name unless another is given."""
    return job(queue=options.pop("queue", part), marks=["tag", part_mark(part), *marks], **options)


async def after(store: Store, part: str, *others: str) -> None:
    """The schedule depends on these."""
    await store.set_dependencies([ScheduleDependency(part, others)])


async def forced(store: Store, *jobs: NewJob) -> None:
    """Enqueue jobs that wait for no dependencies."""
    await store.enqueue(Batch(id=new_id().bytes, jobs=jobs, limits=limits_of(jobs), forced=True))


async def succeeds(hand: Hand, *parts: str) -> None:
    """A run of each of these schedules is enqueued, runs and succeeds."""
    for part in parts:
        made = await one(hand.store, of(part))
        claim = await hand.take_one(f"{part}/any")
        assert claim.id == made.id
        await hand.succeed(claim)


async def noted(store: Store, part: str = "x") -> dict[str, bool]:
    """The successes that are recorded for the schedule."""
    return next((dict(row.after) for row in await store.dependencies() if row.name == part), {})


async def waiting(store: Store, part: str = "x") -> list[bytes]:
    """The runs of the schedule that wait for dependencies."""
    return next((list(row.waiting) for row in await store.dependencies() if row.name == part), [])


@pytest.mark.asyncio
class TestRelease:
    async def test_a_run_waits_until_each_dependency_has_succeeded(self, store: Store, second_store: Store) -> None:
        await after(store, "x", "a", "b")
        made = await one(second_store, of("x"))
        hand = await Hand(store).join()
        assert await state(store, made) == State.BLOCKED
        assert await hand.take(9, "x/any") == ()
        await succeeds(hand, "a", "a")
        assert await state(store, made) == State.BLOCKED
        await succeeds(hand, "b")
        assert await state(store, made) == State.READY
        assert ids(await hand.take(9, "x/any")) == [made.id]

    async def test_a_run_starts_at_once_when_all_successes_are_recorded(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        await succeeds(hand, "a", "b")
        first, second = await one(store, of("x")), await one(store, of("x"))
        assert [await state(store, each) for each in (first, second)] == [State.READY, State.BLOCKED]
        assert await noted(store) == {"a": False, "b": False}

    async def test_the_first_run_of_a_batch_is_released(self, store: Store) -> None:
        """And it keeps its position among the other jobs of the batch."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        first, second, plain = of("x", queue="q"), of("x", queue="q"), job()
        await put_in(store, first, second, plain)
        assert ids(await hand.take(9)) == [first.id, plain.id]
        assert await waiting(store) == [second.id]

    async def test_the_run_enqueued_first_is_released_first(self, store: Store, second_store: Store) -> None:
        """One for each round of successes, whatever their ids and priorities."""
        await after(store, "x", "a", "b")
        made = sorted((of("x", priority=n) for n in range(4)), key=lambda each: each.id, reverse=True)
        await put_in(store, made[0], made[1])
        await one(second_store, made[2])
        await one(store, made[3])
        hand = await Hand(store).join()
        for n, each in enumerate(made):
            assert await waiting(store) == ids(made[n:])
            await succeeds(hand, "a", "b")
            claims = await hand.take(9, "x/any")
            assert ids(claims) == [each.id]
            await hand.succeed(*claims)

    async def test_a_success_while_the_released_run_waits_is_not_recorded(self, store: Store) -> None:
        """Its start comes later and uses that success."""
        await after(store, "x", "a")
        first, second = await one(store, of("x")), await one(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "a", "a", "a")
        assert await noted(store) == {"a": False}
        assert ids(await hand.take(9, "x/any")) == [first.id]
        assert await state(store, second) == State.BLOCKED

    async def test_a_success_while_the_run_is_running_is_recorded(self, store: Store) -> None:
        await after(store, "x", "a", "b")
        hand = await Hand(store).join()
        first, second = await one(store, of("x")), await one(store, of("x"))
        await succeeds(hand, "a", "b")
        claim = await hand.take_one("x/any")
        assert claim.id == first.id
        await succeeds(hand, "a")
        assert await noted(store) == {"a": True, "b": False}
        await succeeds(hand, "b")
        assert await state(store, second) == State.READY
        await hand.succeed(claim)

    async def test_a_chain_of_dependencies(self, store: Store) -> None:
        await store.set_dependencies([ScheduleDependency("b", ("a",)), ScheduleDependency("c", ("b",))])
        last, middle = await one(store, of("c")), await one(store, of("b"))
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert [await state(store, each) for each in (middle, last)] == [State.READY, State.BLOCKED]
        await hand.succeed(await hand.take_one("b/any"))
        assert await state(store, last) == State.READY

    async def test_one_success_counts_for_all_dependents(self, store: Store) -> None:
        parts = [f"x{n}" for n in range(20)]
        await store.set_dependencies([ScheduleDependency(part, ("a",)) for part in parts])
        jobs = [of(part, queue="x") for part in parts]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await succeeds(hand, "a")
        assert sorted(ids(await hand.take(99, "x/any"))) == sorted(ids(jobs))

    async def test_several_successes_in_one_turn(self, store: Store) -> None:
        """The released run is among the claims of that turn; a second success of a dependency is not recorded."""
        await after(store, "x", "a", "b")
        first, second = await one(store, of("x", queue="q")), await one(store, of("x", queue="q"))
        sources = [of(part, queue="s") for part in ("a", "b", "a", "b")]
        await put_in(store, *sources, job(queue="s"))
        hand = await Hand(store).join()
        await hand.succeed(*(await hand.take(9, "s/any")))
        assert ids(await hand.take(9)) == [first.id]
        assert await waiting(store) == [second.id]
        assert await noted(store) == {"a": False, "b": False}

    async def test_successes_of_other_schedules_and_jobs_do_not_count(self, store: Store) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        hand = await Hand(store).join()
        await succeeds(hand, "b", "A", "a ", "^@a")
        for marks in (("a",), ("^a",), ("@a",), ()):
            await one(store, job(marks=marks))
            await hand.succeed(await hand.take_one())
        assert await state(store, made) == State.BLOCKED
        assert await state(store, await one(store, job(marks=["x"]))) == State.READY

    async def test_namespaces_have_separate_dependencies(self, store: Store, elsewhere: Store) -> None:
        await after(store, "x", "a")
        made = await one(store, of("x"))
        assert await state(elsewhere, await one(elsewhere, of("x"))) == State.READY
        await succeeds(await Hand(elsewhere).join(), "a")
        assert await state(store, made) == State.BLOCKED
        assert await elsewhere.dependencies() == []

    async def test_names_may_be_any_text(self, store: Store) -> None:
        for name in ("a:b", "ä {x}", "it's", '"', "%s_%", "\u2603 \U0001f41b", " ", "*", "x" * 200):
            await after(store, name, name + "!")
            made = await one(store, of(name, queue="q"))
            assert await state(store, made) == State.BLOCKED
            await one(store, of(name + "!", queue="s"))
            hand = await Hand(store).join()
            await hand.succeed(await hand.take_one("s/any"))
            assert ids(await hand.take(9)) == [made.id]
