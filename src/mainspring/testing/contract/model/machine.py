"""Random walks of two clients over a store, compared step by step with the model.

Each step does one call, as a worker, a producer, a rescuer or a person would, sometimes with an old token, an old
beat number or a turn whose reply was lost. Every reply and then every job is compared with :mod:`.model`.

``walk(FullMachine, make_store)`` runs it small; ``MAINSPRING_SOAK=1`` in the environment runs it long.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Set
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from uuid import uuid4

import hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from mainspring.common.clock import MovableClock, to_datetime
from mainspring.errors import KeyTaken, QueueDisabled, QueueDraining, QueueFull, StoreConflict
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, Enqueued, JobBatch, JobRow, NewJob, PromoteResult
from mainspring.limits.records import Limit
from mainspring.states import Action, Reason, State, sources
from mainspring.stores.base import Store
from mainspring.testing.contract.fixtures import MakeStore
from mainspring.worker.records import Beat, Registration, RescueResult, Turn, TurnResult, Want

from .compare import Ledger, same_job
from .draws import BUCKETS, LANES, QUEUES, SIZES, TASK, acks, new_jobs, wants
from .model import Model
from .model_records import Reply, Taken, agrees

R = TypeVar("R")

WALK = "m"
"""The first letter of the namespaces of walks. Each walk has a new namespace, and closes its clients at its end: a
``make_store`` can use that to remove the data of the walk before, so that walks do not slow down."""
REFUSALS = (StoreConflict, KeyTaken, QueueDraining, QueueDisabled, QueueFull)
SLOTS = ("w1", "w2", "w3")
REGISTRATION = Registration(queues=QUEUES, tasks=(TASK,))

SMALL = hypothesis.settings(
    max_examples=60,
    stateful_step_count=50,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=list(hypothesis.HealthCheck),
)
FEW = hypothesis.settings(SMALL, max_examples=15)
"""For a store that is slow to make anew."""
SOAK = hypothesis.settings(SMALL, max_examples=4_000, stateful_step_count=100)


def walk(machine: type[CommonMachine], make_store: MakeStore, settings: hypothesis.settings = SMALL) -> None:
    """Run random walks; a failure is shrunk to the shortest walk that shows it."""
    settings = SOAK if os.environ.get("MAINSPRING_SOAK") else settings
    run_state_machine_as_test(lambda: machine(make_store), settings=settings)  # type: ignore[arg-type]  # any factory


class WalkWorker:
    """A worker as its own process sees it: what it sent last and what it has read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.number = 0
        self.seen = 0
        self.last: Turn | None = None


class CommonMachine(RuleBasedStateMachine):
    """The rules for every store."""

    actions: tuple[Action, ...] = (Action.CANCEL,)
    draw_job = staticmethod(new_jobs)

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__()
        self.make_store = make_store
        self.loop = asyncio.new_event_loop()
        self.clock = MovableClock(datetime(2030, 1, 1, tzinfo=UTC))
        self.stepped_back = False
        self.model = Model()
        self.ledger = Ledger(self.model)
        self.ids: list[bytes] = []
        self.leases: list[Lease] = []
        self.callers: dict[str, WalkWorker] = {}
        self.clients: list[Store] = []
        self.names = 0

    @initialize()
    def open(self) -> None:
        namespace = f"{WALK}{uuid4().hex[:12]}"
        self.clients = [self.make_store(namespace=namespace, clock=self.clock) for _ in range(2)]
        self.run(self.clients[0].open())
        self.run(self.clients[0].migrate())
        self.run(self.clients[1].open())
        self.run(self.clients[0].declare_limits([Limit(name=name, size=size) for name, size in SIZES.items()]))
        self.model.sizes = dict(SIZES)
        for slot in SLOTS:
            self.register(slot)

    def teardown(self) -> None:
        for client in self.clients:
            self.run(client.close())
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        return self.loop.run_until_complete(call)

    # ---- one step -----------------------------------------------------------------------------

    def call(self, data: st.DataObject, do: Callable[[Store], Coroutine[Any, Any, R]]) -> R:
        """One call through one of the two clients; the model's step begins at the store's time."""
        client = self.clients[data.draw(st.integers(0, 1), label="client")]
        now = self.run(client.now()) if self.stepped_back else self.clock.now_us()
        self.model.begin(now)
        return self.run(do(client))

    def rows(self) -> dict[bytes, JobRow]:
        """Every job that was made and still exists, each found once."""
        ids = tuple({*self.ids, *self.model.jobs})
        found = self.run(self.clients[0].find(Query(ids=ids), limit=10_000)).jobs if ids else ()
        assert len({each.id for each in found}) == len(found), "a job is in two places"
        return {each.id: each for each in found}

    def check(self) -> None:
        """The store and the model are in the same state."""
        rows = self.rows()
        assert rows.keys() == self.model.jobs.keys()
        self.ledger.adopt(rows)
        for id, job in self.model.jobs.items():
            same_job(job, rows[id])
        for bucket in BUCKETS:
            assert self.model.used(bucket.name) <= max(SIZES[bucket.limit], 2), bucket
        assert self.run(self.clients[1].count(Query.everything())) == self.ledger.counts()
        for id in self.ledger.unread():
            self.ledger.same_attempts(id, self.run(self.clients[1].attempts(id)))

    # ---- producers ----------------------------------------------------------------------------

    @rule(data=st.data(), n=st.integers(1, 3))
    def enqueue(self, data: st.DataObject, n: int) -> None:
        self.send_batch(data, n)

    @rule(data=st.data())
    def enqueue_more(self, data: st.DataObject) -> None:
        self.send_batch(data, 4)

    def send_batch(self, data: st.DataObject, n: int) -> None:
        batch: list[NewJob] = []
        while len(batch) < n:
            batch.append(self.new_job(data, batch))
        repeated = [data.draw(st.sampled_from(self.made()), label="again")] if n == 1 and self.model.jobs else []
        jobs = tuple(batch + repeated)
        self.ids += [job.id for job in batch]
        sent = self.batch(jobs, retry=bool(repeated))
        refused: type[Exception] | None = None
        said: list[Enqueued] = []
        try:
            said = self.call(data, lambda store: store.enqueue(sent))
        except REFUSALS as error:
            refused = type(error)
        plan = self.model.plan(jobs)
        if refused is not None:
            assert refused in plan.refusals
        else:
            assert said == plan.replies
            self.model.enqueue(plan)
            self.ledger.in_order = [job.id for job in jobs if not job.after]
        self.check()

    def batch(self, jobs: tuple[NewJob, ...], *, retry: bool) -> JobBatch:
        return JobBatch(id=uuid4().bytes, jobs=jobs, retry=retry)

    def made(self) -> list[NewJob]:
        return [job.new for job in self.model.jobs.values()]

    def new_job(self, data: st.DataObject, batch: list[NewJob]) -> NewJob:
        self.names += 1
        parents = [job.id for job in batch] + [id for id in self.ids[-8:] if id in self.model.jobs]
        return data.draw(self.draw_job(self.names, parents))

    def enqueue_after_nobody(self, data: st.DataObject) -> None:
        """All or nothing: the good job of the batch is not made either."""
        good = self.new_job(data, [])
        orphan = NewJob(id=uuid4().bytes, task=TASK, queue="a", after=(Edge(uuid4().bytes),))
        try:
            self.call(data, lambda store: store.enqueue(JobBatch(id=uuid4().bytes, jobs=(good, orphan))))
        except REFUSALS:
            self.check()
        else:
            raise AssertionError("a parent that exists nowhere was accepted")

    @rule(data=st.data(), limit=st.sampled_from(sorted(SIZES)), size=st.sampled_from((0, 1, 2)))
    def resize(self, data: st.DataObject, limit: str, size: int) -> None:
        self.call(data, lambda store: store.set_limit_size(limit, size))
        self.model.sizes[limit] = size
        self.check()

    # ---- workers ------------------------------------------------------------------------------

    def register(self, slot: str) -> None:
        """A new process with a new name takes the slot; the old one, if it lives, may be rescued."""
        self.names += 1
        caller = self.callers[slot] = WalkWorker(f"{slot}-{self.names}")
        (said,) = self.run(self.clients[0].beat([Beat(caller.name, REGISTRATION)]))
        assert said.alive
        self.model.beat(caller.name, register=True)
        self.model.workers[caller.name].number = said.number

    def caller(self, data: st.DataObject) -> WalkWorker:
        """Mostly one that lives; a dead one does not know it yet."""
        slot = data.draw(st.sampled_from(SLOTS), label="worker")
        row = self.model.workers.get(self.callers[slot].name)
        if (row is None or row.lost) and data.draw(st.integers(0, 3), label="dead") < 3:
            self.register(slot)
        return self.callers[slot]

    def held(self, caller: WalkWorker) -> list[Lease]:
        running = (job for job in self.model.jobs.values() if job.state is State.RUNNING)
        return [Lease(job.new.id, job.token) for job in running if job.worker == caller.name]

    def some_acks(self, data: st.DataObject, caller: WalkWorker) -> list[Ack]:
        """Of what it holds, and now and then of a lease that is old or not its own."""
        held = self.held(caller)
        chosen = data.draw(st.lists(st.sampled_from(held), max_size=3, unique=True)) if held else []
        if self.leases and data.draw(st.integers(0, 2), label="stray") == 0:
            stray = data.draw(st.sampled_from(self.outlived(caller) or self.leases), label="stray lease")
            chosen += [stray] if stray not in chosen else []
        return [data.draw(acks(lease)) for lease in chosen]

    def outlived(self, caller: WalkWorker) -> list[Lease]:
        """Leases on what it runs now, from an earlier attempt: the most tempting mistake."""
        now = dict(self.held(caller))
        return [lease for lease in self.leases if lease.id in now and lease.token != now[lease.id]]

    @rule(data=st.data(), wants=wants, read=st.booleans(), suspects=st.integers(0, 1), tell=st.booleans())
    def turn(self, data: st.DataObject, wants: list[Want], read: bool, suspects: int, tell: bool) -> None:
        self.next_turn(data, wants, read, suspects, tell)

    @rule(data=st.data(), read=st.booleans())
    def take_all(self, data: st.DataObject, read: bool) -> None:
        self.next_turn(data, [Want(LANES, 4)], read, 1, False)

    def next_turn(self, data: st.DataObject, wants: list[Want], read: bool, suspects: int, tell: bool) -> None:
        """The next turn; unless it is ``read`` its reply is lost."""
        caller = self.caller(data)
        caller.number += 1
        holds = tuple((lease.id, lease.token) for lease in self.leases[-4:])
        caller.last = Turn(
            worker=caller.name, number=caller.number, seen=caller.seen, acks=tuple(self.some_acks(data, caller)),
            wants=tuple(wants), suspects=suspects, holds=holds if tell else None,
        )  # fmt: skip
        self.take_turn(data, caller.last)
        if read:
            caller.seen = caller.number

    @rule(data=st.data(), lane=st.sampled_from(LANES))
    def take_from_one_lane(self, data: st.DataObject, lane: str) -> None:
        self.next_turn(data, [Want((lane,), 4)], True, 1, False)

    @rule(data=st.data(), read=st.booleans())
    def repeat_turn(self, data: st.DataObject, read: bool) -> None:
        """The reply was lost: the same turn again."""
        caller = self.callers[data.draw(st.sampled_from(SLOTS))]
        if caller.last is None:
            return
        self.take_turn(data, caller.last)
        if read:
            caller.seen = max(caller.seen, caller.last.number)

    @rule(data=st.data(), late=st.booleans())
    def refused(self, data: st.DataObject, late: bool) -> None:
        """A turn of the past, or a batch whose parent is nowhere: a conflict, and nothing changes."""
        caller = self.caller(data)
        if late and caller.number > 1:
            self.take_turn(data, Turn(worker=caller.name, number=caller.number - 1, seen=0, wants=(Want(LANES, 4),)))
        else:
            self.enqueue_after_nobody(data)

    def take_turn(self, data: st.DataObject, turn: Turn) -> None:
        try:
            said = self.call(data, lambda store: store.turn(turn))
        except StoreConflict:
            assert self.model.acks(turn).conflict
            self.check()
            return
        expected = self.model.acks(turn)
        assert not expected.conflict
        assert said.lost == expected.lost
        if not expected.lost:
            self.ledger.adopt(self.rows())
            self.model.rest(turn, expected)
            self.same_turn(turn, said, expected)
        self.check()

    def same_turn(self, turn: Turn, said: TurnResult, expected: Reply) -> None:
        assert said.unstorable == ()
        assert set(said.already) - expected.unsure == expected.already
        assert set(said.stale) - expected.unsure == expected.stale
        assert {(order.id, order.token) for order in said.orders} == expected.orders
        assert set(said.gone) == expected.gone
        claims = {claim.id: claim for claim in said.claims}
        assert len(claims) == len(said.claims), "one job twice in a reply"
        needless = {job for job, _ in turn.holds or ()}
        assert claims.keys() | needless == {job.new.id for job in expected.claims} | needless
        for job in expected.claims:
            if job.new.id in claims:
                assert agrees(job, claims[job.new.id]), (job, claims[job.new.id])
        self.leases += [Lease(claim.id, claim.token) for claim in said.claims]

    # ---- fleet --------------------------------------------------------------------------------

    @rule(data=st.data(), register=st.booleans())
    def beat(self, data: st.DataObject, register: bool) -> None:
        caller = self.callers[data.draw(st.sampled_from(SLOTS))]
        known = caller.name in self.model.workers
        (said,) = self.call(data, lambda store: store.beat([Beat(caller.name, REGISTRATION if register else None)]))
        row = self.model.beat(caller.name, register)
        assert said.alive == (row is not None)
        if row is not None and not known:  # a retired name that comes again begins anew
            row.number = said.number
            caller.number, caller.seen, caller.last = 0, 0, None
        assert row is None or said.number == row.number
        self.check()

    @rule(data=st.data(), cause=st.sampled_from((Outcome.CRASHED, Outcome.LOST)), off=st.sampled_from((0, 0, 0, 1, -1)))
    def rescue(self, data: st.DataObject, cause: Outcome, off: int) -> None:
        """Two rescuers, with the current beat number, an old one, or one that never existed."""
        name = data.draw(st.sampled_from(self.busiest() or ["nobody"]))
        row = self.model.workers.get(name)
        number = (row.number if row else 1) + off
        said = self.call(data, lambda store: store.rescue(name, number, cause))
        self.same_taking(said, self.model.rescue(name, number, cause))
        self.check()
        assert not self.call(data, lambda store: store.rescue(name, number, cause)).taken
        self.check()

    def busiest(self) -> list[str]:
        """The workers, those with jobs first, because the first is drawn most often."""
        running = [job.worker for job in self.model.jobs.values() if job.state is State.RUNNING]
        busy = sorted(set(running) - {None}, key=str)
        return [name for name in busy if name is not None] * 2 + sorted(self.model.workers)

    @rule(data=st.data(), cause=st.sampled_from((Outcome.CRASHED, Outcome.INTERRUPTED)))
    def retire(self, data: st.DataObject, cause: Outcome) -> None:
        caller = self.caller(data)
        row = self.model.workers.get(caller.name)
        if row is not None and row.lost:
            return
        guilty = self.some_acks(data, caller)
        said = self.call(data, lambda store: store.retire(caller.name, cause, guilty))
        expected = self.model.retire(caller.name, cause, guilty)
        self.same_taking(said, expected, apart_from={ack.id for ack in guilty})
        self.check()

    def same_taking(self, said: RescueResult, expected: Taken, apart_from: Set[bytes] = frozenset()) -> None:
        assert said.taken == expected.taken
        replies = {
            State.READY: said.ready,
            State.RETRYING: said.retrying,
            State.DEAD: said.dead,
            State.CANCELLED: said.cancelled,
        }
        for state, ids in replies.items():
            assert set(ids) - apart_from == expected.moved.get(state, set()) - apart_from, state

    # ---- time ---------------------------------------------------------------------------------

    @rule(data=st.data(), after=st.sampled_from((0, 1, 5)))
    def promote_soon(self, data: st.DataObject, after: int) -> None:
        self.promote_after(data, after)

    @rule(data=st.data(), after=st.sampled_from((13, 80, 4000)))
    def promote_late(self, data: st.DataObject, after: int) -> None:
        self.promote_after(data, after)

    def promote_after(self, data: st.DataObject, after: int) -> None:
        self.clock.advance(after)
        said = self.call(data, lambda store: store.promote())
        late = self.model.expire()
        dues = {job.new.id: job.due or 0 for job in self.model.jobs.values()}
        due = self.model.promote()
        rows = self.rows()
        assert said.now == self.model.now
        assert said.expired == len([id for id in late if rows[id].reason is Reason.EXPIRED])
        self.same_ends(said, rows)
        assert said.promoted == len(due)
        assert set(said.queues) >= {job.new.queue for job in due}
        soonest = self.model.next_due()
        assert soonest is None or (said.next_due is not None and said.next_due <= soonest)
        self.ledger.by_due = [(dues[job.new.id], job.new.id) for job in due]
        self.check()

    def same_ends(self, said: PromoteResult, rows: dict[bytes, JobRow]) -> None:
        """For an engine that names them."""

    @rule(by=st.sampled_from((1, 13, -1, -3600)))
    def move_clock(self, by: int) -> None:
        """No promotion happens meanwhile, and the clock may go back."""
        self.clock.set(to_datetime(self.clock.now_us()) + timedelta(seconds=by))
        self.stepped_back = self.stepped_back or by < 0

    # ---- people -------------------------------------------------------------------------------

    @rule(data=st.data(), anybody=st.integers(0, 4))
    def act(self, data: st.DataObject, anybody: int) -> None:
        """Mostly what the table allows, sometimes what it does not."""
        action = data.draw(st.sampled_from(self.actions))
        fitting = [id for id, job in self.model.jobs.items() if anybody == 0 or job.state in sources(action)]
        running = [id for id in fitting if self.model.jobs[id].state is State.RUNNING]
        fitting = running if running and anybody > 2 else fitting
        if not fitting:
            return
        id, priority = data.draw(st.sampled_from(fitting)), data.draw(st.sampled_from((-1, 1)))
        before = self.model.jobs[id].state
        said = self.call(data, lambda store: store.act(action, Query(ids=(id,)), priority=priority))
        done = self.model.act(action, id, priority)
        assert said.done == ((id,) if done is True else ())
        assert said.refused == (((id, before),) if done is False else ())
        assert said.held == (((id, done),) if isinstance(done, bytes) else ())
        self.check()


class FullMachine(CommonMachine):
    """And what people do to a store that is complete."""

    actions: tuple[Action, ...] = (
        Action.CANCEL, Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE,
    )  # fmt: skip

    def same_ends(self, said: PromoteResult, rows: dict[bytes, JobRow]) -> None:
        assert len(set(said.ended)) == said.expired
        assert all(rows[id].reason is Reason.EXPIRED for id in said.ended)
