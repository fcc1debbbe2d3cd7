"""The position of a replaced job: in the order of its queue, under limits, and in keyed lanes."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.limits.records import Limit
from mainspring.queues.records import QueueSettings
from mainspring.states import State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import HOUR, MINUTE, Hand, bucket, ids, job, one, put_in, row, running, state
from mainspring.testing.contract.limits.declared import everything, tenant

from .replace import MODES, KeyMode, due, latest

__all__ = ["TestReplacedInLanes"]

LIFO = QueueSettings(order="lifo")


@pytest.mark.asyncio
class TestReplacedInLanes:
    @pytest.mark.parametrize("mode", ["throttle", "keep_last"])
    async def test_a_replaced_lifo_job_keeps_its_position(self, store: Store, mode: KeyMode) -> None:
        await store.configure_queue("q", LIFO)
        before, first, after = await one(store), await one(store, latest(mode)), await one(store)
        await put_in(store, latest(mode, record=b"2"))
        hand = await Hand(store).join()
        claims = await hand.take(9)
        assert ids(claims) == ids([after, first, before])
        assert claims[1].record == b"2"

    async def test_a_released_lifo_job_comes_first(self, store: Store) -> None:
        await store.configure_queue("q", LIFO)
        hand, claim = await running(store, latest("keep_last"))
        waiting = await one(store, latest("keep_last", record=b"2"))
        await put_in(store, latest("keep_last", record=b"3"))
        other = await one(store)
        await hand.succeed(claim)
        assert ids(await hand.take(9)) == ids([waiting, other])

    @pytest.mark.parametrize("order", ["fifo", "lifo"])
    async def test_a_job_moved_to_another_queue_is_the_newest_there(self, store: Store, order: str) -> None:
        """Also from a fifo queue to a lifo queue and back."""
        await store.configure_queue("other" if order == "lifo" else "q", LIFO)
        first = await one(store, latest("keep_last"))
        others = [await one(store, job(queue="other")) for _ in range(2)]
        await put_in(store, latest("keep_last", queue="other"))
        hand = await Hand(store).join()
        expected = [first, *reversed(others)] if order == "lifo" else [*others, first]
        assert ids(await hand.take(9, "other/any")) == ids(expected)

    @pytest.mark.parametrize("mode", MODES)
    async def test_a_replaced_job_names_the_limits_of_its_queue(
        self, store: Store, clock: MovableClock, mode: KeyMode
    ) -> None:
        """The limits that the queue has now."""
        await store.declare_limits([Limit(name="gate", size=1)])
        first = await one(store, latest(mode))
        await store.configure_queue("q", QueueSettings(limits=(("gate", 1),)))
        await put_in(store, latest(mode, record=b"2"), job())
        assert [each.name for each in (await row(store, first)).buckets] == ["gate"]
        clock.advance("10s")
        await store.promote()
        hand = await Hand(store).join()
        (claim,) = await hand.take(9)
        assert await hand.take(9) == ()
        await hand.succeed(claim)
        (other,) = await hand.take(9)
        assert {claim.id, other.id} >= {first.id}

    async def test_no_job_waits_for_the_rate_of_a_postponed_first_job(self, store: Store, clock: MovableClock) -> None:
        """The postponed job costs more than the capacity that is left; the job behind it costs less."""
        dear, cheap = (bucket("calls", 100, key="7", cost=cost, per=HOUR) for cost in (60, 1))
        first, behind = job(buckets=[dear]), job(buckets=[cheap])
        head = await one(store, latest("debounce", buckets=[dear]))
        clock.advance("10s")
        await store.promote()
        await put_in(store, behind)
        await put_in(store, job(priority=5, id=first.id, buckets=[dear]))
        hand = await Hand(store).join()
        assert ids(await hand.take(9)) == [first.id]
        await put_in(store, latest("debounce", buckets=[dear]))
        assert await state(store, head) == State.SCHEDULED
        assert ids(await everything(hand, 9)) == [behind.id]

    async def test_a_first_job_with_a_lower_cost_does_not_wait(self, store: Store) -> None:
        dear, cheap = (bucket("calls", 100, key="7", cost=cost, per=HOUR) for cost in (60, 1))
        await put_in(store, job(buckets=[dear]))
        head = await one(store, latest("throttle", buckets=[dear]))
        hand = await Hand(store).join()
        assert len(await hand.take(9)) == 1
        assert await hand.take(9) == ()
        await put_in(store, latest("throttle", buckets=[cheap]))
        assert ids(await everything(hand, 9)) == [head.id]

    async def test_freed_capacity_wakes_a_job_behind_a_postponed_first_job(
        self, store: Store, clock: MovableClock
    ) -> None:
        await put_in(store, job(queue="a", buckets=[tenant(1)]))
        hand, other = await Hand(store).join(), await Hand(store).join()
        holding = await hand.take_one("a/any")
        head = await one(store, latest("debounce", buckets=[tenant(1)]))
        clock.advance("10s")
        await store.promote()
        behind = await one(store, job(buckets=[tenant(1)]))
        assert await other.take(9) == ()
        listener = await store.listen(other.name, ["q"])
        while await listener.wait(0.1):
            pass
        await put_in(store, latest("debounce", buckets=[tenant(1)]))
        await hand.succeed(holding)
        assert await listener.wait(10)
        listener.close()
        (claim,) = await everything(other, 1)
        assert claim.id == behind.id
        clock.advance("10s")
        await store.promote()
        assert await other.take(9) == ()
        await other.succeed(claim)
        assert ids(await everything(other, 9)) == [head.id]

    @pytest.mark.parametrize("key", ["", "7"])
    async def test_a_postponed_job_starts_however_often_it_was_replaced(
        self, store: Store, second_store: Store, clock: MovableClock, key: str
    ) -> None:
        """In a lane of its own, and behind a limit that is full at first."""
        one_place = bucket("places", 1, key=key)
        hand, claim = await running(store, job(queue="q", buckets=[one_place]))
        other = await Hand(second_store).join()
        made = await one(store, latest("debounce", max_wait=MINUTE, buckets=[one_place]))
        start = (await row(store, made)).enqueued
        for _ in range(8):
            clock.advance("9s")
            await store.promote()
            await put_in(store, latest("debounce", max_wait=MINUTE, buckets=[one_place]))
            assert await other.take(9) == ()
        assert (await due(store, made)) is None
        assert clock.now_us() > start + MINUTE
        listener = await second_store.listen(other.name, ["q"])
        while await listener.wait(0.1):
            pass
        await hand.succeed(claim)
        assert await listener.wait(10)
        again = await everything(other, 9)
        assert ids(again) == [made.id]
        await put_in(store, latest("debounce", buckets=[one_place], record=b"last"))
        await other.succeed(*again)
        while await listener.wait(0.1):
            pass
        clock.advance("10s")
        await store.promote()
        assert await listener.wait(10)
        listener.close()
        assert [each.record for each in await everything(other, 9)] == [b"last"]

    @pytest.mark.parametrize("mode", ["throttle", "keep_last"])
    async def test_a_job_that_changes_its_lane_leaves_the_old_lane_empty(self, store: Store, mode: KeyMode) -> None:
        """From no limit to a key, to another key, and back. Each time it is claimed once."""
        hand = await Hand(store).join()
        await put_in(store, job(), job(buckets=[tenant(1, 9)]), job(buckets=[tenant(2, 9)]))
        made = await one(store, latest(mode))
        await put_in(store, job(), job(buckets=[tenant(1, 9)]), job(buckets=[tenant(2, 9)]))
        for n, buckets in enumerate(([tenant(1, 9)], [tenant(2, 9)], [], [tenant(1, 9)], [])):
            await put_in(store, latest(mode, buckets=buckets, priority=n % 2, record=b"%d" % n))
        got = ids(await everything(hand, 9))
        assert len(got) == len(set(got)) == 7
        assert made.id in got
