"""Concurrent enqueues of one event loop: one script for all, a reply for each."""

from __future__ import annotations

import asyncio

import redis.asyncio

from mainspring.errors import QueueDraining
from mainspring.jobs.query import Query
from mainspring.queues.records import QueueMode
from mainspring.stores.door import Door
from mainspring.testing.contract.hands import Hand, ids, job, one, put_in


async def test_concurrent_enqueues_are_one_script(own_store: Door, own_client: redis.asyncio.Redis) -> None:
    """Each call has its own reply: it says which jobs existed already."""
    known = await one(own_store)
    await own_client.config_resetstat()
    jobs = [job() for _ in range(150)]
    made = await asyncio.gather(*(put_in(own_store, *some) for some in (*zip(jobs, strict=True), (known, job()))))
    assert [each[0].created for each in made] == [True] * 150 + [False]
    assert (await own_client.info("commandstats"))["cmdstat_evalsha"]["calls"] <= 3
    hand = await Hand(own_store).join()
    assert ids(await hand.take(200))[1:151] == ids(jobs)


async def test_a_draining_queue_refuses_only_its_own_jobs(own_store: Door) -> None:
    await own_store.set_queue_mode(["shut"], QueueMode.DRAINING)
    said = await asyncio.gather(
        *(put_in(own_store, job(queue=queue)) for queue in ("q", "q", "shut", "q")), return_exceptions=True
    )
    assert [isinstance(each, QueueDraining) for each in said] == [False, False, True, False]
    assert sum((await own_store.count(Query.everything())).values()) == 3
