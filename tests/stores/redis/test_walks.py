"""Random walks over lanes with unkeyed limits, keys and rates, compared with a model that looks at every job."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random

import msgspec
import pytest
import pytest_asyncio
import redis.asyncio

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.limits.records import Bucket, Limit
from mainspring.states import Action
from mainspring.stores.door import Door
from mainspring.stores.redis import RedisStore
from mainspring.stores.redis.driver.catalogue import tag
from mainspring.testing.contract.hands import HOUR, SECOND, Hand, ids, job, lease, put_in
from mainspring.worker.records import Claim, Want

SIZES = {"gate": 2, "door": 3, "tenant": 1, "region": 2, "calls": 2}
WINDOW = 5 * SECOND
KEYS = {"tenant": "abc", "region": "xy", "calls": "uv"}
LANES = ("p/any", "q/any")
WAITING = {
    "index",
    "lanes",
    "waiting_on",
    "waiting_until",
    "waiting_lanes",
    "waiting_sets",
    "waiting_buckets",
    "recheck",
    "line",
    "line_moved",
}
CAPACITY = {"bucket_counts", "bucket_jobs", "holders", "holds", "bucket_holders"}


class Known(msgspec.Struct):
    """A live job, as a plain list of jobs would have it."""

    id: bytes
    lane: str
    priority: int
    seq: int
    at: int
    names: frozenset[str]
    owner: Hand | None = None
    claim: Claim | None = None


class Walk:
    def __init__(self, store: Door, clock: MovableClock, dice: Random) -> None:
        self.store, self.clock, self.dice = store, clock, dice
        self.sizes = dict(SIZES)
        self.jobs: dict[bytes, Known] = {}
        self.starts: list[tuple[str, int]] = []
        self.holders: dict[bytes, tuple[frozenset[str], int]] = {}
        self.hands: list[Hand] = []
        self.seq = 0

    async def begin(self) -> None:
        await self.store.declare_limits([
            Limit(name=name, size=size, kind="rate", per=WINDOW) if name == "calls" else Limit(name=name, size=size)
            for name, size in SIZES.items()
        ])  # fmt: skip
        self.hands = [await Hand(self.store).join() for _ in range(2)]

    # ---- what a plain look says ---------------------------------------------------------------

    def used(self, name: str) -> int:
        now = self.clock.now_us()
        if name.startswith("calls"):
            return sum(each == name and at + WINDOW > now for each, at in self.starts)
        running = sum(name in each.names for each in self.jobs.values() if each.owner)
        return running + sum(name in names and until > now for names, until in self.holders.values())

    def fits(self, names: frozenset[str]) -> bool:
        return all(self.used(name) < self.sizes[name.partition("=")[0]] for name in names)

    def began(self, names: frozenset[str]) -> None:
        self.starts += [(name, self.clock.now_us()) for name in names if name.startswith("calls")]

    def first(self, lanes: tuple[str, ...]) -> Known | None:
        line = [each for each in self.jobs.values() if not each.owner and each.lane in lanes and self.fits(each.names)]
        return min(line, key=lambda each: (each.at - each.priority * HOUR, each.seq), default=None)

    def ready_again(self, some: list[Known]) -> None:
        for each in some:
            self.seq += 1
            each.owner, each.claim, each.seq, each.at = None, None, self.seq, self.clock.now_us()

    def held_by(self, hand: Hand) -> list[Known]:
        return [each for each in self.jobs.values() if each.owner is hand]

    # ---- steps --------------------------------------------------------------------------------

    def some_buckets(self, *chances: float) -> list[Bucket]:
        named = zip(SIZES, chances, strict=True)
        chosen = [name for name, chance in named if self.dice.random() < chance]
        return [Bucket(name, self.dice.choice(KEYS[name]) if name in KEYS else "") for name in chosen]

    async def put(self) -> None:
        made = [
            job(queue=self.dice.choice("pq"), priority=self.dice.choice((0, 0, 1, -2)), buckets=buckets)
            for buckets in [self.some_buckets(0.25, 0.25, 0.5, 0.4, 0.2) for _ in range(self.dice.choice((1, 3, 8)))]
        ]
        for each in made:
            self.seq += 1
            names = frozenset(bucket.name for bucket in each.buckets)
            at = self.clock.now_us()
            self.jobs[each.id] = Known(each.id, f"{each.queue}/any", each.priority, self.seq, at, names)
        await put_in(self.store, *made)

    async def take(self) -> None:
        hand, lanes = self.dice.choice(self.hands), self.dice.choice((LANES[:1], LANES[1:], LANES))
        n = self.dice.choice((1, 2, 5, 20))
        await self.store.promote()
        expected = []
        for _ in range(n):
            best = self.first(lanes)
            if best is None:
                break
            best.owner = hand
            self.began(best.names)
            expected.append(best.id)
        said = await hand.turn(wants=[Want(lanes, n)])
        assert ids(said.claims) == expected
        for claim in said.claims:
            self.jobs[claim.id].claim = claim

    async def end(self) -> None:
        hand = self.dice.choice(self.hands)
        held = self.held_by(hand)
        some = self.dice.sample(held, min(len(held), self.dice.choice((1, 2, 5))))
        leases = [lease(each.claim) for each in some if each.claim]
        if self.dice.random() < 0.2:
            await hand.turn(*map(Ack.interrupted, leases))
            self.ready_again(some)
        else:
            await hand.turn(*map(Ack.succeeded, leases))
            for each in some:
                del self.jobs[each.id]

    async def rescue(self) -> None:
        gone = self.hands.pop()
        await self.store.rescue(gone.name, gone.beats, Outcome.LOST)
        self.ready_again(sorted(self.held_by(gone), key=lambda each: each.seq))
        self.hands.append(await Hand(self.store).join())

    async def act(self) -> None:
        waiting = [each for each in self.jobs.values() if not each.owner]
        some = self.dice.sample(waiting, min(len(waiting), self.dice.choice((1, 3))))
        query, priority = Query(ids=tuple(each.id for each in some)), self.dice.choice((0, 1, -2))
        if some and self.dice.random() < 0.5:
            await self.store.act(Action.CANCEL, query)
            for each in some:
                del self.jobs[each.id]
        elif some:
            await self.store.act(Action.REPRIORITISE, query, priority=priority)
            for each in some:
                each.priority = priority

    async def resize(self) -> None:
        name, size = self.dice.choice(sorted(SIZES)), self.dice.choice((0, 1, 2, 3, None))
        await self.store.set_limit_size(name, size)
        self.sizes[name] = SIZES[name] if size is None else size

    async def visit(self) -> None:
        holder, buckets = new_id().bytes, self.some_buckets(0.5, 0, 0.5, 0, 0.3)
        names = frozenset(bucket.name for bucket in buckets)
        may = bool(names) and self.fits(names)  # without buckets it would only renew
        taken = await self.store.hold(holder, buckets, 5 * SECOND)
        assert taken.ok == may
        if may:
            self.holders[holder] = names, taken.until
            self.began(names)

    async def give(self) -> None:
        if self.holders:
            holder = self.dice.choice(sorted(self.holders))
            _, until = self.holders.pop(holder)
            assert await self.store.release(holder) == (until > self.clock.now_us())

    async def wait(self) -> None:
        self.clock.advance(self.dice.choice((0.5, 2, 6, 9000)))

    async def drain(self) -> None:
        """Every waiting lane is served."""
        for name in SIZES:
            await self.store.set_limit_size(name, None)
        while self.jobs:
            self.clock.advance(6)
            await self.store.promote()
            before = len(self.jobs)
            for hand in self.hands:
                for claim in (await hand.turn(wants=[Want(LANES, 50)])).claims:
                    self.jobs[claim.id].owner, self.jobs[claim.id].claim = hand, claim
                held = self.held_by(hand)
                await hand.turn(*(Ack.succeeded(lease(each.claim)) for each in held if each.claim))
                for each in held:
                    del self.jobs[each.id]
            assert len(self.jobs) < before, "nothing moves"
        await self.store.promote()


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock()


@pytest_asyncio.fixture
async def timed(redis_url: str, namespace: str, clock: MovableClock) -> AsyncIterator[Door]:
    store = Door(RedisStore(redis_url, namespace=namespace, clock=clock))
    await store.open()
    yield store
    await store.close()


@pytest.mark.parametrize("seed", range(12))
async def test_a_turn_claims_exactly_the_jobs_that_fit(
    timed: Door, clock: MovableClock, namespace: str, redis_owner_url: str, seed: int
) -> None:
    """In order and completely. At the end no entry of a waiting or held job is left."""
    walk = Walk(timed, clock, Random(seed))
    await walk.begin()
    steps: list[Callable[[], Awaitable[None]]] = [
        *[walk.put] * 6, *[walk.take] * 8, *[walk.end] * 9, *[walk.act] * 3, *[walk.wait] * 2,
        walk.resize, walk.visit, walk.give, walk.rescue,
    ]  # fmt: skip
    for _ in range(150):
        await walk.dice.choice(steps)()
    await walk.drain()
    async with redis.asyncio.Redis.from_url(redis_owner_url, protocol=2) as client:
        left = [key async for key in client.scan_iter(match=f"{tag(namespace)}*", count=1000)]
    names = {key.removeprefix(tag(namespace).encode()).partition(b":")[0].decode() for key in left}
    assert not names & (WAITING | CAPACITY)
