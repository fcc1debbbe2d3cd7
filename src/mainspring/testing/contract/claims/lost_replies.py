"""Lost replies: a call took effect and its answer never came.

The client repeats by the rule of each call: a batch with its ``retry`` flag, a turn under the same
number, anything else as it was. Every call in the life of four jobs loses its reply once; the end
must be the one of an undisturbed life: nothing stranded, nothing doubled.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from mainspring.common.clock import MovableClock
from mainspring.common.ids import new_id
from mainspring.errors import StoreUnavailable
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch
from mainspring.states import Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import ERROR, SECOND, TASK, Hand, bucket, job, lease, outcomes, row
from mainspring.worker.records import Beat, Claim, Turn, TurnResult, Want

__all__ = ["TestLostReplies"]

R = TypeVar("R")

STEPS = (
    "enqueue", "register", "claim", "report ends", "promote", "claim again", "beat", "cancel", "obey", "rescue",
    "register 2", "claim 2", "retire", "register 3", "claim 3", "end the parent", "claim the child", "end the child",
    "retire 3",
)  # fmt: skip


class LossyClient:
    """A client whose connection breaks after the step named ``losing``; it repeats what got no answer."""

    def __init__(self, losing: str | None) -> None:
        self.losing = losing
        self.lost = 0

    async def step(
        self, name: str, call: Callable[[], Awaitable[R]], again: Callable[[], Awaitable[R]] | None = None
    ) -> R:
        assert name in STEPS
        try:
            return await self.broken(name, call)
        except StoreUnavailable:
            return await (again or call)()

    async def broken(self, name: str, call: Callable[[], Awaitable[R]]) -> R:
        """The call takes effect; its reply is lost once if it is the one."""
        reply = await call()
        if name == self.losing:
            self.lost += 1
            raise StoreUnavailable(f"{name}: the connection broke before the reply came")
        return reply


class RepeatingWorker:
    """Turns of one worker under a client that may lose replies."""

    def __init__(self, store: Store, client: LossyClient, queue: str) -> None:
        self.store = store
        self.client = client
        self.hand = Hand(store)
        self.lane = f"{queue}/any"
        self.number = 0

    async def beat(self, step: str, *, register: bool = False) -> None:
        beat = Beat(self.hand.name, self.hand.registration if register else None)
        (said,) = await self.client.step(step, lambda: self.store.beat([beat]))
        assert said.alive
        self.hand.beats = said.number

    async def turn(self, step: str, *acks: Ack, want: int = 0) -> TurnResult:
        wants = (Want((self.lane,), want),) if want else ()
        turn = Turn(worker=self.hand.name, number=self.number + 1, seen=self.number, acks=acks, wants=wants)
        said = await self.client.step(step, lambda: self.store.turn(turn))
        assert (said.lost, said.stale, said.unstorable) == (False, (), ())
        self.number += 1
        return said

    async def take(self, step: str, want: int) -> dict[bytes, Claim]:
        claims = (await self.turn(step, want=want)).claims
        assert len(claims) == want
        return {claim.id: claim for claim in claims}


async def life(store: Store, clock: MovableClock, losing: str | None) -> dict[str, object]:
    """Four jobs from enqueue to their end; returns what is left in the store of each."""
    client, queue = LossyClient(losing), f"life-{new_id().hex}"
    gate = bucket(f"gate-{queue}", 1)
    gated = job(queue=queue, buckets=[gate])
    child, later, plain = job(queue=queue, after=[gated]), job(queue=queue, delay=SECOND), job(queue=queue)
    batch = JobBatch(id=new_id().bytes, jobs=(gated, child, later, plain))
    repeat = msgspec.structs.replace(batch, retry=True)
    await client.step("enqueue", lambda: store.enqueue(batch), lambda: store.enqueue(repeat))

    first = RepeatingWorker(store, client, queue)
    await first.beat("register", register=True)
    held = await first.take("claim", 2)
    ends = (Ack.failed(lease(held[gated.id]), ERROR, retry_in=0), Ack.succeeded(lease(held[plain.id]), b"1"))
    await first.turn("report ends", *ends)
    clock.advance("1s")
    await client.step("promote", store.promote)
    held = await first.take("claim again", 2)
    await first.beat("beat")
    await client.step("cancel", lambda: store.act(Action.CANCEL, Query(ids=(later.id,))))
    await first.turn("obey", Ack.cancelled(lease(held[later.id])))
    await client.step("rescue", lambda: store.rescue(first.hand.name, first.hand.beats, Outcome.CRASHED))

    second = RepeatingWorker(store, client, queue)
    await second.beat("register 2", register=True)
    await second.take("claim 2", 1)
    await client.step("retire", lambda: store.retire(second.hand.name, Outcome.INTERRUPTED))

    third = RepeatingWorker(store, client, queue)
    await third.beat("register 3", register=True)
    held = await third.take("claim 3", 1)
    await third.turn("end the parent", Ack.succeeded(lease(held[gated.id]), b"2"))
    held = await third.take("claim the child", 1)
    await third.turn("end the child", Ack.succeeded(lease(held[child.id]), b"3"))
    await client.step("retire 3", lambda: store.retire(third.hand.name, Outcome.INTERRUPTED))
    assert client.lost == (losing is not None)

    left: dict[str, object] = {}
    for name, each in (("gated", gated), ("child", child), ("later", later), ("plain", plain)):
        found = await row(store, each)
        kept = await outcomes(store, each)
        left[name] = (found.state, found.reason, found.attempt, found.crashes, found.result, kept)
    return left


@pytest.mark.asyncio
class TestLostReplies:
    @pytest.mark.parametrize("losing", STEPS)
    async def test_no_job_is_lost_or_doubled(self, store: Store, clock: MovableClock, losing: str) -> None:
        undisturbed = await life(store, clock, None)
        assert await life(store, clock, losing) == undisturbed
        counts = await store.count(Query.everything())
        assert {state: n for state, n in counts.items() if n} == {State.SUCCEEDED: 6, State.CANCELLED: 2}
        assert not any(each.running for each in await store.workers())

    async def test_capacity_is_free_afterwards(self, store: Store) -> None:
        """A claim whose reply was lost uses capacity once, and only once."""
        gate = bucket("gate", 1)
        jobs = [job(buckets=[gate], task=TASK) for _ in range(2)]
        await store.enqueue(JobBatch(id=new_id().bytes, jobs=tuple(jobs)))
        worker = RepeatingWorker(store, LossyClient("claim"), "q")
        await worker.beat("register", register=True)
        held = await worker.take("claim", 1)
        await worker.turn("report ends", *(Ack.succeeded(lease(claim)) for claim in held.values()))
        assert set(await worker.take("claim 2", 1)) == {jobs[1].id}
