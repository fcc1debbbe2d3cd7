"""Work on many jobs is split into many short scripts: the server answers other clients in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.common.ids import new_ids
from mainspring.jobs.query import Query
from mainspring.jobs.records import Retention
from mainspring.states import Action, State
from mainspring.stores.door import Door
from mainspring.stores.redis.jobs.actions import SLICE
from mainspring.stores.redis.jobs.query import TALLY_SLICE
from mainspring.testing.contract.hands import Hand, ids, job, paged, put_in

MANY = 2 * TALLY_SLICE + 500


async def scripts_run(client: redis.asyncio.Redis) -> int:
    stats: dict[str, dict[str, int]] = await client.info("commandstats")
    return sum(stats.get(name, {}).get("calls", 0) for name in ("cmdstat_evalsha", "cmdstat_eval"))


@pytest_asyncio.fixture
async def crowded(own_store: Door) -> AsyncIterator[Door]:
    """Many jobs of two queues, every seventh marked."""
    made = [each.bytes for each in new_ids(MANY)]
    for first in range(0, MANY, 500):
        part = enumerate(made[first : first + 500])
        await put_in(own_store, *(job(id=id, queue="ab"[n % 2], marks=["x"] if n % 7 == 0 else []) for n, id in part))
    yield own_store
    while (await own_store.act(Action.DELETE, Query.everything(), limit=5000)).more:
        pass


async def test_counts_of_many_jobs_are_exact(crowded: Door, own_client: redis.asyncio.Redis) -> None:
    marked = sum(n % 7 == 0 for n in range(500)) * (MANY // 500)
    before = await scripts_run(own_client)
    assert (await crowded.count(Query(since=0)))[State.READY] == MANY
    assert await scripts_run(own_client) - before > 2
    assert (await crowded.count(Query.everything()))[State.READY] == MANY
    assert (await crowded.count(Query(marks=("x",))))[State.READY] == marked
    tally = await crowded.tally(Query.everything(), "queue")
    assert [(each.value, each.state, each.count) for each in tally] == [
        ("a", State.READY, MANY // 2),
        ("b", State.READY, MANY // 2),
    ]
    assert all(0 < each.first <= each.last for each in tally)


async def test_the_last_of_many_jobs_is_found(crowded: Door) -> None:
    """The walk continues until it finds a job of the query."""
    everything = await paged(crowded, Query.where(queues=["a"]), 2000)
    assert everything == sorted(everything, reverse=True)
    oldest = everything[-1]
    hand = await Hand(crowded).join()
    (claim,) = await hand.take(1, "a/any")
    assert claim.id == oldest
    await hand.kill(claim)
    assert ids((await crowded.find(Query(states=(State.DEAD,)))).jobs) == [oldest]
    assert ids((await crowded.find(Query(states=(State.DEAD, State.SUCCEEDED)))).jobs) == [oldest]


@pytest.mark.parametrize("action", [Action.CANCEL, Action.REPRIORITISE, Action.DELETE])
async def test_an_action_on_many_jobs_is_split(crowded: Door, own_client: redis.asyncio.Redis, action: Action) -> None:
    before = await scripts_run(own_client)
    said = await crowded.act(action, Query.where(queues=["a"]), limit=3000, priority=3)
    assert (len(said.done), len(set(said.done)), said.more) == (3000, 3000, True)
    assert await scripts_run(own_client) - before >= 3000 // SLICE


async def test_an_action_on_many_ids_is_split(crowded: Door) -> None:
    """Ids that do not exist are skipped. Each other id is done or refused once."""
    some = await paged(crowded, Query.where(queues=["b"]), 2000)
    hand = await Hand(crowded).join()
    held = set(ids(await hand.take(50, "b/any")))
    asked = (*some[-1000:], *(each.bytes for each in new_ids(300)))
    said = await crowded.act(Action.DELETE, Query(ids=asked), limit=5000)
    assert set(said.done) == set(some[-1000:]) - held
    assert Counter(said.refused) == {(id, State.RUNNING): 1 for id in held}
    assert not said.more
    await hand.succeed(*(await hand.repeat()).claims)


async def test_pruning_of_many_jobs_is_split(own_store: Door) -> None:
    await put_in(own_store, *(job(id=each.bytes) for each in new_ids(1000)))
    hand = await Hand(own_store).join()
    await hand.succeed(*await hand.take(1000))
    rules = Retention(keep=0, keep_count=0, keep_at_least=0)
    assert [await own_store.prune(rules, limit=700) for _ in range(3)] == [700, 300, 0]
