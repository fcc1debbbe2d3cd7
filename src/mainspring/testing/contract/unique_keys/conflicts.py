"""Unique keys: one holder at a time, whichever conflict mode is used."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import KeyTaken
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, Enqueued, JobBatch, NewJob, UniqueKey
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    HOUR,
    MINUTE,
    Hand,
    ending,
    gone,
    ids,
    ignoring,
    job,
    lease,
    one,
    put_in,
    row,
    running,
    state,
)  # fmt: skip

__all__ = ["TestKeyConflicts", "TestKeyRaces", "TestReplace"]

KEY = b"k" * 16
OTHER = b"o" * 16


def keyed(
    conflict: Literal["return", "replace", "error"] = "return",
    *,
    key: bytes = KEY,
    window: int = 0,
    expires_in: int | None = None,
    early: bool = False,
    crashes: int = 3,
    delay: int = 0,
) -> NewJob:
    return job(
        unique=UniqueKey(key, window, conflict), expires_in=expires_in, early=early, crashes=crashes, delay=delay
    )


async def is_free(store: Store, key: bytes = KEY) -> bool:
    """Whether a new job gets the key; it is taken away again."""
    probe = keyed(key=key)
    (said,) = await put_in(store, probe)
    assert said == Enqueued(probe.id, True) or (not said.created and said.id != probe.id)
    await store.act(Action.DELETE, Query(ids=(probe.id,)))
    return said.created


@pytest.mark.asyncio
class TestKeyConflicts:
    async def test_return_answers_with_the_holder(self, store: Store) -> None:
        holder, second = keyed(), keyed()
        assert await put_in(store, holder) == [Enqueued(holder.id, True)]
        assert await put_in(store, second) == [Enqueued(holder.id, False)]
        assert await gone(store, second)

    async def test_another_key_does_not_conflict(self, store: Store) -> None:
        first, second = keyed(), keyed(key=OTHER)
        assert [said.created for said in await put_in(store, first, second)] == [True, True]

    async def test_the_rest_of_the_batch_is_inserted(self, store: Store) -> None:
        """In order: a job that was not inserted leaves no gap."""
        holder = await one(store, keyed())
        before, found, after = job(), keyed(), job()
        said = await put_in(store, before, found, after)
        assert said == [Enqueued(before.id, True), Enqueued(holder.id, False), Enqueued(after.id, True)]
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == ids([holder, before, after])

    async def test_the_first_job_of_a_batch_gets_the_key(self, store: Store) -> None:
        first, second = keyed(), keyed()
        assert await put_in(store, first, second) == [Enqueued(first.id, True), Enqueued(first.id, False)]
        assert await gone(store, second)

    async def test_error_names_the_holder_and_inserts_nothing(self, store: Store) -> None:
        holder = await one(store, keyed())
        plain, second, other = job(), keyed("error"), keyed(key=OTHER)
        with pytest.raises(KeyTaken) as refused:
            await put_in(store, plain, other, second)
        assert refused.value.holder.bytes == holder.id
        assert [await gone(store, each) for each in (plain, second, other)] == [True] * 3
        assert await state(store, holder) == State.READY
        assert await is_free(store, OTHER)

    async def test_error_in_one_batch(self, store: Store) -> None:
        first, second = keyed("error"), keyed("error")
        with pytest.raises(KeyTaken):
            await put_in(store, first, second)
        assert await gone(store, first)
        assert await is_free(store)

    async def test_error_undoes_a_replacement_of_the_same_batch(self, store: Store) -> None:
        holder, other = await one(store, keyed()), await one(store, keyed(key=OTHER))
        with pytest.raises(KeyTaken):
            await put_in(store, keyed("replace"), keyed("error", key=OTHER))
        assert [await state(store, each) for each in (holder, other)] == [State.READY] * 2
        assert await put_in(store, keyed()) == [Enqueued(holder.id, False)]

    async def test_enqueue_now_checks_keys_too(self, store: Store) -> None:
        holder = await one(store, keyed())
        said = store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(keyed(),)))
        assert said == [Enqueued(holder.id, False)]
        with pytest.raises(KeyTaken):
            store.enqueue_now(JobBatch(id=new_id().bytes, jobs=(keyed("error"),)))

    async def test_a_job_with_a_parent_and_a_key(self, store: Store) -> None:
        """A blocked job holds its key too; a job that is not inserted waits for no parent."""
        parent = await one(store)
        holder = msgspec.structs.replace(keyed(), after=(Edge(parent.id),))
        second = msgspec.structs.replace(keyed(), after=(Edge(parent.id),))
        assert await put_in(store, holder, second) == [Enqueued(holder.id, True), Enqueued(holder.id, False)]
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert ids(await hand.take(9)) == [holder.id]

    async def test_namespaces_have_separate_keys(self, store: Store, elsewhere: Store) -> None:
        await one(store, keyed())
        assert await is_free(elsewhere)

    @pytest.mark.parametrize("conflict", ["return", "replace", "error"])
    async def test_a_repeat_returns_its_own_job(
        self, store: Store, conflict: Literal["return", "replace", "error"]
    ) -> None:
        """The reply was lost: with the retry flag and without it the reply names the job of the first try."""
        made = keyed(conflict)
        await put_in(store, made)
        for retry in (True, False):
            assert await put_in(store, made, retry=retry) == [Enqueued(made.id, False)]
        assert await state(store, made) == State.READY
        assert not await is_free(store)

    async def test_a_repeat_returns_its_own_job_after_the_key_moved(self, store: Store) -> None:
        hand, claim = await running(store, made := keyed())
        await put_in(store, taker := keyed("replace"))
        for again in ("return", "error", "replace"):
            repeated = msgspec.structs.replace(made, unique=UniqueKey(KEY, 0, again))
            assert await put_in(store, repeated, retry=True) == [Enqueued(made.id, False)]
        await hand.succeed(claim)
        assert await put_in(store, made, retry=True) == [Enqueued(made.id, False)]
        assert await ending(store, made) == (State.SUCCEEDED, None)
        assert await state(store, taker) == State.READY


@pytest.mark.asyncio
class TestReplace:
    async def test_a_waiting_holder_is_superseded(self, store: Store) -> None:
        old, new = keyed(delay=HOUR), keyed("replace")
        await put_in(store, old)
        assert await put_in(store, new) == [Enqueued(new.id, True)]
        assert await ending(store, old) == (State.CANCELLED, Reason.SUPERSEDED)
        assert await state(store, new) == State.READY
        assert await put_in(store, keyed()) == [Enqueued(new.id, False)]

    async def test_a_running_holder_keeps_running(self, store: Store) -> None:
        """It has lost the key: its end releases nothing."""
        hand, claim = await running(store, keyed())
        new = await one(store, keyed("replace"))
        found = await row(store, claim)
        assert (found.state, found.ordered) == (State.RUNNING, False)
        await hand.succeed(claim)
        assert await put_in(store, keyed()) == [Enqueued(new.id, False)]

    async def test_a_running_holder_that_fails_is_retried(self, store: Store) -> None:
        hand, claim = await running(store, keyed())
        new = await one(store, keyed("replace"))
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        assert await state(store, claim) == State.RETRYING
        newest = await one(store, keyed("replace"))
        assert await ending(store, new) == (State.CANCELLED, Reason.SUPERSEDED)
        assert await state(store, claim) == State.RETRYING
        assert await put_in(store, keyed()) == [Enqueued(newest.id, False)]

    async def test_an_ended_holder_does_not_change(self, store: Store) -> None:
        hand, claim = await running(store, keyed(window=HOUR))
        await hand.kill(claim)
        new = await one(store, keyed("replace"))
        assert await state(store, claim) == State.DEAD
        assert await put_in(store, keyed()) == [Enqueued(new.id, False)]

    async def test_dependents_of_a_superseded_job_are_resolved(self, store: Store) -> None:
        old = keyed()
        child, careless = job(after=[old]), job(after=[ignoring(old)])
        await put_in(store, old, child, careless)
        await put_in(store, keyed("replace"))
        assert await ending(store, child) == (State.CANCELLED, Reason.PARENT)
        assert await state(store, careless) == State.READY

    async def test_the_last_replacement_of_a_batch_stays(self, store: Store) -> None:
        first, second, third = keyed("replace"), keyed("replace"), keyed("replace")
        said = await put_in(store, first, second, third)
        assert [each.created for each in said] == [True] * 3
        assert [await ending(store, each) for each in (first, second, third)] == [
            (State.CANCELLED, Reason.SUPERSEDED), (State.CANCELLED, Reason.SUPERSEDED), (State.READY, None),
        ]  # fmt: skip
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == [third.id]

    async def test_a_replacement_starts_a_new_window(self, store: Store, clock: MovableClock) -> None:
        await one(store, keyed(window=HOUR))
        hand = await Hand(store).join()
        await put_in(store, keyed("replace", window=MINUTE))
        await hand.succeed(await hand.take_one())
        clock.advance("59s")
        assert not await is_free(store)
        clock.advance("2s")
        assert await is_free(store)

    async def test_a_repeat_replaces_no_other_job(self, store: Store) -> None:
        """The reply was lost, and meanwhile another job took the key."""
        first = await one(store, keyed("replace"))
        second = await one(store, keyed("replace"))
        assert await put_in(store, first, retry=True) == [Enqueued(first.id, False)]
        assert await state(store, second) == State.READY


@pytest.mark.asyncio
class TestKeyRaces:
    async def test_a_hundred_producers_make_one_job(self, store: Store, second_store: Store) -> None:
        jobs = [keyed() for _ in range(100)]
        places = [store, second_store] * 50
        said = await asyncio.gather(*(put_in(place, each) for place, each in zip(places, jobs, strict=True)))
        assert sum(each.created for (each,) in said) == 1
        (holder,) = {each.id for (each,) in said}
        assert (await store.count(Query.everything()))[State.READY] == 1
        assert await state(store, holder) == State.READY

    async def test_a_hundred_replacing_producers_leave_one_job(self, store: Store, second_store: Store) -> None:
        places = [store, second_store] * 50
        await asyncio.gather(*(put_in(place, keyed("replace")) for place in places))
        counts = await store.count(Query.everything())
        assert (counts[State.READY], counts[State.CANCELLED]) == (1, 99)
