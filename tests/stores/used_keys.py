"""Keys of every mode, used and over: what is left of them then is nothing."""

from __future__ import annotations

from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Retention, UniqueKey
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, job, put_in
from mainspring.testing.contract.unique_keys.replace import latest

EVERY = Retention(keep=0, keep_count=0, keep_at_least=0, keep_dead=0, keep_dead_count=0, keep_workers=0)


async def use_keys(store: Store) -> None:
    """Jobs that replace each other, run, die, are cancelled and deleted; at the end all is pruned."""
    hand = await Hand(store).join()
    for mode in ("debounce", "throttle", "keep_last"):
        for n in range(3):
            key = bytes([n]) * 15 + mode[:1].encode()
            await put_in(store, latest(mode, key=key, window=1))
            await put_in(store, latest(mode, key=key, window=1, record=b"1"))
        await store.act(Action.RUN_NOW, Query(states=(State.SCHEDULED,)))
        claims = await hand.take(3)
        assert len(claims) == 3
        for n in range(3):
            key = bytes([n]) * 15 + mode[:1].encode()
            await put_in(store, latest(mode, key=key, window=1, record=b"2"))
        waiting = (await store.find(Query(states=(State.BLOCKED, State.SCHEDULED, State.READY)))).jobs
        await store.act(Action.CANCEL, Query(ids=(waiting[0].id,)))
        await hand.succeed(claims[0], claims[1])
        await store.prune(EVERY)
        await store.act(Action.DELETE, Query(ids=(waiting[1].id,)))
        await hand.kill(claims[2])
        await store.act(Action.RUN_NOW, Query(states=(State.SCHEDULED,)))
        await hand.succeed(*await hand.take(9))
    await put_in(store, job(unique=UniqueKey(b"k" * 16, keep=1, print=b"p" * 16)))
    await hand.succeed(*await hand.take(9))
    await store.retire(hand.name, Outcome.INTERRUPTED)
    for _ in range(3):
        await store.prune(EVERY)
    assert sum((await store.count(Query.everything())).values()) == 0
