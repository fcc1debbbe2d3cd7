"""Heartbeats, and what happens to the jobs of a worker that is gone."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.states import Reason, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import (
    ERROR,
    SECOND,
    Hand,
    ending,
    ids,
    job,
    lease,
    outcomes,
    put_in,
    row,
    running,
    state,
)
from mainspring.worker.records import Beat, Registration

__all__ = ["TestBeat", "TestRescue", "TestRetire"]


@pytest.mark.asyncio
class TestBeat:
    async def test_a_first_beat_registers(self, store: Store, clock: MovableClock) -> None:
        hand = Hand(store)
        hand.registration = Registration(queues=("a", "b"), tasks=("t",), lease=3 * SECOND, info=b'{"pid":1}')
        assert await hand.beat(register=True)
        (found,) = await store.workers()
        assert (found.id, found.queues, found.tasks, found.lease, found.info) == (
            hand.name, ("a", "b"), ("t",), 3 * SECOND, b'{"pid":1}',
        )  # fmt: skip
        assert (found.number, found.lost, found.running, found.turn) == (hand.beats, False, 0, 0)
        assert (found.started, found.seen) == (clock.now_us(), clock.now_us())

    async def test_each_beat_counts_up(self, store: Store, clock: MovableClock) -> None:
        hand = await Hand(store).join()
        numbers = [hand.beats]
        for _ in range(3):
            clock.advance("5s")
            assert await hand.beat()
            numbers.append(hand.beats)
        assert numbers == list(range(numbers[0], numbers[0] + 4))
        (found,) = await store.workers()
        assert (found.number, found.seen) == (numbers[-1], clock.now_us())

    async def test_registering_again_is_a_beat(self, store: Store) -> None:
        hand = await Hand(store).join()
        first = hand.beats
        assert await hand.beat(register=True)
        assert hand.beats == first + 1

    async def test_registering_again_replaces_the_info(self, store: Store) -> None:
        """And nothing else of its row; a lost worker cannot replace it."""
        hand = await Hand(store).join()
        (before,) = await store.workers()
        news = replace(hand.registration, info=b'{"news":1}', queues=("other",), lease=1)
        await store.beat([Beat(hand.name, news)])
        (after,) = await store.workers()
        assert after == replace(before, info=b'{"news":1}', number=before.number + 1)
        assert (await store.rescue(hand.name, after.number, Outcome.LOST)).taken
        assert not (await store.beat([Beat(hand.name, hand.registration)]))[0].alive
        (lost,) = await store.workers()
        assert (lost.info, lost.lost) == (b'{"news":1}', True)

    async def test_an_unknown_worker_is_not_alive(self, store: Store) -> None:
        assert not await Hand(store).beat()
        assert await store.workers() == []

    async def test_many_beats_at_once(self, store: Store) -> None:
        known, unknown, fresh = await Hand(store).join(), Hand(store), Hand(store)
        beats = [Beat(known.name), Beat(unknown.name), Beat(fresh.name, fresh.registration)]
        said = await store.beat(beats)
        assert [(each.worker, each.alive) for each in said] == [
            (known.name, True), (unknown.name, False), (fresh.name, True),
        ]  # fmt: skip

    async def test_a_lost_worker_cannot_come_back_under_its_name(self, store: Store) -> None:
        hand = await Hand(store).join()
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        assert not await hand.beat()
        assert not await hand.beat(register=True)
        (found,) = await store.workers()
        assert found.lost

    async def test_worker_rows_count_running_jobs(self, store: Store) -> None:
        hand, _ = await running(store)
        (found,) = await store.workers()
        assert (found.id, found.running) == (hand.name, 1)


@pytest.mark.asyncio
class TestRescue:
    async def test_a_beat_before_the_rescue_defeats_it(self, store: Store) -> None:
        """The rescuer read an older number: no job is taken."""
        hand, claim = await running(store)
        seen = hand.beats
        await hand.beat()
        said = await store.rescue(hand.name, seen, Outcome.LOST)
        assert not said.taken
        assert said.ready == ()
        assert await state(store, claim) == State.RUNNING
        await hand.succeed(claim)

    async def test_a_rescue_with_a_future_number_takes_nothing(self, store: Store) -> None:
        hand, claim = await running(store)
        assert not (await store.rescue(hand.name, hand.beats + 1, Outcome.LOST)).taken
        assert await state(store, claim) == State.RUNNING

    async def test_one_of_two_rescuers_takes_the_jobs(self, store: Store, second_store: Store) -> None:
        """A rescue whose reply was lost is repeated in the same way: no job moves twice."""
        hand, claim = await running(store)
        first = await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        second = await second_store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert (first.taken, second.taken) == (True, False)
        assert (await row(store, claim)).crashes == 1

    async def test_a_rescue_of_an_unknown_worker_takes_nothing(self, store: Store) -> None:
        assert not (await store.rescue("nobody", 1, Outcome.CRASHED)).taken

    async def test_only_the_jobs_of_the_dead_worker_move(self, store: Store) -> None:
        dead, theirs = await running(store)
        alive, mine = await running(store)
        await store.rescue(dead.name, dead.beats, Outcome.LOST)
        assert await state(store, theirs) == State.READY
        assert await state(store, mine) == State.RUNNING
        await alive.succeed(mine)

    async def test_a_finished_job_does_not_change(self, store: Store) -> None:
        """A job that ended before the rescue stays ended."""
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        done, held = await hand.take(2)
        await hand.succeed(done)
        before = await row(store, done)
        said = await store.rescue(hand.name, hand.beats, Outcome.CRASHED)
        assert said.ready == (held.id,)
        assert await row(store, done) == before

    async def test_a_rescued_job_belongs_to_its_new_owner(self, store: Store) -> None:
        """The row of the earlier owner is lost, and its turn changes nothing."""
        old, claim = await running(store)
        await store.rescue(old.name, old.beats, Outcome.LOST)
        new = await Hand(store).join()
        retaken = await new.take_one(f"{claim.queue}/any")
        before = await row(store, claim)
        said = await old.turn(Ack.succeeded(lease(claim), b"late"))
        assert said.lost
        assert await row(store, claim) == before
        await new.succeed(retaken)

    async def test_a_lost_worker_keeps_its_row(self, store: Store) -> None:
        hand, _ = await running(store)
        await store.rescue(hand.name, hand.beats, Outcome.LOST)
        (found,) = await store.workers()
        assert (found.id, found.lost, found.running) == (hand.name, True, 0)

    async def test_a_worker_without_jobs_can_be_rescued(self, store: Store) -> None:
        hand = await Hand(store).join()
        assert (await store.rescue(hand.name, hand.beats, Outcome.LOST)).taken
        assert not await hand.beat()


@pytest.mark.asyncio
class TestRetire:
    async def test_a_retirement_hands_jobs_back_without_a_crash(self, store: Store) -> None:
        hand, claim = await running(store)
        said = await store.retire(hand.name, Outcome.INTERRUPTED)
        assert (said.taken, said.ready) == (True, (claim.id,))
        found = await row(store, claim)
        assert (found.state, found.attempt, found.crashes) == (State.READY, 0, 0)
        assert await outcomes(store, claim) == [Outcome.INTERRUPTED]

    async def test_a_retirement_deletes_the_row(self, store: Store) -> None:
        hand, _ = await running(store)
        await store.retire(hand.name, Outcome.INTERRUPTED)
        assert await store.workers() == []
        assert not await hand.beat()
        assert (await hand.turn()).lost

    async def test_a_repeated_retirement_changes_nothing(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.retire(hand.name, Outcome.CRASHED)
        before = await row(store, claim)
        again = await store.retire(hand.name, Outcome.CRASHED)
        assert (again.taken, again.ready, again.dead) == (False, (), ())
        assert await row(store, claim) == before

    async def test_a_repeated_retirement_takes_no_job_of_the_next_owner(self, store: Store) -> None:
        old, claim = await running(store)
        guilty = Ack.failed(lease(claim), ERROR, retry_in=0, timed_out=True)
        await store.retire(old.name, Outcome.INTERRUPTED, [guilty])
        await store.promote()
        new = await Hand(store).join()
        retaken = await new.take_one(f"{claim.queue}/any")
        before = await row(store, claim)
        assert not (await store.retire(old.name, Outcome.INTERRUPTED, [guilty])).taken
        assert await row(store, claim) == before
        await new.succeed(retaken)

    async def test_acks_of_a_retirement_are_applied_first(self, store: Store) -> None:
        """The job that timed out is charged by its ack, and the other jobs are handed back without a crash."""
        await put_in(store, job(), job(), job())
        hand = await Hand(store).join()
        guilty, *innocent = await hand.take(3)
        acks = [Ack.failed(lease(guilty), ERROR, retry_in=5 * SECOND, timed_out=True)]
        said = await store.retire(hand.name, Outcome.INTERRUPTED, acks)
        assert set(ids(innocent)) <= set(said.ready)
        found = await row(store, guilty)
        assert (found.state, found.attempt, found.crashes) == (State.RETRYING, 1, 0)
        assert await outcomes(store, guilty) == [Outcome.TIMED_OUT]
        for each in innocent:
            found = await row(store, each)
            assert (found.state, found.attempt, found.crashes) == (State.READY, 0, 0)

    async def test_acks_of_a_crashed_worker_do_not_spare_its_other_jobs(self, store: Store) -> None:
        """The jobs without an ack are charged as in a rescue."""
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        guilty, other = await hand.take(2)
        dead = Ack.dead(lease(guilty), ERROR, Reason.OUT_OF_MEMORY)
        await store.retire(hand.name, Outcome.CRASHED, [dead])
        assert await ending(store, guilty) == (State.DEAD, Reason.OUT_OF_MEMORY)
        assert (await row(store, other)).crashes == 1

    async def test_a_stale_ack_changes_nothing(self, store: Store) -> None:
        hand, claim = await running(store)
        stale = msgspec.structs.replace(Ack.succeeded(lease(claim)), token=claim.token - 1)
        said = await store.retire(hand.name, Outcome.INTERRUPTED, [stale])
        assert said.ready == (claim.id,)
        assert await state(store, claim) == State.READY

    async def test_the_retirement_of_a_worker_without_jobs(self, store: Store) -> None:
        hand = await Hand(store).join()
        said = await store.retire(hand.name, Outcome.INTERRUPTED)
        assert (said.taken, said.ready) == (True, ())
        assert not (await store.retire(hand.name, Outcome.INTERRUPTED)).taken

    async def test_the_retirement_of_an_unknown_worker(self, store: Store) -> None:
        assert not (await store.retire("nobody", Outcome.CRASHED)).taken

    async def test_no_job_runs_under_a_retired_worker(self, store: Store) -> None:
        hand, _ = await running(store)
        await store.retire(hand.name, Outcome.INTERRUPTED)
        assert (await store.count(Query.everything()))[State.RUNNING] == 0
