"""Locks when two transactions meet, and their numbers when nobody wants them any more."""

from __future__ import annotations

from mainspring.limits.records import Bucket, Limit
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.limits import admit
from mainspring.testing.contract.hands import HOUR
from tests.stores.postgres.sides import Sides

LOCK = Bucket("lock", "nightly")
LIMITS = (Limit(name="lock", size=1),)


async def test_who_comes_waits_for_a_renewal(store: PostgresStore, sides: Sides) -> None:
    """Else it would find the place free that is being renewed in its last moment, and both would have it."""
    assert (await store.hold(b"one", [LOCK], HOUR, LIMITS, fenced=True)).ok
    first, second = await sides.open(), await sides.open()
    await first.run(*admit(b"one", (), HOUR, (), 0, info=b"", fenced=False, schema=store.schema, now=None))
    call = admit(b"two", [LOCK], HOUR, LIMITS, 0, info=b"", fenced=True, schema=store.schema, now=None)
    ((ok, *_),) = await sides.behind(first, second, lambda: second.run(*call))
    assert not ok


async def test_numbers_grow_in_the_order_of_commits(store: PostgresStore, sides: Sides) -> None:
    wide = (Limit(name="wide", size=2),)
    first, second = await sides.open(), await sides.open()
    calls = [
        admit(guest, [Bucket("wide")], HOUR, wide, 0, info=b"", fenced=True, schema=store.schema, now=None)
        for guest in (b"one", b"two")
    ]
    ((*_, one, _),) = await first.run(*calls[0])
    ((*_, two, _),) = await sides.behind(first, second, lambda: second.run(*calls[1]))
    assert one < two


async def test_old_numbers_go(store: PostgresStore, sides: Sides) -> None:
    """And one that is being given anew stays."""
    first, second = await sides.open(), await sides.open()
    await first.connection.execute(
        f"insert into {store.schema}.fences values ('lock=old', 1), ('lock=nightly', 1)".encode()
    )
    await first.commit()
    await first.run(*admit(b"one", [LOCK], HOUR, LIMITS, 0, info=b"", fenced=True, schema=store.schema, now=None))
    await sides.behind(first, second, second.tidy)
    left = await first.run(f"select bucket from {store.schema}.fences")
    await first.commit()
    assert left == [("lock=nightly",)]
