"""The next place is kept for a guest that waits: neither jobs nor guests keep the others out for ever."""

from __future__ import annotations

import pytest

from mainspring.common.clock import MovableClock
from mainspring.jobs.outcomes import Ack
from mainspring.limits.records import HOLDER_REST, Bucket, HoldResult
from mainspring.stores.base import Store
from mainspring.worker.records import Want

from .hands import LANE, SECOND, Hand, Sized, bucket, job, lease, limits_of, put_in

__all__ = ["TestKeptPlaces"]

GATE = bucket("gate", 1)
KEYED = bucket("tenant", 1, key="7")


async def ask(store: Store, name: bytes, *buckets: Sized, keep: int = 5 * SECOND) -> HoldResult:
    """A guest that would wait."""
    return await store.hold(name, buckets, 60 * SECOND, limits_of([job(buckets=buckets)]), keep)


async def used(store: Store, which: Bucket) -> tuple[int, int]:
    (found,) = await store.buckets([which])
    return found.used, found.size


@pytest.mark.asyncio
@pytest.mark.parametrize("limited", [GATE, KEYED], ids=["gate", "key"])
class TestKeptPlaces:
    async def test_a_backlog_of_jobs_lets_a_guest_in(self, store: Store, second_store: Store, limited: Sized) -> None:
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

    async def test_nobody_who_would_not_wait_has_it_kept(self, store: Store, limited: Sized) -> None:
        await put_in(store, *(job(buckets=[limited]) for _ in range(2)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        said = await ask(store, b"guest", limited, keep=0)
        assert (said.ok, said.kept) == (False, False)
        assert len((await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])).claims) == 1

    @pytest.mark.parametrize("looks", [True, False])
    async def test_a_guest_that_does_not_come_has_it_kept_for_a_while(
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

    async def test_who_waits_learns_until_when(self, store: Store, second_store: Store, limited: Sized) -> None:
        """Also who has looked before the guest asked."""
        await put_in(store, *(job(buckets=[limited]) for _ in range(2)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert await hand.take(9) == ()
        until = (await ask(second_store, b"guest", limited)).now + 5 * SECOND
        said = await hand.turn(wants=[Want((LANE,), 9)])
        assert until in (said.next_at, (await store.promote()).next_due)
        await hand.succeed(claim)

    async def test_guests_that_wait_let_jobs_in(self, store: Store, clock: MovableClock, limited: Sized) -> None:
        """What a guest gives back is not kept for the next one, nor is what comes in the second after."""
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

    async def test_only_where_something_has_to_end(self, store: Store, limited: Sized) -> None:
        """Whoever waits for a rate comes when it lets something through."""
        calls = bucket("calls", 1, per=60 * SECOND)
        await put_in(store, *(job(buckets=[limited, calls]) for _ in range(2)), job(buckets=[limited]))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        assert not (await ask(store, b"guest", limited, calls)).kept
        assert len((await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])).claims) == 1

    async def test_it_is_no_guest(self, store: Store, limited: Sized) -> None:
        """Nor is the second in which none is kept; and whoever gets it has a number of its own."""
        assert (await ask(store, b"one", limited)).ok
        assert (await ask(store, b"two", limited)).kept
        for of in (limited, ""):
            assert [row.holder for row in await store.holders(of)] == [b"one"]
        await store.release(b"one")
        assert await store.holders(limited) == await store.holders("") == []
        said = await store.hold(b"two", [limited], SECOND, keep=SECOND, info=b"me", fenced=True)
        assert said.ok
        assert [(row.holder, row.token, row.info) for row in await store.holders("")] == [(b"two", said.token, b"me")]

    async def test_renewing_leaves_it_kept(self, store: Store, limited: Sized) -> None:
        await put_in(store, *(job(buckets=[limited]) for _ in range(2)))
        hand = await Hand(store).join()
        claim = await hand.take_one()
        await ask(store, b"guest", limited)
        said = await store.hold(b"gone", (), SECOND, keep=SECOND)
        assert (said.ok, said.kept) == (False, False)
        assert (await hand.turn(Ack.succeeded(lease(claim)), wants=[Want((LANE,), 9)])).claims == ()
        assert (await ask(store, b"guest", limited)).ok

    async def test_what_was_kept_stays_so_for_others(self, store: Store, limited: Sized) -> None:
        """A guest that lacks more than that place leaves it to the next."""
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
