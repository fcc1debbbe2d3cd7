"""Locks when two transactions meet, and the pruning of their tokens."""

from __future__ import annotations

from mainspring.limits.records import Bucket, Limit
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract.hands import HOUR
from tests.stores.postgres.sides import Sides

LOCK = Bucket("lock", "nightly")
LIMITS = (Limit(name="lock", size=1),)


async def test_hold_waits_for_a_renewal(store: PostgresStore, sides: Sides) -> None:
    """Otherwise it would find the place free that is being renewed at its last moment, and both would hold it."""
    assert (await store.hold(b"one", [LOCK], HOUR, LIMITS, fenced=True)).ok
    first, second = await sides.open(), await sides.open()
    await first.hold(b"one", (), ttl=HOUR)
    said = await sides.behind(first, second, lambda: second.hold(b"two", [LOCK], *LIMITS, ttl=HOUR))
    assert not said.ok


async def test_tokens_grow_in_the_order_of_commits(store: PostgresStore, sides: Sides) -> None:
    wide = Limit(name="wide", size=2)
    first, second = await sides.open(), await sides.open()
    one = await first.hold(b"one", [Bucket("wide")], wide, ttl=HOUR)
    two = await sides.behind(first, second, lambda: second.hold(b"two", [Bucket("wide")], wide, ttl=HOUR))
    assert one.token < two.token


async def test_old_tokens_are_pruned(store: PostgresStore, sides: Sides) -> None:
    """A token that is being issued again is kept."""
    first, second = await sides.open(), await sides.open()
    await first.connection.execute(
        f"insert into {store.schema}.holder_tokens values ('lock=old', 1), ('lock=nightly', 1)".encode()
    )
    await first.commit()
    await first.hold(b"one", [LOCK], *LIMITS, ttl=HOUR)
    await sides.behind(first, second, second.prune_others)
    left = await first.run(f"select bucket from {store.schema}.holder_tokens")
    await first.commit()
    assert left == [("lock=nightly",)]
