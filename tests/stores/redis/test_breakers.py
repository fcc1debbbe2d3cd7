"""The cost of a closed breaker on Redis."""

from __future__ import annotations

from collections import Counter

import pytest
import redis.asyncio

from mainspring.limits.records import Limit
from mainspring.stores.door import Door
from mainspring.testing.contract.hands import Hand, Sized, job, put_in
from mainspring.worker.records import Claim

from .test_lines import commands

GATE = Limit(name="gate", size=100)
ROW = Limit(name="api:breaker", kind="breaker", size=1, per=1_000_000, burst=5)
SHARE = Limit(name="api:breaker", kind="breaker", size=1, per=1_000_000, burst=5, share=500_000, span=60_000_000)


async def cost(
    store: Door, client: redis.asyncio.Redis, limit: Limit, *, queue: str
) -> tuple[Counter[str], Counter[str]]:
    """The commands of a claim, and of the turn that reports its success."""
    hand = await Hand(store, queues=[queue]).join()
    hand.reports_successes = False
    await put_in(store, *(job(queue=queue, buckets=[Sized(limit.name, declared=limit)]) for _ in range(4)))
    await hand.succeed(*await hand.take(1, f"{queue}/any"))
    before = await commands(client)
    claims: tuple[Claim, ...] = await hand.take(1, f"{queue}/any")
    between = await commands(client)
    await hand.succeed(*claims)
    return between - before, await commands(client) - between


@pytest.mark.parametrize("guard", [ROW, SHARE], ids=["in a row", "share"])
async def test_a_success_costs_no_more_than_that_of_a_limited_job(
    own_store: Door, own_client: redis.asyncio.Redis, guard: Limit
) -> None:
    limited = await cost(own_store, own_client, GATE, queue="a")
    guarded = await cost(own_store, own_client, guard, queue="b")
    assert guarded[0].total() <= limited[0].total()
    hand_looks_at_the_time = 1
    assert guarded[1].total() <= limited[1].total() + hand_looks_at_the_time
    written = ("cmdstat_hset", "cmdstat_hdel", "cmdstat_hincrby", "cmdstat_zadd", "cmdstat_zrem")
    place = Counter(cmdstat_hdel=1, cmdstat_hincrby=1)  # a limit counts who runs, a closed breaker does not
    assert [guarded[1][each] + place[each] for each in written] == [limited[1][each] for each in written]
