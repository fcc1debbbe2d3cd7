"""Capacity reserved for waiting holders: neither jobs nor holders keep the others out for ever."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.limits.records import HOLDER_REST, Bucket, HoldResult
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import LANE, SECOND, Hand, Sized, bucket, job, lease, limits_of, put_in
from mainspring.worker.records import Want

__all__ = ["TestReservedCapacity"]

GATE = bucket("gate", 1)
KEYED = bucket("tenant", 1, key="7")


async def ask(store: Store, name: bytes, *buckets: Sized, keep: int = 5 * SECOND) -> HoldResult:
    """A hold that reserves capacity if it is refused."""
    return await store.hold(name, buckets, 60 * SECOND, limits_of([job(buckets=buckets)]), keep)


async def used(store: Store, which: Bucket) -> tuple[int, int]:
    (found,) = await store.buckets([which])
    return found.used, found.size


@pytest.mark.asyncio
@pytest.mark.parametrize("limited", [GATE, KEYED], ids=["gate", "key"])
class TestReservedCapacity:
    async def test_a_holder_gets_capacity_in_spite_of_a_backlog_of_jobs(
        self, store: Store, second_store: Store, limited: Sized
    ) -> None:
        await put_in(store, *(job(buckets=[limited]) for _ in range(5)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        said = await ask(second_store, b"guest", limited)
        assert (said.ok, said.kept, said.next_at) == (False, True, None)
        assert await used(store, limited) == (1, 1), "the next place is none that there is"
        assert (await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])).claims == ()
        assert await used(store, limited) == (1, 1)
        assert (await ask(second_store, b"guest", limited)).ok
        assert await hand.take(9) == ()
        assert await second_store.release(b"guest")
        assert len(await hand.take(9)) == 1

    async def test_a_hold_without_keep_reserves_nothing(self, store: Store, limited: Sized) -> None:
        await put_in(store, *(job(buckets=[limited]) for _ in range(2)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        said = await ask(store, b"guest", limited, keep=0)
        assert (said.ok, said.kept) == (False, False)
        assert len((await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])).claims) == 1

    @pytest.mark.parametrize("looks", [True, False])
    async def test_a_reservation_ends_after_its_time(
        self, store: Store, clock: MovableClock, limited: Sized, looks: bool
    ) -> None:
        await put_in(store, *(job(buckets=[limited]) for _ in range(2)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert await hand.take(9) == (), "nobody has asked so far"
        await ask(store, b"guest", limited)
        if looks:
            assert await hand.take(9) == ()
        await hand.succeed(claim)
        if looks:
            assert await hand.take(9) == ()
        clock.advance("5s")
        await store.promote()
        assert len(await hand.take(9)) == 1

    async def test_waiting_jobs_learn_when_a_reservation_ends(
        self, store: Store, second_store: Store, limited: Sized
    ) -> None:
        """Also a worker that asked before the reservation was made."""
        await put_in(store, *(job(buckets=[limited]) for _ in range(2)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert await hand.take(9) == ()
        until = (await ask(second_store, b"guest", limited)).now + 5 * SECOND
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert until in (said.next_at, (await store.promote()).next_due)
        await hand.succeed(claim)

    async def test_waiting_holders_do_not_starve_jobs(self, store: Store, clock: MovableClock, limited: Sized) -> None:
        """Capacity that a holder releases is not reserved, and neither is capacity released within the next second."""
        await put_in(store, *(job(buckets=[limited]) for _ in range(5)))
        hand = await Hand(store).join()
        assert (await ask(store, b"one", limited)).ok
        assert (await ask(store, b"two", limited)).kept
        assert await hand.take(9) == ()
        await store.release(b"one")
        claim = await hand.take_one()
        assert not (await ask(store, b"two", limited)).kept
        said = await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])
        assert len(said.claims) == 1
        clock.advance(f"{HOLDER_REST}us")
        assert (await ask(store, b"two", limited)).kept
        assert (await hand.turn(Ack.succeeded(lease(said.claims[0])), wants=[Want((LANE,), 9)])).claims == ()
        assert (await ask(store, b"two", limited)).ok

    async def test_a_rate_is_never_reserved(self, store: Store, limited: Sized) -> None:
        """A holder that waits for a rate asks again at the moment that the rate gives."""
        calls = bucket("calls", 1, per=60 * SECOND)
        await put_in(store, *(job(buckets=[limited, calls]) for _ in range(2)), job(buckets=[limited]))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert not (await ask(store, b"guest", limited, calls)).kept
        assert len((await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])).claims) == 1

    async def test_a_reservation_has_no_holder_row(self, store: Store, limited: Sized) -> None:
        """Neither has the second without reservations. The hold that gets the capacity has its own number."""
        assert (await ask(store, b"one", limited)).ok
        assert (await ask(store, b"two", limited)).kept
        for of in (limited, ""):
            assert [row.holder for row in await store.holders(of)] == [b"one"]
        await store.release(b"one")
        assert await store.holders(limited) == await store.holders("") == []
        said = await store.hold(b"two", [limited], SECOND, keep=SECOND, info=b"me", fenced=True)
        assert said.ok
        assert [(row.holder, row.token, row.info) for row in await store.holders("")] == [(b"two", said.token, b"me")]

    async def test_a_renewal_does_not_end_a_reservation(self, store: Store, limited: Sized) -> None:
        await put_in(store, *(job(buckets=[limited]) for _ in range(2)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await ask(store, b"guest", limited)
        said = await store.hold(b"gone", (), SECOND, keep=SECOND)
        assert (said.ok, said.kept) == (False, False)
        assert (await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])).claims == ()
        assert (await ask(store, b"guest", limited)).ok

    async def test_a_reservation_stays_for_other_holders(self, store: Store, limited: Sized) -> None:
        """A holder that lacks other capacity too leaves the reserved capacity to the next holder."""
        other = bucket("other", 1)
        await put_in(store, job(buckets=[limited]), job(buckets=[limited]), job(queue="own", buckets=[other]))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await hand.take_one("own/any")
        await ask(store, b"one", limited)
        await hand.succeed(claim)
        assert not (await ask(store, b"two", limited, other, keep=0)).ok
        assert await hand.take(9) == ()
        assert (await ask(store, b"one", limited)).ok
