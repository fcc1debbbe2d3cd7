"""Dependencies at the same moment: no release is lost or doubled. And random walks, compared with a model."""

from __future__ import annotations

import asyncio
import random

import pytest

from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.jobs.records import Batch, NewJob
from mainspring.schedules.records import ScheduleDependency, ScheduleDependencyRow
from mainspring.states import FINAL, Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, Hand, lease, one, put_in, state
from mainspring.worker.records import Claim

from .release import after, noted, of, succeeds

__all__ = ["TestDependencyRaces", "TestDependencyWalks"]

ROUNDS = 20
NAMES = ("a", "b", "x", "y")
LANES = tuple(f"{name}/any" for name in NAMES)


@pytest.mark.asyncio
class TestDependencyRaces:
    async def test_an_enqueue_races_a_success(self, store: Store, second_store: Store) -> None:
        """Whichever is first: the run is released."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        for _ in range(ROUNDS):
            await one(store, of("a"))
            claim = await hand.take_one("a/any")
            made = of("x")
            await asyncio.gather(hand.succeed(claim), put_in(second_store, made))
            assert await state(store, made) == State.READY
            assert await noted(store) == {"a": False}
            await hand.succeed(await hand.take_one("x/any"))

    async def test_two_concurrent_successes(self, store: Store, second_store: Store) -> None:
        await after(store, "x", "a", "b")
        here, there = await Hand(store).join(), await Hand(second_store).join()
        for _ in range(ROUNDS):
            made = of("x")
            await put_in(store, of("a"), of("b"), made)
            first, second = await here.take_one("a/any"), await there.take_one("b/any")
            await asyncio.gather(here.succeed(first), there.succeed(second))
            assert await state(store, made) == State.READY
            await here.succeed(await here.take_one("x/any"))

    async def test_two_successes_race_many_enqueues(self, store: Store, second_store: Store) -> None:
        """One of the new runs is released, and the others wait."""
        await after(store, "x", "a", "b")
        here, there = await Hand(store).join(), await Hand(second_store).join()
        for _ in range(ROUNDS // 2):
            await put_in(store, of("a"), of("b"))
            first, second = await here.take_one("a/any"), await there.take_one("b/any")
            jobs = [of("x") for _ in range(6)]
            await asyncio.gather(
                here.succeed(first), there.succeed(second),
                *(put_in(place, each) for place, each in zip([store, second_store] * 3, jobs, strict=True)),
            )  # fmt: skip
            states = [await state(store, each) for each in jobs]
            assert (states.count(State.READY), states.count(State.BLOCKED)) == (1, 5)
            await here.succeed(await here.take_one("x/any"))
            await store.act(Action.CANCEL, Query(states=(State.BLOCKED,)))

    async def test_concurrent_successes_of_one_schedule(self, store: Store, second_store: Store) -> None:
        """Two schedules that depend on the same others: locks are taken in one order."""
        await store.set_dependencies([ScheduleDependency("x", ("a", "b")), ScheduleDependency("y", ("b", "a"))])
        hands = [await Hand(place).join() for place in (store, second_store) * 2]
        for _ in range(ROUNDS // 2):
            waits = [of("x"), of("y")]
            await put_in(store, *waits, *(of(part) for part in ("a", "b") * 2))
            claims = [await hand.take_one(f"{part}/any") for hand, part in zip(hands, "abba", strict=True)]
            await asyncio.gather(*(hand.succeed(claim) for hand, claim in zip(hands, claims, strict=True)))
            assert [await state(store, each) for each in waits] == [State.READY, State.READY]
            for lane in ("x/any", "y/any"):
                await hands[0].succeed(await hands[0].take_one(lane))

    async def test_a_success_races_the_claim_of_the_released_run(self, store: Store, second_store: Store) -> None:
        """The success is recorded if the claim was first, else not; only in the first case the next run is released."""
        await after(store, "x", "a")
        here, there = await Hand(store).join(), await Hand(second_store).join()
        for _ in range(ROUNDS):
            first, second = await one(store, of("x")), await one(store, of("x"))
            await succeeds(here, "a")
            await one(store, of("a"))
            claim = await here.take_one("a/any")
            _, taken = await asyncio.gather(here.succeed(claim), there.take(1, "x/any"))
            (started,) = taken or await there.take(1, "x/any")  # one that the success has locked may be passed over
            assert started.id == first.id
            assert await noted(store) == {"a": False}
            await there.succeed(started)
            if await state(store, second) == State.BLOCKED:
                await succeeds(here, "a")
            await there.succeed(await there.take_one("x/any"))

    async def test_a_success_races_a_cancel(self, store: Store, second_store: Store) -> None:
        """The first waiting run is cancelled: it was released before, or the next run is released."""
        await after(store, "x", "a")
        hand = await Hand(store).join()
        for _ in range(ROUNDS):
            first, second = await one(store, of("x")), await one(store, of("x"))
            await one(store, of("a"))
            claim = await hand.take_one("a/any")
            await asyncio.gather(hand.succeed(claim), second_store.act(Action.CANCEL, Query(ids=(first.id,))))
            assert await state(store, first) == State.CANCELLED
            assert await noted(store) == {"a": False}
            if await state(store, second) == State.BLOCKED:
                await succeeds(hand, "a")
            await hand.succeed(await hand.take_one("x/any"))

    async def test_a_success_races_a_change_of_dependencies(self, store: Store, second_store: Store) -> None:
        """No run keeps waiting after its schedule has no dependencies any more."""
        hand = await Hand(store).join()
        for _ in range(ROUNDS // 2):
            await after(store, "x", "a", "b")
            jobs = [of("x") for _ in range(3)]
            await put_in(store, of("a"), *jobs[:2])
            claim = await hand.take_one("a/any")
            await asyncio.gather(hand.succeed(claim), after(second_store, "x"), put_in(store, jobs[2]))
            assert [await state(store, each) for each in jobs] == [State.READY] * 3
            assert await store.dependencies() == []
            await hand.succeed(*(await hand.take(9, "x/any")))


class DependencyModel:
    """The rules of the contract for dependencies of schedules."""

    def __init__(self) -> None:
        self.links: dict[str, dict[str, bool]] = {}
        self.line: dict[str, list[bytes]] = {}
        self.last: dict[str, bytes] = {}
        self.part: dict[bytes, str] = {}
        self.states: dict[bytes, State] = {}
        self.claimed: set[bytes] = set()

    def enqueue(self, job: bytes, part: str, *, forced: bool) -> None:
        self.part[job], self.states[job] = part, State.READY
        if part in self.links and forced:
            self._take_notes(part, job)
        elif part in self.links:
            self.states[job] = State.BLOCKED
            self.line[part].append(job)
            self._release(part)

    def end(self, job: bytes, to: State) -> None:
        """It ends, or waits again."""
        self.states[job] = to
        for line in self.line.values():
            if job in line:
                line.remove(job)
        for part, noted_of in self.links.items() if to is State.SUCCEEDED else ():
            if self.part[job] in noted_of and not self._is_awaited(self.last.get(part)):
                noted_of[self.part[job]] = True
                self._release(part)

    def link(self, part: str, after: tuple[str, ...]) -> None:
        before = self.links.pop(part, {})
        self.line.setdefault(part, [])
        if after:
            self.links[part] = {each: before.get(each, False) for each in after}
            self._release(part)
            return
        for job in self.line.pop(part):
            self.states[job] = State.READY
        self.last.pop(part, None)

    def _is_awaited(self, job: bytes | None) -> bool:
        waits = job is not None and self.states[job] not in FINAL and self.states[job] is not State.RUNNING
        return waits and job not in self.claimed

    def _release(self, part: str) -> None:
        if self.line[part] and all(self.links[part].values()):
            job = self.line[part].pop(0)
            self.states[job] = State.READY
            self._take_notes(part, job)

    def _take_notes(self, part: str, job: bytes) -> None:
        self.links[part] = dict.fromkeys(self.links[part], False)
        self.last[part] = job

    def rows(self) -> list[ScheduleDependencyRow]:
        return [
            ScheduleDependencyRow(name=part, after=tuple(sorted(after.items())), waiting=tuple(self.line[part]))
            for part, after in sorted(self.links.items())
        ]


class DependencyWalk:
    """Random calls through two clients."""

    def __init__(self, seed: int, *stores: Store) -> None:
        self.draw = random.Random(seed)
        self.stores = stores
        self.model = DependencyModel()
        self.hand = Hand(stores[0])
        self.held: list[Claim] = []

    @property
    def store(self) -> Store:
        return self.draw.choice(self.stores)

    async def enqueue(self) -> None:
        jobs: list[NewJob] = [of(self.draw.choice(NAMES)) for _ in range(self.draw.choice((1, 1, 2, 3)))]
        forced = self.draw.random() < 0.15
        await self.store.enqueue(Batch(id=new_id().bytes, jobs=tuple(jobs), forced=forced))
        for each in jobs:
            self.model.enqueue(each.id, each.queue, forced=forced)

    async def take(self) -> None:
        for claim in await self.hand.take(self.draw.randint(1, 3), *LANES, via=self.store):
            assert self.model.states[claim.id] is State.READY
            self.model.states[claim.id] = State.RUNNING
            self.model.claimed.add(claim.id)
            self.held.append(claim)

    async def end(self) -> None:
        self.draw.shuffle(self.held)
        ended, self.held = self.held[:2], self.held[2:]
        ends = [(claim, self.draw.random() < 0.8) for claim in ended]
        fine = [Ack.succeeded(lease(claim)) for claim, good in ends if good]
        bad = [Ack.failed(lease(claim), ERROR, retry_in=0) for claim, good in ends if not good]
        await self.hand.turn(*fine, *bad, via=self.store)
        await self.store.promote()
        for claim, good in ends:
            self.model.end(claim.id, State.SUCCEEDED if good else State.READY)

    async def cancel(self) -> None:
        waits = [job for job, state in self.model.states.items() if state in (State.BLOCKED, State.READY)]
        if waits:
            job = self.draw.choice(waits)
            await self.store.act(Action.CANCEL, Query(ids=(job,)))
            self.model.end(job, State.CANCELLED)

    async def retry(self) -> None:
        ended = [job for job, state in self.model.states.items() if state in FINAL]
        if ended:
            job = self.draw.choice(ended)
            await self.store.act(Action.RETRY, Query(ids=(job,)))
            self.model.states[job] = State.READY

    async def link(self) -> None:
        part = self.draw.choice(NAMES)
        others = [name for name in NAMES if name != part]
        after = tuple(self.draw.sample(others, self.draw.choice((0, 1, 1, 2))))
        await self.store.set_dependencies([ScheduleDependency(part, after)])
        self.model.link(part, after)

    async def check(self) -> None:
        found = await self.store.find(Query.everything(), limit=1000)
        assert {row.id: row.state for row in found.jobs} == self.model.states
        assert await self.store.dependencies() == self.model.rows()


@pytest.mark.asyncio
class TestDependencyWalks:
    @pytest.mark.parametrize("seed", range(8))
    async def test_random_walks(self, store: Store, second_store: Store, seed: int) -> None:
        walk = DependencyWalk(seed, store, second_store)
        await walk.hand.join()
        often, seldom = (walk.enqueue, walk.take, walk.end), (walk.cancel, walk.retry, walk.link)
        for _ in range(60):
            await walk.draw.choice((*often, *often, *seldom))()
            await walk.check()
