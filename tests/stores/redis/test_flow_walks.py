"""Random walks over flows: both sides of each edge, the numbers of joins and of flows always agree with the jobs."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest
import redis.asyncio

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import FlowClosed, StoreConflict
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import FLOW_KEEP, Edge, FlowRetry, JobBatch, Join, NewJob, Retention
from mainspring.states import LIVE, Action, Reason, State
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.stores.redis.driver.constants import EDGE_CODES, FLAG_CHILDREN
from mainspring.stores.redis.rows import StoredJob, read
from mainspring.testing.contract.hands import ERROR, SECOND, Hand, job, lease
from mainspring.worker.records import Claim

RECENT = 60
"""A walk uses the jobs enqueued last, so that jobs of all states meet."""
RULES = Retention(keep=5 * SECOND, keep_count=1_000, keep_at_least=0, keep_dead=9 * SECOND)
ACTS = (
    "put",
    "put",
    "put",
    "put",
    "take",
    "take",
    "take",
    *("end",) * 5,
    "act",
    "act",
    "retry",
    "close",
    "promote",
    "prune",
)


class FlowWalk:
    """Does random things to one store. Each act may be refused: only the stored state is looked at."""

    def __init__(self, store: Door, clock: MovableClock, hand: Hand, dice: Random) -> None:
        self.store, self.clock, self.hand, self.dice = store, clock, hand, dice
        self.known: list[bytes] = []
        self.joins: list[bytes] = []
        self.claims: dict[bytes, Claim] = {}

    async def step(self) -> None:
        await getattr(self, self.dice.choice(ACTS))()
        self.known, self.joins = self.known[-RECENT:], self.joins[-RECENT // 3 :]

    def some(self, ids: list[bytes], most: int) -> tuple[bytes, ...]:
        return tuple(self.dice.sample(ids, min(len(ids), self.dice.randint(0, most))))

    def edges(self, parents: list[bytes]) -> tuple[Edge, ...]:
        return tuple(Edge(each, self.dice.choice(list(EDGE_CODES))) for each in self.some(parents, 2))  # type: ignore[arg-type]  # a policy by its name

    def new_job(self, made: list[NewJob], root: bytes | None) -> NewJob:
        dice = self.dice
        join = Join(open=dice.random() < 0.3, lenient=dice.random() < 0.3) if dice.random() < 0.3 else None
        return job(
            after=self.edges(self.known + [each.id for each in made]),
            before=self.some(self.joins[-8:] + [each.id for each in made if each.join], 2),
            join=join,
            marks=[f"%{root.hex()}"] if root else (),
            keep=FLOW_KEEP if root and dice.random() < 0.7 else None,
            expires_in=10 * SECOND if dice.random() < 0.1 else None,
        )

    async def put(self) -> None:
        made: list[NewJob] = []
        root = self.dice.choice(self.joins) if self.joins and self.dice.random() < 0.5 else None
        for _ in range(self.dice.randint(1, 6)):
            made.append(self.new_job(made, root))
        try:
            await self.store.enqueue(JobBatch(id=new_id().bytes, jobs=tuple(made), accepted=self.dice.random() < 0.5))
        except (FlowClosed, StoreConflict):  # of a join that has ended, or a job that was deleted
            return
        self.known += [each.id for each in made]
        self.joins += [each.id for each in made if each.join]

    async def take(self) -> None:
        self.claims |= {each.id: each for each in await self.hand.take(self.dice.randint(1, 4))}

    async def end(self) -> None:
        acks = []
        for each in self.some(list(self.claims), 3):
            held = lease(self.claims.pop(each))
            dead = Ack.dead(held, ERROR, Reason.NOT_RETRYABLE)
            acks.append(self.dice.choice([Ack.succeeded(held), Ack.succeeded(held), dead, Ack.cancelled(held)]))
        assert not (await self.hand.turn(*acks)).stale

    async def act(self) -> None:
        action = self.dice.choice([Action.CANCEL, Action.DELETE, Action.RETRY])
        await self.store.act(action, Query(ids=self.some(self.known, 2)))

    async def retry(self) -> None:
        chosen = self.some(self.known, 5)
        joins = [each for each in chosen if each in self.joins]
        retries = [
            FlowRetry(each, self.edges(self.known), self.some([join for join in joins if join != each], 2))
            for each in chosen
        ]
        with suppress(StoreConflict):  # of a parent that was deleted
            await self.store.retry_flow(retries)

    async def close(self) -> None:
        for each in self.some(self.joins, 1):
            await self.store.close_join(each)

    async def promote(self) -> None:
        self.clock.advance("2s")
        await self.store.promote(limit=self.dice.choice([2, 1000]))

    async def prune(self) -> None:
        await self.store.prune(RULES, limit=self.dice.choice([3, 1000]))

    async def end_all(self) -> None:
        """Delete everything: the jobs of a deleted flow end with it."""
        for _ in range(RECENT):
            await self.store.act(Action.CANCEL, Query.everything())
            await self.hand.turn(*(Ack.cancelled(lease(each)) for each in self.claims.values()))
            self.claims.clear()
            await self.store.act(Action.DELETE, Query.everything())
            await self.promote()
        await self.store.retire(self.hand.name, Outcome.INTERRUPTED)


class Inside:
    """What the server has stored."""

    def __init__(self, client: Any, namespace: str) -> None:
        self.client, self.start = client, tag(namespace).encode()

    async def check(self) -> None:
        jobs = {each: read(raw) for each, raw in (await self.client.hgetall(self.start + b"jobs")).items()}
        for each, stored in jobs.items():
            await self.check_edges(each, stored, jobs)
            if stored.more.j:
                assert sum(stored.more.j[3:]) <= stored.more.j[2], "a member counted twice"
        marks = Counter(stored.more.m[0] for stored in jobs.values() if stored.more.f and stored.state in LIVE)
        numbers = await self.client.hgetall(self.start + b"flow_jobs")
        assert {mark.decode(): int(n) for mark, n in numbers.items()} == dict(marks)
        async for key in self.client.scan_iter(match=self.start + b"children:*", count=1000):
            parent = jobs[key.removeprefix(self.start + b"children:")]
            assert parent.ends & FLAG_CHILDREN

    async def check_edges(self, each: bytes, stored: StoredJob, jobs: dict[bytes, StoredJob]) -> None:
        parents = await self.client.zrange(self.start + b"parents:" + each, 0, -1)
        if stored.state is not State.BLOCKED:
            assert not parents
            return
        assert stored.deps == len(parents)
        assert parents or (stored.more.j and stored.more.j[0]), "it waits for nothing"
        for parent in parents:
            code = await self.client.zscore(self.start + b"children:" + parent, each)
            state = jobs[parent].state
            assert state in LIVE or (state is State.DEAD and code == EDGE_CODES["wait"])
            assert code is not None

    async def names(self) -> set[bytes]:
        found = [key async for key in self.client.scan_iter(match=self.start + b"*", count=1000)]
        return {key.removeprefix(self.start).partition(b":")[0] for key in found}


@pytest.mark.parametrize("seed", range(8))
async def test_both_sides_of_all_edges_agree(redis_url: str, redis_owner_url: str, namespace: str, seed: int) -> None:
    clock, dice = MovableClock(), Random(seed)
    store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
    await store.open()
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        inside, walk = Inside(client, namespace), FlowWalk(store, clock, await Hand(store).join(), dice)
        for n in range(100):
            await walk.step()
            if n % 5 == 0:
                await inside.check()
        await walk.end_all()
        assert await inside.names() == {b"meta"}
    await store.close()
