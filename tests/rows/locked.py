"""What tests of locks share: another process's view of the same store, and a way to lose a lock."""

from __future__ import annotations

from mainspring import Mainspring
from mainspring.client.blocking import run as blocking


async def atake_away(app: Mainspring, prefix: str = "locks/") -> None:
    """What a failover that forgets the last writes does, and what time does to one that sleeps."""
    store = await app.client.store()
    rows = await store.holders(prefix)
    assert rows, "somebody holds it"
    for row in rows:
        await store.release(row.holder)


def take_away(app: Mainspring, prefix: str = "locks/") -> None:
    blocking("take_away", atake_away(app, prefix))
