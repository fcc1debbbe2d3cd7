"""Helpers for the tests of the contract: jobs to enqueue, a worker to play (``Hand``), questions about a job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Literal, Self
from uuid import UUID

from mainspring.breakers.counting import BreakerEnd
from mainspring.breakers.records import BreakerRow, BreakerSwap
from mainspring.common.ids import new_id
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptRow, Edge, Enqueued, FollowUp, JobBatch, JobRow, Join, NewJob, UniqueKey
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import FairKey
from mainspring.states import Reason, State
from mainspring.stores.base import Store
from mainspring.worker.events.breaker_counts import EVERY, BreakerCounts, end_of
from mainspring.worker.records import Beat, Claim, Registration, Turn, TurnResult, Want

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
LANE = "q/any"
TASK = "shop.tasks.send"
ERROR = b'{"type":"ValueError","text":"no \xf0\x9f\x90\x9b"}'

_names = count(1)


def job(
    *,
    id: bytes | None = None,
    task: str = TASK,
    queue: str = "q",
    kind: str = "any",
    priority: int = 0,
    delay: int = 0,
    run_at: int | None = None,
    expires_in: int | None = None,
    crashes: int = 3,
    early: bool = False,
    record: bytes = b"{}",
    after: Iterable[NewJob | Edge] = (),
    before: Iterable[NewJob | bytes] = (),
    join: Join | None = None,
    buckets: Iterable[Bucket] = (),
    fair: FairKey | None = None,
    unique: UniqueKey | None = None,
    marks: Iterable[str] = (),
    keep: int | None = None,
    follows: Iterable[FollowUp] = (),
) -> NewJob:
    """A job with everything at its default but what the test is about; ``after`` takes jobs or edges."""
    edges = tuple(parent if isinstance(parent, Edge) else Edge(parent.id) for parent in after)
    return NewJob(
        id=id or new_id().bytes,
        task=task,
        queue=queue,
        kind=kind,
        priority=priority,
        delay=delay,
        run_at=run_at,
        expires_in=expires_in,
        crashes=crashes,
        early=early,
        record=record,
        after=edges,
        before=tuple(each if isinstance(each, bytes) else each.id for each in before),
        join=join,
        buckets=tuple(buckets),
        fair=fair,
        unique=unique,
        marks=tuple(marks),
        keep=keep,
        follows=tuple(follows),
    )


class Sized(Bucket, frozen=True):
    """A bucket that knows its limit, as a task does."""

    declared: Limit | None = None


def bucket(limit: str, size: int, *, key: str = "", cost: int = 1, per: int = 0, burst: int = 0) -> Sized:
    """A bucket of a limit that is made with the first job that names it: a rate if there is a ``per``."""
    kind: Literal["concurrency", "rate", "smooth"] = "concurrency" if not per else "smooth" if burst else "rate"
    return Sized(limit, key, cost, Limit(name=limit, kind=kind, size=size, per=per, burst=burst))


def limits_of(jobs: Iterable[NewJob]) -> tuple[Limit, ...]:
    """The limits of buckets that know them."""
    named = [each for made in jobs for each in made.buckets if isinstance(each, Sized)]
    return tuple({each.limit: each.declared for each in named if each.declared is not None}.values())


def ignoring(parent: NewJob) -> Edge:
    """The child does not mind how its parent ends."""
    return Edge(parent.id, "ignore")


async def put_in(store: Store, *jobs: NewJob, retry: bool = False) -> list[Enqueued]:
    """Enqueue these jobs as one batch."""
    return await store.enqueue(JobBatch(id=new_id().bytes, jobs=jobs, retry=retry, limits=limits_of(jobs)))


async def one(store: Store, made: NewJob | None = None) -> NewJob:
    """Enqueue one job."""
    made = made or job()
    await put_in(store, made)
    return made


async def row(store: Store, which: NewJob | Claim | bytes) -> JobRow:
    """Everything the store knows of this job."""
    wanted = which if isinstance(which, bytes) else which.id
    found = await store.find(Query(ids=(wanted,)))
    assert len(found.jobs) == 1, f"job {UUID(bytes=wanted)} is in {len(found.jobs)} places"
    return found.jobs[0]


async def gone(store: Store, which: NewJob | Claim) -> bool:
    """Whether the store has no such job."""
    return not (await store.find(Query(ids=(which.id,)))).jobs


async def state(store: Store, which: NewJob | Claim | bytes) -> State:
    return (await row(store, which)).state


async def ending(store: Store, which: NewJob | Claim | bytes) -> tuple[State, Reason | None]:
    """The state with its reason."""
    found = await row(store, which)
    return found.state, found.reason


async def outcomes(store: Store, which: NewJob | Claim) -> list[Outcome]:
    """What the ended attempts came to, oldest first."""
    return [attempt.outcome for attempt in await store.attempts(which.id)]


async def last_attempt(store: Store, which: NewJob | Claim) -> AttemptRow:
    return (await store.attempts(which.id))[-1]


async def paged(store: Store, query: Query, size: int) -> list[bytes]:
    """The ids of all jobs of the query, read page by page."""
    seen: list[bytes] = []
    cursor = None
    for _ in range(100):
        page = await store.find(query, limit=size, cursor=cursor)
        seen += ids(page.jobs)
        cursor = page.cursor
        if cursor is None:
            return seen
    raise AssertionError("the pages do not come to an end")


def lease(claim: Claim) -> Lease:
    return Lease(claim.id, claim.token)


def ids(many: Iterable[NewJob | Claim | JobRow]) -> list[bytes]:
    return [each.id for each in many]


class Hand:
    """One worker of a test: it numbers its turns as the contract asks and remembers what it has read.

    It counts the ends of its jobs for breakers as a worker does, with further turns where the counts are late.
    """

    def __init__(self, store: Store, *, tasks: Sequence[str] = (TASK,), queues: Sequence[str] = ("q",)) -> None:
        self.store = store
        self.name = f"hand-{next(_names)}-{new_id().hex[-6:]}"
        self.registration = Registration(queues=tuple(queues), tasks=tuple(tasks))
        self.number = 0
        self.seen = 0
        self.beats = 0
        self.last = Turn(worker=self.name, number=0, seen=0)
        self.counts = BreakerCounts()
        self.reports_successes = True
        """Each turn reports the successes for breakers with a share. A worker waits for a second, this one for ever."""
        self.changed: list[BreakerRow] = []
        """The breakers that this worker has opened, closed or begun to probe."""
        self._lanes: dict[tuple[bytes, int], str] = {}

    async def join(self) -> Self:
        """Register."""
        await self.beat(register=True)
        return self

    async def beat(self, *, register: bool = False) -> bool:
        """Beat once; whether the store calls this worker alive."""
        (said,) = await self.store.beat([Beat(self.name, self.registration if register else None)])
        self.beats = said.number
        return said.alive

    async def turn(
        self,
        *acks: Ack,
        wants: Sequence[Want] = (),
        suspects: int = 1,
        holds: Sequence[Claim] | None = None,
        via: Store | None = None,
    ) -> TurnResult:
        """The next turn, its reply read. Returns the first reply if the counts of breakers need further turns."""
        for ack in acks:
            lane = self._lanes.pop(ack.lease, "")
            if ack.fault or ack.to is State.SUCCEEDED:
                self.counts.add(end_of(ack), lane)
        said = await self._turn(*acks, wants=wants, suspects=suspects, holds=holds, via=via)
        while self.counts.has_late:
            await self._turn(via=via)
        return said

    async def _turn(
        self,
        *acks: Ack,
        wants: Sequence[Want] = (),
        suspects: int = 1,
        holds: Sequence[Claim] | None = None,
        via: Store | None = None,
    ) -> TurnResult:
        store = via or self.store
        leases = None if holds is None else tuple((held.id, held.token) for held in holds)
        self.number += 1
        self.last = Turn(
            worker=self.name,
            number=self.number,
            seen=self.seen,
            acks=acks,
            wants=tuple(wants),
            suspects=suspects,
            holds=leases,
            breakers=await self._next_swaps(store),
        )
        said = await store.turn(self.last)
        self.seen = self.number
        if not said.lost:
            self.changed += self.counts.apply(self.last.breakers, said.breakers)
        free = sum(want.n for want in self.last.wants if not want.ahead)
        for place, claim in enumerate(said.claims):
            self._lanes[claim.id, claim.token] = claim.lane
            if place < free:
                self.counts.add(BreakerEnd("start", claim.token), claim.lane)
        return said

    async def _next_swaps(self, store: Store) -> tuple[BreakerSwap, ...]:
        if not self.counts.has_any:
            return ()
        return self.counts.next_swaps(self.number * EVERY if self.reports_successes else 0, await store.now())

    async def repeat(self) -> TurnResult:
        """The last turn once more, as after a lost reply."""
        return await self.store.turn(self.last)

    async def take(self, n: int = 1, *lanes: str, suspects: int = 1, via: Store | None = None) -> tuple[Claim, ...]:
        """Claim up to ``n`` jobs."""
        want = Want(lanes or (LANE,), n)
        return (await self.turn(wants=[want], suspects=suspects, via=via)).claims

    async def take_one(self, *lanes: str, suspects: int = 1) -> Claim:
        """Claim the one job that must be there."""
        (claim,) = await self.take(1, *lanes, suspects=suspects)
        return claim

    async def succeed(self, *claims: Claim) -> None:
        """End these attempts well; every ack must be applied."""
        said = await self.turn(*(Ack.succeeded(lease(claim), b'"ok"') for claim in claims))
        assert applied(said), said

    async def kill(self, *claims: Claim, reason: Reason = Reason.NOT_RETRYABLE, label: str = "") -> None:
        """End these jobs as dead; every ack must be applied."""
        said = await self.turn(*(Ack.dead(lease(claim), ERROR, reason, label=label) for claim in claims))
        assert applied(said), said

    async def crash(self, *, via: Store | None = None) -> None:
        """Die, and be taken by a rescuer that knows it."""
        assert (await (via or self.store).rescue(self.name, self.beats, Outcome.CRASHED)).taken


def applied(said: TurnResult) -> bool:
    """Whether the store took every ack of the turn for the first time."""
    return not (said.lost or said.already or said.stale or said.unstorable)


async def running(store: Store, made: NewJob | None = None) -> tuple[Hand, Claim]:
    """A new worker with one running job, in a queue of its own unless the job names another."""
    made = await one(store, made or job(queue=f"own-{next(_names)}"))
    hand = await Hand(store).join()
    claim = await hand.take_one(f"{made.queue}/{made.kind}")
    assert claim.id == made.id
    return hand, claim
