"""Follow-up jobs: inserted in the step in which their job ends, once for each epoch."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar
from uuid import UUID

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import derived_id, new_id
from mainspring.errors import StoreConflict
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import (
    ENDED_JOB,
    MOST_FOLLOW_UPS,
    Edge,
    FollowUp,
    JobBatch,
    JobRow,
    NewJob,
    UniqueKey,
)
from mainspring.queues.records import QueueMode
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    LANE,
    SECOND,
    TASK,
    Hand,
    bucket,
    ending,
    gone,
    ids,
    job,
    lease,
    one,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Claim

__all__ = ["TestFollowUps", "TestRefusedFollowUps"]

ENDS = (State.SUCCEEDED, State.DEAD, State.CANCELLED)


def followed(
    *,
    ends: tuple[State, ...] = ENDS,
    expires_in: int | None = None,
    early: bool = False,
    crashes: int = 3,
    after: tuple[Edge, ...] = (),
    unique: UniqueKey | None = None,
) -> NewJob:
    """A job with a follow-up for each of these ends, each in a queue with the end's name."""
    own = new_id().bytes
    return job(
        id=own, expires_in=expires_in, early=early, crashes=crashes, after=after, unique=unique,
        follows=[FollowUp(end, job(id=derived_id(own, end.encode()), queue=end.value)) for end in ends],
    )  # fmt: skip


def follower(of: NewJob, end: State, epoch: int = 1) -> bytes:
    """The id of the follow-up for this end."""
    (made,) = (follow.job.id for follow in of.follows if follow.on is end)
    return made[:14] + epoch.to_bytes(2)


async def followers(store: Store, of: NewJob, epoch: int = 1) -> list[State]:
    """The ends whose follow-up job is somewhere."""
    ends = [follow.on for follow in of.follows]
    found = await store.find(Query(ids=tuple(follower(of, end, epoch) for end in ends)))
    there = {each.id for each in found.jobs}
    return [end for end in ends if follower(of, end, epoch) in there]


def chain(id: bytes, length: int, **last: Any) -> NewJob:
    """A job that is followed by a job for each end, and so on; each is in a queue with the number of its level."""
    names = str(ENDED_JOB).encode() + b"\xff"
    level = job(id=derived_id(id, b"%d" % length), queue=f"level-{length}", record=names, marks=("^" + ENDED_JOB.hex,))
    made = msgspec.structs.replace(level, **last)
    for n in range(length - 1, -1, -1):
        own = derived_id(id, b"%d" % n) if n else id
        upper = job(id=own, queue=f"level-{n}", record=names, marks=("^" + ENDED_JOB.hex, "tag"), priority=n, crashes=1)
        made = msgspec.structs.replace(upper, follows=tuple(FollowUp(end, made) for end in ENDS[:1]))
    return msgspec.structs.replace(made, record=b"{}", marks=())


async def levels(store: Store, length: int) -> list[list[JobRow]]:
    """The jobs of each level below the first."""
    return [list((await store.find(Query.where(queues=[f"level-{n}"]))).jobs) for n in range(1, length + 1)]


@pytest.mark.asyncio
class TestFollowUps:
    async def test_no_follow_up_before_the_end(self, store: Store) -> None:
        hand, claim = await running(store, made := followed())
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=0))
        await store.promote()
        again = await hand.take_one()
        await hand.turn(Ack.returned(lease(again)))
        assert await followers(store, made) == []

    async def test_a_follow_up_has_all_its_options(self, store: Store, clock: MovableClock) -> None:
        """Its times count from the end of the job that it follows."""
        own = new_id().bytes
        wanted = NewJob(
            id=derived_id(own, b"then"), task="shop.tasks.after", queue="then", kind="thread", priority=7,
            delay=5 * SECOND, expires_in=60 * SECOND, crashes=5, early=True, record=b"\x00\xff", marks=("a", "^p"),
            keep=9 * SECOND,
        )  # fmt: skip
        hand, claim = await running(store, job(id=own, follows=[FollowUp(State.SUCCEEDED, wanted)]))
        clock.advance("1h")
        await hand.succeed(claim)
        found = await row(store, wanted.id[:14] + b"\0\1")
        assert (found.state, found.task, found.queue, found.lane) == (
            State.SCHEDULED, "shop.tasks.after", "then", "then/thread",
        )  # fmt: skip
        assert (found.priority, found.crash_limit, found.early, found.record) == (7, 5, True, b"\x00\xff")
        now = clock.now_us()
        assert (found.enqueued, found.due, found.expires) == (now, now + 5 * SECOND, now + 60 * SECOND)
        assert ids((await store.find(Query.where(tags=["a", "^p"]))).jobs) == [found.id]

    async def test_several_follow_ups_for_one_end(self, store: Store) -> None:
        own = new_id().bytes
        them = [job(id=derived_id(own, bytes([n])), queue="then") for n in range(3)]
        hand, claim = await running(store, job(id=own, follows=[FollowUp(State.DEAD, each) for each in them]))
        await hand.kill(claim)
        assert ids(await hand.take(9, "then/any")) == [each.id[:14] + b"\0\1" for each in them]

    async def test_follow_ups_among_plain_successes_of_one_turn(self, store: Store) -> None:
        jobs = [job(), followed(), job(), followed(ends=(State.DEAD,))]
        await put_in(store, *jobs)
        hand = await Hand(store).join()
        await hand.succeed(*await hand.take(9))
        assert [await state(store, each) for each in jobs] == [State.SUCCEEDED] * 4
        assert await followers(store, jobs[1]) == [State.SUCCEEDED]
        assert await followers(store, jobs[3]) == []

    async def test_a_repeated_turn_makes_no_second_follow_up(self, store: Store) -> None:
        hand, claim = await running(store, made := followed())
        await hand.succeed(claim)
        said = await hand.repeat()
        assert said.already == ((claim.id, claim.token),)
        assert sum((await store.count(Query.everything())).values()) == 2
        assert await followers(store, made) == [State.SUCCEEDED]

    async def test_a_stale_ack_makes_no_follow_up(self, store: Store) -> None:
        hand, claim = await running(store, made := followed())
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        other = await Hand(store).join()
        await other.turn(Ack.succeeded(lease(claim)))
        assert await followers(store, made) == []

    async def test_each_epoch_has_its_own_follow_up(self, store: Store) -> None:
        hand, claim = await running(store, made := followed())
        await hand.kill(claim)
        for epoch in (2, 3):
            await store.act(Action.RETRY, Query(ids=(made.id,)))
            await hand.kill(await hand.take_one())
            assert await followers(store, made, epoch) == [State.DEAD]
        assert await followers(store, made, 1) == [State.DEAD]
        await store.act(Action.RETRY, Query(ids=(made.id,)))
        await hand.succeed(await hand.take_one())
        assert await followers(store, made, 4) == [State.SUCCEEDED]
        assert len(await hand.take(9, "dead/any")) == 3

    async def test_delete_makes_no_follow_up(self, store: Store) -> None:
        made = await one(store, followed())
        await store.act(Action.DELETE, Query(ids=(made.id,)))
        assert await followers(store, made) == []

    async def test_a_job_that_is_enqueued_again_does_not_double_its_follow_ups(self, store: Store) -> None:
        """Deleted and spawned again, it has the same id and begins in the first epoch."""
        hand, claim = await running(store, made := followed())
        await hand.succeed(claim)
        await hand.succeed(await hand.take_one("succeeded/any"))
        await store.act(Action.DELETE, Query(ids=(made.id,)))
        await put_in(store, made, retry=True)
        await hand.succeed(await hand.take_one())
        assert await ending(store, follower(made, State.SUCCEEDED)) == (State.SUCCEEDED, None)
        assert await hand.take(9, "succeeded/any") == ()

    @pytest.mark.parametrize("mode", [QueueMode.DRAINING, QueueMode.PAUSED])
    async def test_a_follow_up_is_inserted_in_every_mode_of_its_queue(self, store: Store, mode: QueueMode) -> None:
        hand, claim = await running(store, made := followed())
        await store.set_queue_mode(["succeeded"], mode)
        await hand.succeed(claim)
        assert await followers(store, made) == [State.SUCCEEDED]
        assert len(await hand.take(9, "succeeded/any")) == (mode is QueueMode.DRAINING)

    async def test_a_repeated_enqueue_stores_follow_ups_once(self, store: Store) -> None:
        """The reply was lost."""
        made = followed()
        batch = JobBatch(id=new_id().bytes, jobs=(made, job(queue="x")))
        await store.enqueue(batch)
        await store.enqueue(msgspec.structs.replace(batch, retry=True))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert await followers(store, made) == [State.SUCCEEDED]

    async def test_follow_ups_of_a_job_with_parents_and_limits(self, store: Store) -> None:
        """The limits are those of the job and not of the follow-up."""
        parent = await one(store, job(queue="p"))
        made = msgspec.structs.replace(followed(after=(Edge(parent.id),)), buckets=(bucket("gate", 1),))
        await put_in(store, made)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("p/any"))
        await hand.succeed(await hand.take_one())
        found = await row(store, follower(made, State.SUCCEEDED))
        assert (found.state, found.lane, found.deps) == (State.READY, "succeeded/any", 0)

    async def test_a_follow_up_wakes_listeners(self, store: Store) -> None:
        hand, claim = await running(store, followed())
        listener = await store.listen("w", ["succeeded"])
        waiting = asyncio.create_task(listener.wait(30.0))
        await hand.succeed(claim)
        assert await waiting
        listener.close()

    async def test_a_child_of_a_parent_with_follow_ups(self, store: Store) -> None:
        """A dependent of the job does not wait for its follow-up job."""
        made = followed()
        child = job(after=[made])
        await put_in(store, made, child)
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        assert await state(store, child) == State.READY

    async def test_follow_ups_of_follow_ups_name_the_job_before_them(self, store: Store) -> None:
        """To any depth: each level is inserted by the end of the level before, with its options."""
        length = 4
        made = await one(store, chain(new_id().bytes, length))
        hand = await Hand(store).join()
        before = made.id
        await hand.succeed(await hand.take_one("level-0/any"))
        for n in range(1, length + 1):
            found = await levels(store, length)
            assert [len(rows) for rows in found] == [1] * n + [0] * (length - n)
            [now] = found[n - 1]
            parent = UUID(bytes=before) if n > 1 else ENDED_JOB
            assert now.record == str(parent).encode() + b"\xff"
            assert ids((await store.find(Query.where(tags=["^" + parent.hex]))).jobs) == [now.id]
            assert now.priority == (n if n < length else 0)
            assert UUID(bytes=now.id).version == 7
            await hand.succeed(await hand.take_one(f"level-{n}/any"))
            before = now.id
        assert sum((await store.count(Query.everything())).values()) == length + 1

    async def test_each_epoch_of_each_level_has_its_own_follow_ups(self, store: Store) -> None:
        made = await one(store, chain(new_id().bytes, 3))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("level-0/any"))
        for _ in range(2):
            await store.act(Action.RETRY, Query(ids=(made.id,)))
            await hand.succeed(await hand.take_one("level-0/any"))
        for n, expected in ((1, 3), (2, 6), (3, 12)):
            await hand.succeed(*await hand.take(99, f"level-{n}/any"))
            rows = (await levels(store, 3))[n - 1]
            assert len({each.id for each in rows}) == expected
            if n < 3:
                await store.act(Action.RETRY, Query(ids=tuple(each.id for each in rows)))
                await hand.succeed(*await hand.take(99, f"level-{n}/any"))

    async def test_a_repeated_turn_makes_no_second_follow_up_of_a_follow_up(self, store: Store) -> None:
        await one(store, chain(new_id().bytes, 2))
        hand = await Hand(store).join()
        for n in range(3):
            await hand.succeed(await hand.take_one(f"level-{n}/any"))
            await hand.repeat()
        assert [len(rows) for rows in await levels(store, 2)] == [1, 1]

    async def test_a_deleted_follow_up_leaves_no_follow_ups_behind(self, store: Store) -> None:
        made = await one(store, chain(new_id().bytes, 2))
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one("level-0/any"))
        [[first], _] = await levels(store, 2)
        await store.act(Action.DELETE, Query(ids=(first.id,)))
        await store.act(Action.DELETE, Query(ids=(made.id,)))
        await put_in(store, made, retry=True)
        await hand.succeed(await hand.take_one("level-0/any"))
        await hand.succeed(await hand.take_one("level-1/any"))
        assert [len(rows) for rows in await levels(store, 2)] == [1, 1]

    async def test_two_concurrent_ends_make_one_follow_up(self, store: Store, second_store: Store) -> None:
        """An ack races a rescue: the job ends once or goes back, and its follow-up is made once or not at all."""
        for _ in range(8):
            made = followed()
            hand, claim = await running(store, made)
            await asyncio.gather(
                hand.turn(Ack.succeeded(lease(claim))), second_store.rescue(hand.name, hand.beats, Outcome.LOST)
            )
            expected = [State.SUCCEEDED] if await state(store, made) is State.SUCCEEDED else []
            assert await followers(store, made) == expected
            await store.act(Action.DELETE, Query(ids=(made.id, follower(made, State.SUCCEEDED))))


@pytest.mark.asyncio
class TestRefusedFollowUps:
    @pytest.mark.parametrize("what", ["unique", "parents", "limits", "too many", "inside", "no end", "no room"])
    async def test_options_that_a_follow_up_cannot_have_are_refused(self, store: Store, what: str) -> None:
        """The enqueue refuses the whole batch. Otherwise the error would appear at the end of the job."""
        plain, own, parent = job(), new_id().bytes, await one(store)
        place = derived_id(own, b"then")
        wrong = {
            "unique": FollowUp(State.DEAD, job(id=place, unique=UniqueKey(b"k" * 16))),
            "parents": FollowUp(State.DEAD, job(id=place, after=[parent])),
            "limits": FollowUp(State.DEAD, job(id=place, buckets=[bucket("gate", 1)])),
            "too many": FollowUp(State.DEAD, chain(place, MOST_FOLLOW_UPS)),
            "inside": FollowUp(State.DEAD, chain(place, 2, unique=UniqueKey(b"k" * 16))),
            "no end": FollowUp(State.RETRYING, job(id=place)),
            "no room": FollowUp(State.DEAD, job(id=place[:15] + b"\1")),
        }
        with pytest.raises(StoreConflict):
            await put_in(store, plain, job(id=own, follows=[wrong[what]]))
        assert await gone(store, plain)

    LIMITS: ClassVar[dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {
        "priority": ({"priority": 100}, {"priority": 101}),
        "low priority": ({"priority": -100}, {"priority": -101}),
        "huge priority": ({"priority": 0}, {"priority": 2**63}),
        "crashes": ({"crashes": 2**31 - 1}, {"crashes": 2**31}),
        "negative crashes": ({"crashes": 0}, {"crashes": -1}),
        "delay": ({"delay": 2**52 - 1}, {"delay": 2**52}),
        "negative delay": ({"delay": 0}, {"delay": -1}),
        "expires_in": ({"expires_in": 2**52 - 1}, {"expires_in": 2**52}),
        "keep": ({"keep": 2**52 - 1}, {"keep": 2**52}),
        "run_at": ({"run_at": 2**53 - 1}, {"run_at": 2**53}),
        "task": ({"task": "ä" * 500}, {"task": "ä" * 500 + "b"}),
        "queue": ({"queue": "q" * 1000}, {"queue": "q" * 1001}),
        "mark": ({"marks": ("m" * 1000,)}, {"marks": ("m" * 1001,)}),
        "task with NUL": ({"task": "a\tb"}, {"task": "a\0b"}),
        "mark with a lone surrogate": ({"marks": ("\U0001f600",)}, {"marks": ("\ud83d",)}),
    }
    """By name: a follow-up job at the limit, and one beyond it."""

    @pytest.mark.parametrize("what", LIMITS)
    async def test_a_follow_up_beyond_a_limit_is_refused_at_the_enqueue(self, store: Store, what: str) -> None:
        """The store could not insert it later, so its job could not end."""
        plain, own = job(), new_id().bytes
        beyond = msgspec.structs.replace(job(id=derived_id(own)), **self.LIMITS[what][1])
        with pytest.raises(StoreConflict):
            await put_in(store, plain, job(id=own, follows=[FollowUp(State.DEAD, beyond)]))
        assert await gone(store, plain)

    @pytest.mark.parametrize("what", LIMITS)
    async def test_a_follow_up_at_a_limit_is_inserted(self, store: Store, what: str) -> None:
        own = new_id().bytes
        wanted = msgspec.structs.replace(job(id=derived_id(own)), **self.LIMITS[what][0])
        hand, claim = await running(store, job(id=own, follows=[FollowUp(State.DEAD, wanted)]))
        await hand.kill(claim)
        found = await row(store, wanted.id[:14] + b"\0\1")
        assert (found.task, found.queue, found.priority, found.crash_limit) == (
            wanted.task, wanted.queue, wanted.priority, wanted.crashes,
        )  # fmt: skip

    async def test_a_valid_follow_up_is_accepted(self, store: Store) -> None:
        made = await one(store, followed())
        hand = await Hand(store).join()
        claims: tuple[Claim, ...] = await hand.take(1, LANE)
        assert [(claim.id, claim.task) for claim in claims] == [(made.id, TASK)]
