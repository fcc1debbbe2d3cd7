"""Fencing numbers and rows of holders, which locks are made of."""

from __future__ import annotations

import asyncio

import pytest

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.jobs.records import Retention
from mainspring.limits.records import Bucket, HolderRow, HoldResult, Limit
from mainspring.stores.base import NUMBERS_KEPT, Store
from mainspring.testing.contract.hands import SECOND, Hand, bucket, job, put_in

__all__ = ["TestFencingNumbers", "TestHolderRows", "TestRenewal"]

LOCK = Bucket("lock", "nightly")
OTHER = Bucket("lock", "weekly")
LIMITS = (Limit(name="lock", size=1),)
NOTHING = Retention(keep=0, keep_dead=0, keep_at_least=0)


async def take(store: Store, guest: bytes, *buckets: Bucket, ttl: int = 30 * SECOND, info: bytes = b"") -> HoldResult:
    return await store.hold(guest, buckets or (LOCK,), ttl, LIMITS, info=info, fenced=True)


@pytest.mark.asyncio
class TestFencingNumbers:
    async def test_a_number_is_at_least_the_stores_microseconds(self, store: Store, clock: MovableClock) -> None:
        said = await take(store, b"one")
        assert (said.ok, said.token) == (True, clock.now_us())

    async def test_each_new_hold_gets_a_greater_number(self, store: Store, second_store: Store) -> None:
        """Also while the clock does not move, and for any holder."""
        tokens = []
        for n in range(6):
            here = (store, second_store)[n % 2]
            tokens.append((await take(here, b"one" if n < 3 else b"two")).token)
            assert await here.release(b"one" if n < 3 else b"two")
        assert tokens == sorted(set(tokens))

    async def test_a_renewal_repeats_the_number(self, store: Store, second_store: Store, clock: MovableClock) -> None:
        first = await take(store, b"one", ttl=2 * SECOND)
        for each in (second_store, store) * 3:
            clock.advance("1s")
            again = await take(each, b"one", ttl=2 * SECOND)
            assert (again.ok, again.token, again.until) == (True, first.token, clock.now_us() + 2 * SECOND)

    async def test_a_late_renewal_gets_a_new_number(self, store: Store, clock: MovableClock) -> None:
        """Although no other holder asked for the capacity: the new number shows that the hold had ended."""
        first = await take(store, b"one", ttl=2 * SECOND)
        clock.advance("2s")
        again = await take(store, b"one", ttl=2 * SECOND)
        assert again.ok
        assert again.token > first.token

    async def test_numbers_grow_when_the_clock_goes_back(self, store: Store, clock: MovableClock) -> None:
        first = await take(store, b"one")
        await store.release(b"one")
        clock.set(to_datetime(clock.now_us() - 3600 * SECOND))
        second = await take(store, b"two")
        assert second.token > first.token

    async def test_a_hold_of_several_buckets_is_greater_than_the_numbers_of_all(self, store: Store) -> None:
        for guest in (b"one", b"two", b"three"):
            await take(store, guest)
            await store.release(guest)
        last = await take(store, b"four")
        await store.release(b"four")
        both = await take(store, b"five", LOCK, OTHER)
        assert both.token > last.token
        assert (await take(store, b"five", LOCK, OTHER)).token == both.token
        await store.release(b"five")
        assert (await take(store, b"six", OTHER)).token > both.token

    async def test_a_refused_hold_gets_no_number(self, store: Store) -> None:
        first = await take(store, b"one")
        said = await take(store, b"two")
        assert (said.ok, said.token, said.full) == (False, 0, "lock=nightly")
        await store.release(b"one")
        assert (await take(store, b"two")).token == first.token + 1, "a refusal uses none up"

    async def test_a_hold_without_fencing_has_no_number(self, store: Store) -> None:
        for _ in range(2):
            assert (await store.hold(b"one", [LOCK], SECOND, LIMITS)).token == 0

    async def test_holders_of_one_bucket_have_different_numbers(self, store: Store) -> None:
        wide = (Limit(name="wide", size=3),)
        said = [await store.hold(b"%d" % n, [Bucket("wide")], SECOND, wide, fenced=True) for n in range(4)]
        assert [each.ok for each in said] == [True, True, True, False]
        assert said[0].token < said[1].token < said[2].token

    async def test_racing_holders_never_share_a_number(self, store: Store, second_store: Store) -> None:
        """One holder at a time is admitted, and the numbers grow in the order of the holds."""
        order: list[int] = []

        async def come(client: Store, name: bytes) -> None:
            while not (said := await take(client, name)).ok:
                pass
            order.append(said.token)
            assert await client.release(name)

        await asyncio.gather(*(come((store, second_store)[n % 2], b"guest %d" % n) for n in range(8)))
        assert order == sorted(set(order))
        assert len(order) == 8

    async def test_numbers_after_pruning_are_greater(self, store: Store, clock: MovableClock) -> None:
        held = await take(store, b"one", ttl=2 * NUMBERS_KEPT)
        other = await take(store, b"two", OTHER)
        await store.release(b"two")
        clock.set(to_datetime(clock.now_us() + NUMBERS_KEPT + SECOND))
        await store.prune(NOTHING)
        assert (await take(store, b"one")).token == held.token, "who is there keeps its own"
        assert (await take(store, b"three", OTHER)).token > other.token
        await store.release(b"one")
        assert (await take(store, b"four")).token > held.token

    async def test_a_number_that_could_repeat_is_not_pruned(self, store: Store, clock: MovableClock) -> None:
        """The clock was ahead and was corrected."""
        first = await take(store, b"one")
        await store.release(b"one")
        clock.set(to_datetime(clock.now_us() - 3600 * SECOND))
        await store.prune(NOTHING)
        assert (await take(store, b"two")).token > first.token

    async def test_namespaces_have_separate_numbers(self, store: Store, elsewhere: Store) -> None:
        await take(store, b"one")
        assert (await take(elsewhere, b"one")).ok


@pytest.mark.asyncio
class TestRenewal:
    async def test_a_call_without_buckets_renews_a_holder(
        self, store: Store, second_store: Store, clock: MovableClock
    ) -> None:
        first = await take(store, b"one", LOCK, OTHER, ttl=2 * SECOND)
        for each in (second_store, store) * 2:
            clock.advance("1s")
            again = await each.hold(b"one", (), 2 * SECOND)
            assert (again.ok, again.token, again.until) == (True, first.token, clock.now_us() + 2 * SECOND)
            assert [row.until for row in await store.holders("lock")] == [again.until] * 2
        assert not (await take(store, b"two")).ok

    async def test_a_call_without_buckets_gives_no_capacity(self, store: Store, clock: MovableClock) -> None:
        """A renewal that arrives after the release of its hold gets nothing."""
        await take(store, b"one", ttl=2 * SECOND)
        clock.advance("2s")
        assert not (await store.hold(b"one", (), 2 * SECOND)).ok
        await take(store, b"two")
        assert await store.release(b"two")
        said = await store.hold(b"two", (), SECOND, fenced=True)
        assert (said.ok, said.token) == (False, 0)
        assert await store.holders("lock") == []
        assert (await take(store, b"three")).ok

    async def test_a_renewal_never_shortens_a_hold(self, store: Store, clock: MovableClock) -> None:
        """A delayed renewal must not undo the longer time that a later renewal got."""
        await take(store, b"one", ttl=60 * SECOND)
        end = clock.now_us() + 60 * SECOND
        for buckets in ((LOCK,), ()):
            said = await store.hold(b"one", buckets, SECOND)
            assert (said.ok, said.until) == (True, end)
        clock.advance("59s")
        assert not (await take(store, b"two")).ok
        clock.advance("1s")
        assert (await take(store, b"two")).ok


@pytest.mark.asyncio
class TestHolderRows:
    async def test_rows_show_holder_begin_end_and_info(self, store: Store, clock: MovableClock) -> None:
        came = clock.now_us()
        said = await take(store, b"one", ttl=30 * SECOND, info=b'{"host":"a"}')
        clock.advance("5s")
        await take(store, b"one", ttl=40 * SECOND, info=b"something else")
        clock.advance("1s")
        wanted = HolderRow(
            holder=b"one", bucket="lock=nightly", token=said.token, since=came, until=came + 45 * SECOND,
            left=39 * SECOND, info=b'{"host":"a"}',
        )  # fmt: skip
        assert await store.holders(LOCK) == [wanted]
        assert await store.holders("lo") == [wanted]

    async def test_rows_of_one_bucket(self, store: Store) -> None:
        """And not of a bucket whose name has the same prefix."""
        await take(store, b"one", Bucket("lock", "night"))
        await take(store, b"two")
        assert [row.holder for row in await store.holders(LOCK)] == [b"two"]
        assert await store.holders(Bucket("lock", "nigh")) == []
        assert await store.holders(Bucket("nobody")) == []

    async def test_rows_by_prefix_of_the_bucket_name(self, store: Store, clock: MovableClock) -> None:
        wide = (Limit(name="wide", size=3),)
        for guest in (b"z", b"a"):
            await store.hold(guest, [Bucket("wide")], 30 * SECOND, wide, fenced=True)
            clock.advance("1s")
        await take(store, b"two", OTHER)
        await take(store, b"one", LOCK)
        await take(store, b"odd", Bucket("lock", "été=1"))
        rows = await store.holders("lock=")
        assert [(row.bucket, row.holder) for row in rows] == [
            ("lock=nightly", b"one"),
            ("lock=weekly", b"two"),
            ("lock=été=1", b"odd"),
        ]
        assert [row.holder for row in await store.holders("w")] == [b"z", b"a"], "by when they came"
        assert [row.holder for row in await store.holders("", limit=2)] == [b"one", b"two"]
        assert await store.holders("lock/") == []

    async def test_a_holder_of_several_buckets_has_a_row_for_each(self, store: Store) -> None:
        await take(store, b"one", LOCK, OTHER)
        assert [(row.bucket, row.holder) for row in await store.holders("lock")] == [
            ("lock=nightly", b"one"),
            ("lock=weekly", b"one"),
        ]

    async def test_ended_holds_have_no_rows(self, store: Store, clock: MovableClock) -> None:
        await take(store, b"one", ttl=2 * SECOND)
        await take(store, b"two", OTHER, ttl=4 * SECOND)
        await store.release(b"two")
        assert [row.holder for row in await store.holders("lock")] == [b"one"]
        clock.advance("2s")
        assert await store.holders("lock") == await store.holders(LOCK) == []

    async def test_running_jobs_have_no_holder_rows(self, store: Store) -> None:
        gate = bucket("gate", 2)
        await put_in(store, job(buckets=[gate]))
        await (await Hand(store).join()).take_one()
        await store.hold(b"one", [gate], SECOND)
        (found,) = await store.holders(gate)
        assert (found.holder, found.token, found.info) == (b"one", 0, b"")
