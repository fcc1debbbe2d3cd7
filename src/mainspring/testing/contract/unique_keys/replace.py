"""Keys under which the newest enqueue replaces the waiting job: what is replaced and what stays."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import QueueDraining, StoreConflict
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, Edge, Enqueued, FollowUp, JobBatch, NewJob, Retention, UniqueKey
from mainspring.queues.records import FairKey, QueueMode
from mainspring.states import Action, Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    HOUR,
    SECOND,
    Hand,
    bucket,
    ending,
    gone,
    ids,
    ignoring,
    job,
    lease,
    one,
    put_in,
    row,
    state,
)  # fmt: skip

__all__ = ["TestReplacedJobs"]

KEY = b"k" * 16
SPAN = 10 * SECOND
LIVE = (State.BLOCKED, State.SCHEDULED, State.RETRYING, State.READY, State.RUNNING)
MODES = ["debounce", "throttle", "keep_last"]
KeyMode = Literal["debounce", "throttle", "keep_last"]
LANES: dict[str, dict[str, Any]] = {
    "same": {}, "fair": {"fair": FairKey("a")}, "kind": {"kind": "async"}, "gate": {"buckets": [bucket("gate", 1)]},
    "key": {"buckets": [bucket("tenant", 1, key="7")]},
}  # fmt: skip


def latest(mode: KeyMode, *, key: bytes = KEY, window: int = SPAN, max_wait: int = 0, **options: Any) -> NewJob:
    """A job with a key in this mode."""
    window = 0 if mode == "keep_last" else window
    return job(unique=UniqueKey(key, window, mode=mode, max_wait=max_wait), **options)


async def said(store: Store, made: NewJob) -> Enqueued:
    """What the enqueue of one job is answered."""
    (reply,) = await put_in(store, made)
    return reply


async def living(store: Store) -> int:
    """How many jobs have not ended."""
    counts = await store.count(Query.everything())
    return sum(counts[each] for each in LIVE)


async def due(store: Store, made: NewJob) -> int | None:
    return (await row(store, made)).due


async def ready_of(store: Store, clock: MovableClock, mode: KeyMode) -> NewJob:
    """A waiting job under the key that is ready."""
    made = await one(store, latest(mode))
    if mode == "debounce":
        clock.advance("10s")
        await store.promote()
    assert await state(store, made) == State.READY
    return made


@pytest.mark.asyncio
class TestReplacedJobs:
    """One waits, another enqueue comes."""

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_replaced_job_keeps_its_id_and_gets_all_new_values(self, store: Store, mode: KeyMode) -> None:
        follow = job(id=new_id().bytes[:14] + b"\0\0", task="after")
        first = latest(
            mode, record=b'{"n":1}', priority=1, marks=["old", "both"], expires_in=HOUR, keep=1,
            follows=[FollowUp(State.SUCCEEDED, job(id=new_id().bytes[:14] + b"\0\0", task="never"))],
        )  # fmt: skip
        second = latest(
            mode, record=b'{"n":2}' + b" " * 4000, priority=2, marks=["new", "both"], queue="other", kind="main",
            crashes=7, early=True, keep=HOUR, follows=[FollowUp(State.SUCCEEDED, follow)],
        )  # fmt: skip
        assert await said(store, first) == Enqueued(first.id, True)
        before = await row(store, first)
        assert await said(store, second) == Enqueued(first.id, False)
        assert await gone(store, second)
        found = await row(store, first)
        assert (found.record, found.priority, found.queue) == (second.record, 2, "other")
        assert (found.crash_limit, found.early, found.expires) == (7, True, None)
        assert (found.enqueued, found.epoch, found.attempt) == (before.enqueued, 1, 0)
        for mark, there in (("old", []), ("new", [first.id]), ("both", [first.id])):
            assert ids((await store.find(Query(marks=(mark,)))).jobs) == there
        assert (await store.count(Query(queues=("q",))))[found.state] == 0
        assert (await store.count(Query(queues=("other",))))[found.state] == 1
        if found.state == State.SCHEDULED:
            await store.act(Action.RUN_NOW, Query(ids=(first.id,)))
        hand = await Hand(store).join()
        assert await hand.take(9) == ()
        claim = await hand.take_one("other/main")
        assert (claim.id, claim.record, claim.priority, claim.early) == (first.id, second.record, 2, True)
        await hand.succeed(claim)
        (followed,) = (await store.find(Query(tasks=("after", "never")))).jobs
        assert followed.task == "after"

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_shorter_record_replaces_a_longer_one(self, store: Store, mode: KeyMode) -> None:
        first = await one(store, latest(mode, record=b'"' + b"x" * 4000 + b'"'))
        await put_in(store, latest(mode, record=b'"short"'))
        assert (await row(store, first)).record == b'"short"'

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize(("old", "new", "pruned"), [(1, None, 0), (None, 1, 1)])
    async def test_retention_is_that_of_the_new_enqueue(
        self, store: Store, clock: MovableClock, mode: KeyMode, old: int | None, new: int | None, pruned: int
    ) -> None:
        await put_in(store, first := latest(mode, window=1, keep=old))
        await put_in(store, latest(mode, window=1, keep=new))
        clock.advance("1s")
        await store.promote()
        hand = await Hand(store).join()
        await hand.succeed(await hand.take_one())
        clock.advance("1s")
        assert (await store.prune(Retention()), await gone(store, first)) == (pruned, pruned == 1)

    @pytest.mark.parametrize("mode", MODES)
    async def test_limits_are_those_of_the_new_enqueue(self, store: Store, mode: KeyMode) -> None:
        old, new = bucket("old", 1, key="a"), bucket("new", 1, key="b")
        await put_in(store, job(id=(other := new_id().bytes), buckets=[new]))
        hand = await Hand(store).join()
        held = await hand.take_one()
        assert held.id == other
        first = await one(store, latest(mode, buckets=[old]))
        await put_in(store, latest(mode, buckets=[new]))
        if await state(store, first) == State.SCHEDULED:
            await store.act(Action.RUN_NOW, Query(ids=(first.id,)))
        assert await hand.take(9) == ()
        await hand.succeed(held)
        assert ids(await hand.take(9)) == [first.id]

    @pytest.mark.parametrize("mode", MODES)
    async def test_one_batch_acts_like_single_enqueues(self, store: Store, mode: KeyMode) -> None:
        jobs = [latest(mode, record=b'{"n":%d}' % n) for n in range(3)]
        plain, other = job(), latest(mode, key=b"o" * 16, record=b'"other"')
        batch = [jobs[0], plain, jobs[1], other, jobs[2]]
        replies = [Enqueued(jobs[0].id, True), Enqueued(plain.id, True), Enqueued(jobs[0].id, False)]
        replies += [Enqueued(other.id, True), Enqueued(jobs[0].id, False)]
        assert await put_in(store, *batch) == replies
        assert (await row(store, jobs[0])).record == b'{"n":2}'
        assert (await row(store, other)).record == b'"other"'
        again = [Enqueued(each.id, False) for each in replies]
        assert await put_in(store, *batch, retry=True) == again
        more = [latest(mode, record=b'{"n":%d}' % n) for n in (3, 4)]
        assert await put_in(store, *more) == [Enqueued(jobs[0].id, False)] * 2
        assert (await row(store, jobs[0])).record == b'{"n":4}'

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_repeat_changes_nothing(self, store: Store, mode: KeyMode) -> None:
        """The reply was lost, and the job may have started meanwhile."""
        first, second = latest(mode, record=b'{"n":1}'), latest(mode, record=b'{"n":2}')
        batches = [JobBatch(id=new_id().bytes, jobs=(each,)) for each in (first, second)]
        for batch in batches:
            await store.enqueue(batch)
        if await state(store, first) == State.SCHEDULED:
            await store.act(Action.RUN_NOW, Query(ids=(first.id,)))
        hand = await Hand(store).join()
        await hand.take_one()
        for batch in batches:
            repeat = msgspec.structs.replace(batch, retry=True)
            assert await store.enqueue(repeat) == [Enqueued(first.id, False)]
        assert sum((await store.count(Query.everything())).values()) == 1

    @pytest.mark.parametrize("mode", MODES)
    async def test_dependents_of_a_replaced_job_keep_waiting(self, store: Store, mode: KeyMode) -> None:
        first = await one(store, latest(mode))
        child = await one(store, job(queue="other", after=[first]))
        await put_in(store, latest(mode, record=b"1"))
        if await state(store, first) == State.SCHEDULED:
            await store.act(Action.RUN_NOW, Query(ids=(first.id,)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert await state(store, child) == State.BLOCKED
        await hand.succeed(claim)
        assert await state(store, child) == State.READY

    @pytest.mark.parametrize("mode", MODES)
    async def test_dependents_of_the_new_enqueue_wait_too(self, store: Store, mode: KeyMode) -> None:
        first = await one(store, latest(mode))
        before, after = job(queue="other", after=[first]), job(queue="other", after=[first])
        said = await put_in(store, before, latest(mode, record=b"2"), after)
        assert said == [Enqueued(before.id, True), Enqueued(first.id, False), Enqueued(after.id, True)]
        if await state(store, first) == State.SCHEDULED:
            await store.act(Action.RUN_NOW, Query(ids=(first.id,)))
        hand = await Hand(store).join()
        assert await hand.take(9, "other/any") == ()
        await hand.succeed(await hand.take_one())
        assert ids(await hand.take(9, "other/any")) == [before.id, after.id]

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_dependent_of_an_uncreated_id_is_refused(self, store: Store, mode: KeyMode) -> None:
        """The id is that of no job, neither in a batch that replaces a job nor in a batch that makes the first job."""
        first, second, third = latest(mode), latest(mode), latest(mode)
        for batch in ([first, second, job(after=[second])], [third, job(after=[third])]):
            with pytest.raises(StoreConflict, match="does not exist"):
                await put_in(store, *batch)
            await put_in(store, first)
        assert sum((await store.count(Query.everything())).values()) == 1

    @pytest.mark.parametrize("mode", MODES)
    @pytest.mark.parametrize("other", LANES.values(), ids=LANES)
    async def test_a_replaced_ready_job_keeps_its_position(
        self, store: Store, clock: MovableClock, mode: KeyMode, other: dict[str, Any]
    ) -> None:
        """Otherwise frequent enqueues would delay the job for ever. Also in another lane of its queue."""
        before = [job() for _ in range(4)]
        await put_in(store, *before)
        first = await ready_of(store, clock, mode)
        behind = [job(), job()]
        await put_in(store, *behind)
        again = latest(mode, record=b"1", max_wait=1, **other)
        assert await said(store, again) == Enqueued(first.id, False)
        assert await state(store, first) == State.READY
        hand = await Hand(store).join()
        assert ids(await hand.take(9, "q/any", "q/async")) == ids([*before, first, *behind])

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_claimed_job_is_never_replaced(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        """It was handed back, failed or snoozed: its handler has seen the arguments."""
        await ready_of(store, clock, mode)
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.turn(Ack.failed(lease(claim), ERROR, retry_in=HOUR))
        second = latest(mode, record=b"2")
        assert await said(store, second) == Enqueued(second.id, True)
        assert (await row(store, claim)).record == b"{}"
        assert await said(store, latest(mode, record=b"3")) == Enqueued(second.id, False)
        assert (await row(store, second)).record == b"3"

    @pytest.mark.parametrize("mode", MODES)
    async def test_an_expired_job_is_not_replaced(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        first = await one(store, latest(mode, expires_in=SECOND))
        clock.advance("2s")
        second = latest(mode)
        assert await said(store, second) == Enqueued(second.id, True)
        assert await ending(store, first) == (State.CANCELLED, Reason.EXPIRED)

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_draining_queue_refuses_a_replacement(self, store: Store, mode: KeyMode) -> None:
        first = await one(store, latest(mode))
        await store.set_queue_mode(["q"], QueueMode.DRAINING)
        with pytest.raises(QueueDraining):
            await put_in(store, latest(mode, record=b"2"))
        assert (await row(store, first)).record == b"{}"
        assert await put_in(store, first, retry=True) == [Enqueued(first.id, False)]

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_job_with_a_replacing_key_and_parents_is_refused(self, store: Store, mode: KeyMode) -> None:
        parent = await one(store)
        for edge in (Edge(parent.id), ignoring(parent)):
            with pytest.raises(StoreConflict, match=mode):
                await put_in(store, latest(mode, after=[edge]))

    @pytest.mark.parametrize("mode", MODES)
    async def test_enqueue_now_replaces_too(self, store: Store, mode: KeyMode) -> None:
        first = await one(store, latest(mode))
        batch = JobBatch(id=new_id().bytes, jobs=(latest(mode, record=b"1"), latest(mode, record=b"2")))
        assert store.enqueue_now(batch) == [Enqueued(first.id, False)] * 2
        assert (await row(store, first)).record == b"2"

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_retry_by_hand_obeys_the_mode(self, store: Store, clock: MovableClock, mode: KeyMode) -> None:
        """An ended job is not retried while another job is live under its key."""
        first = await ready_of(store, clock, mode)
        await store.act(Action.CANCEL, Query(ids=(first.id,)))
        second = await one(store, latest(mode))
        acted = await store.act(Action.RETRY, Query(ids=(first.id,)))
        assert (acted.done, acted.held) == ((), ((first.id, second.id),))
        assert await store.act(Action.RETRY, Query(queues=("q",))) == ActResult()
        await store.act(Action.CANCEL, Query(ids=(second.id,)))
        assert (await store.act(Action.RETRY, Query(ids=(first.id,)))).done == (first.id,)
        assert await said(store, latest(mode, record=b"3")) == Enqueued(first.id, False)
        assert ((await row(store, first)).record, (await row(store, first)).epoch) == (b"3", 2)
