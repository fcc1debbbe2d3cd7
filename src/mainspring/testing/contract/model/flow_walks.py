"""Random walks over flows: graphs of jobs and joins that grow, end in every way, are cancelled, retried and deleted.

``walk(FlowMachine, make_store)``
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal
from uuid import uuid4

from hypothesis import strategies as st
from hypothesis.stateful import rule

from mainspring.errors import FlowClosed, StoreConflict
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.query import Query, flow_mark
from mainspring.jobs.records import (
    FLOW_KEEP,
    Edge,
    FlowRetry,
    JobBatch,
    JobRow,
    Join,
    NewJob,
    PromoteResult,
    Retention,
)
from mainspring.states import FINAL, Action, State
from mainspring.stores.base import Store
from mainspring.testing.contract.fixtures import MakeStore
from mainspring.worker.records import Turn, Want

from .compare import Ledger
from .draws import LANES, QUEUES, SECOND, TASK, acks, ends, one_in
from .flow_model import FlowModel, FlowPlanned, Truth, edges_of
from .machine import SLOTS, FullMachine, R, WalkWorker
from .model_records import ModelJob

Policy = Literal["fail", "ignore", "skip", "wait", "failed", "dead"]
REFUSED = (FlowClosed, StoreConflict)
POLICIES: tuple[Policy, ...] = ("fail", "fail", "ignore", "skip", "wait", "failed")
POLICIES_OF_JOINS: tuple[Policy, ...] = (*POLICIES, "dead")
DAY = 86_400 * SECOND
RULES = Retention(keep=DAY, keep_count=100_000, keep_at_least=SECOND, keep_dead=DAY, keep_workers=100 * DAY)
MOST_JOBS = 40
"""A walk adds no further flow when this many jobs are there, because each step compares all of them."""


class FlowDraft:
    """The jobs of a batch while it is drawn: nodes first, then edges, none of which closes a circle."""

    def __init__(self, draw: st.DrawFn, model: FlowModel, first: int) -> None:
        self.draw = draw
        self.model = model
        self.number = first
        self.nodes: dict[bytes, NewJob] = {}
        self.after: dict[bytes, list[Edge]] = {}
        self.before: dict[bytes, list[bytes]] = {}
        self.waits: dict[bytes, set[bytes]] = {}

    def add(self, *, root: bytes | None, join: Join | None = None) -> bytes:
        """A job, or a join, of the flow with this root."""
        self.number += 1
        id = self.number.to_bytes(6) + bytes(10)
        draw = self.draw
        self.nodes[id] = NewJob(
            id=id,
            task=TASK,
            queue=draw(st.sampled_from(QUEUES)),
            delay=5 * SECOND if one_in(draw, 6) else 0,
            expires_in=12 * SECOND + 1 if one_in(draw, 10) else None,
            crashes=draw(st.sampled_from((3, 1))),
            early=join is None and one_in(draw, 8),
            record=b"%d" % self.number,
            join=join,
            marks=(flow_mark(root),) if root is not None else (),
            keep=FLOW_KEEP if root is not None else None,
        )
        self.after[id], self.before[id], self.waits[id] = [], [], set()
        return id

    def wait_for(self, id: bytes, parents: Sequence[bytes]) -> None:
        """Let the job wait for up to two of these jobs."""
        for parent in self._some(parents):
            if self._is_circle(parent, id):
                continue
            made = self.model.jobs.get(parent)
            is_join = (made.new if made else self.nodes[parent]).join is not None
            policy = self.draw(st.sampled_from(POLICIES_OF_JOINS if is_join else POLICIES))
            self.after[id].append(Edge(parent, policy))
            self.waits[id].add(parent)

    def go_before(self, id: bytes, children: Sequence[bytes]) -> None:
        """Let up to two of these jobs and joins wait for the job."""
        for child in self._some(children):
            if not self._is_circle(id, child) and child not in self.before[id]:
                self.before[id].append(child)
                self.waits.setdefault(child, set()).add(id)

    def _some(self, ids: Sequence[bytes]) -> list[bytes]:
        return self.draw(st.lists(st.sampled_from(ids), max_size=2, unique=True)) if ids else []

    def _is_circle(self, parent: bytes, child: bytes) -> bool:
        waited = self.waits.get(child, set())
        return parent in waited or child in self.model.waits_on([parent], self.waits)

    def jobs(self) -> tuple[NewJob, ...]:
        made = [
            NewJob(**{
                **{name: getattr(node, name) for name in node.__struct_fields__},
                "after": tuple(self.after[id]),
                "before": tuple(self.before[id]),
            })
            for id, node in self.nodes.items()
        ]  # fmt: skip
        return tuple(made[::-1] if self.draw(st.booleans()) else made)


class FlowMachine(FullMachine):
    """The rules of flows, beside those of workers, time and people."""

    actions: tuple[Action, ...] = (Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.DELETE)
    model: FlowModel
    resize = turn = take_all = take_from_one_lane = enqueue = refused = None  # type: ignore[assignment]  # no rules

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__(make_store)
        self.model = FlowModel()
        self.ledger = Ledger(self.model)
        self.batches: list[JobBatch] = []
        self.deleted: set[bytes] = set()
        self.seen: dict[bytes, JobRow] | None = None

    # ---- one step -----------------------------------------------------------------------------

    def call(self, data: st.DataObject, do: Callable[[Store], Coroutine[Any, Any, R]]) -> R:
        """One call, and the store after it, which decides where the contract leaves a choice."""
        self.seen = None
        said = super().call(data, do)
        self.see()
        return said

    def see(self) -> None:
        """Read the store once after each step."""
        self.seen = super().rows()
        joins = self.run(self.clients[1].joins(self.ids))
        self.model.truth = Truth(self.seen, {row.id: row for row in joins})

    def rows(self) -> dict[bytes, JobRow]:
        if self.seen is None:  # the call was refused
            self.see()
        assert self.seen is not None
        return self.seen

    def check(self) -> None:
        rows = self.rows()
        self.model.end()
        super().check()
        self.deleted |= set(self.ids) - rows.keys()
        said = self.model.truth.joins
        expected = {id: join.row(id) for id, join in self.model.joins.items()}
        assert said == expected, [(said.get(id), row) for id, row in expected.items() if said.get(id) != row]
        blocked = [job for job in self.model.jobs.values() if job.state is State.BLOCKED]
        assert not [job for job in blocked if self.model.is_stuck(job)]
        for job in blocked[len(rows) % len(blocked) :][:1] if blocked else ():
            assert self.run(self.clients[1].waits_for(job.new.id)) == edges_of(job)

    # ---- producers ----------------------------------------------------------------------------

    def send_batch(self, data: st.DataObject, n: int) -> None:
        """A new flow, or further jobs for those that are there."""
        if len(self.model.jobs) < MOST_JOBS:
            accepted = data.draw(st.booleans(), label="by a running job")
            jobs = data.draw(self.new_flow(n) if n > 2 else self.further_jobs(n))
            self.send(data, JobBatch(id=uuid4().bytes, jobs=jobs, accepted=accepted))

    def new_flow(self, n: int) -> st.SearchStrategy[tuple[NewJob, ...]]:
        @st.composite
        def flows(draw: st.DrawFn) -> tuple[NewJob, ...]:
            draft = FlowDraft(draw, self.model, self.names)
            root = draft.add(root=None, join=draw(joins)) if draw(st.booleans()) else None
            groups = [draft.add(root=root, join=draw(joins)) for _ in range(draw(st.integers(0, 2)))]
            made = [draft.add(root=root) for _ in range(n)]
            sets = ([root] if root is not None else []) + groups
            for id in (*groups, *made):
                draft.go_before(id, sets + self.waiting(joins_only=not one_in(draw, 6)))
                draft.wait_for(id, [*made, *groups, *self.recent()])
            self.names = draft.number
            return draft.jobs()

        return flows()

    def further_jobs(self, n: int) -> st.SearchStrategy[tuple[NewJob, ...]]:
        """Jobs that are added to one flow."""

        @st.composite
        def further(draw: st.DrawFn) -> tuple[NewJob, ...]:
            draft = FlowDraft(draw, self.model, self.names)
            ids = self.waiting(joins_only=not one_in(draw, 4)) if not one_in(draw, 6) else self.recent()
            to = draw(st.sampled_from(ids)) if ids else None
            root = None if to is None else self.root_of(self.model.jobs[to])
            for _ in range(n):
                id = draft.add(root=root, join=draw(joins) if one_in(draw, 6) else None)
                draft.go_before(id, [] if to is None else [to])
                draft.wait_for(id, self.recent() if one_in(draw, 2) else [])
            self.names = draft.number
            return draft.jobs()

        return further()

    def waiting(self, *, joins_only: bool) -> list[bytes]:
        """Blocked joins, and perhaps other blocked jobs."""
        blocked = [id for id, job in self.model.jobs.items() if job.state is State.BLOCKED]
        return [id for id in blocked if not joins_only or id in self.model.joins]

    def recent(self) -> list[bytes]:
        return [id for id in self.ids[-8:] if id in self.model.jobs]

    def root_of(self, job: ModelJob) -> bytes | None:
        """The root of the flow that the job belongs to, or that it is the root of."""
        if job.new.marks:
            return bytes.fromhex(job.new.marks[0][1:])
        return job.new.id if job.new.join is not None else None

    def send(self, data: st.DataObject, batch: JobBatch) -> None:
        self.ids += [job.id for job in batch.jobs if job.id not in self.ids]
        refused = None
        said = None
        try:
            said = self.call(data, lambda store: store.enqueue(batch))
        except REFUSED as error:
            refused = type(error)
        plan = self.model.plan_flow(batch.jobs, accepted=batch.accepted)
        if refused is not None:
            assert refused in plan.refusals, (refused, plan.refusals)
        else:
            assert said == plan.replies
            self.enqueued(plan)
            if batch not in self.batches:
                self.batches = [*self.batches[-5:], batch]
        self.check()

    def enqueued(self, plan: FlowPlanned) -> None:
        self.model.enqueue(plan)
        waiting = {child for job in plan.new for child in job.before}
        free = [job.id for job in plan.new if not job.after and job.join is None and job.id not in waiting]
        self.ledger.in_order = free

    @rule(data=st.data())
    def enqueue_after_nobody(self, data: st.DataObject) -> None:
        """All or nothing: the good job of the batch does not exist either."""
        jobs = data.draw(self.further_jobs(1))
        orphan = NewJob(id=uuid4().bytes, task=TASK, queue="a", after=(Edge(uuid4().bytes),))
        self.send(data, JobBatch(id=uuid4().bytes, jobs=(*jobs, orphan)))

    @rule(data=st.data())
    def repeat_batch(self, data: st.DataObject) -> None:
        """The reply was lost: the same batch again. A job that was deleted meanwhile would be made anew."""
        known = [batch for batch in self.batches if not self.deleted & {job.id for job in batch.jobs}]
        if known:
            batch = data.draw(st.sampled_from(known), label="again")
            self.send(data, JobBatch(id=batch.id, jobs=batch.jobs, retry=True, accepted=batch.accepted))

    # ---- workers ------------------------------------------------------------------------------

    def some_acks(self, data: st.DataObject, caller: WalkWorker) -> list[Ack]:
        """Mostly the ends of all jobs that it holds."""
        if data.draw(st.integers(0, 2), label="some") == 2:
            return super().some_acks(data, caller)
        return [data.draw(self.ack_of(lease)) for lease in self.held(caller)]

    def ack_of(self, lease: Lease) -> st.SearchStrategy[Ack]:
        return st.one_of(st.just(Ack.succeeded(lease, b"1")), ends(lease), acks(lease))

    @rule(data=st.data())
    def work(self, data: st.DataObject) -> None:
        """A worker ends most of what it holds and takes more, twice. The replies may be lost."""
        if not self.model.jobs:
            self.send_batch(data, 4)
        for _ in range(2):
            self.next_turn(data, [Want(LANES, 4)], data.draw(st.integers(0, 5), label="lost") < 5, 1, False)

    @rule(data=st.data())
    def start_and_work(self, data: st.DataObject) -> None:
        self.send_batch(data, 4)
        self.work(data)

    @rule(data=st.data())
    def add_and_work(self, data: st.DataObject) -> None:
        self.send_batch(data, 1)
        self.work(data)

    def caller(self, data: st.DataObject) -> WalkWorker:
        """Mostly the same one, so that it ends what it has claimed."""
        if data.draw(st.integers(0, 3), label="any worker") == 3:
            return super().caller(data)
        row = self.model.workers.get(self.callers[SLOTS[0]].name)
        if row is None or row.lost:
            self.register(SLOTS[0])
        return self.callers[SLOTS[0]]

    # ---- joins and flows ----------------------------------------------------------------------

    @rule(data=st.data())
    def close_join(self, data: st.DataObject) -> None:
        ids = [id for id, join in self.model.joins.items() if join.open] or list(self.model.jobs)[-3:]
        if ids:
            id = data.draw(st.sampled_from(ids), label="join")
            said = self.call(data, lambda store: store.close_join(id))
            expected = self.model.close_join(id)
            assert said == expected or (said is not None and expected is not None)
            self.check()
            assert said == (self.model.joins[id].row(id) if id in self.model.joins else None)

    @rule(data=st.data())
    def cancel_flow(self, data: st.DataObject) -> None:
        """A user cancels or deletes a flow: its root."""
        roots = [id for id in self.model.joins if self.model.flow_of(id)]
        if not roots:
            return
        id = data.draw(st.sampled_from(roots), label="root")
        action = data.draw(st.sampled_from((Action.CANCEL, Action.CANCEL, Action.DELETE)))
        self.do(data, action, id)
        if data.draw(st.booleans(), label="at once"):
            self.promote_after(data, 0)

    @rule(data=st.data())
    def revive_or_delete_dead(self, data: st.DataObject) -> None:
        """A user retries or deletes a dead job; if possible one for which another job waits."""
        dead = [id for id, job in self.model.jobs.items() if job.state is State.DEAD]
        waited = {id for job in self.model.jobs.values() for id in job.waits_for}
        if ids := [id for id in dead if id in waited] or dead:
            id = data.draw(st.sampled_from(ids), label="dead")
            self.do(data, data.draw(st.sampled_from((Action.RETRY, Action.RETRY, Action.DELETE))), id)

    def do(self, data: st.DataObject, action: Action, id: bytes) -> None:
        said = self.call(data, lambda store: store.act(action, Query(ids=(id,))))
        done = self.model.act(action, id)
        assert said.done == ((id,) if done is True else ())
        self.check()

    @rule(data=st.data(), whole=st.booleans())
    def retry_flow(self, data: st.DataObject, whole: bool) -> None:
        """The jobs of a flow that did not succeed run again, or some of them, some with fewer edges."""
        ended = [job for job in self.model.jobs.values() if job.state in (State.DEAD, State.CANCELLED)]
        if not ended:
            return
        root = self.root_of(data.draw(st.sampled_from(ended), label="job"))
        chosen = [job for job in ended if self.root_of(job) == root] if whole else self.some(data, ended)
        retries = self.retries_of(data, chosen)
        if data.draw(st.integers(0, 4), label="live") == 4:
            others = [job for id, job in self.model.jobs.items() if id not in {each.id for each in retries}]
            retries += self.retries_of(data, self.some(data, others))
        said = self.call(data, lambda store: store.retry_flow(retries))
        expected = self.model.retry_flow(retries)
        assert expected is not None
        assert set(said.done) == set(expected.done)
        assert set(said.refused) == set(expected.refused)
        self.check()

    def some(self, data: st.DataObject, jobs: list[ModelJob]) -> list[ModelJob]:
        if not jobs:
            return []
        ids = data.draw(st.lists(st.sampled_from([job.new.id for job in jobs]), max_size=4, unique=True))
        return [self.model.jobs[id] for id in ids]

    def retries_of(self, data: st.DataObject, jobs: list[ModelJob]) -> list[FlowRetry]:
        """With the edges that the jobs had, as long as their other ends are there and no circle is closed."""
        waits: dict[bytes, set[bytes]] = {}
        retries = []
        for job in jobs:
            id, after, before = job.new.id, list[Edge](), list[bytes]()
            for edge in job.new.after:
                if edge.parent in self.model.jobs and id not in self.model.waits_on([edge.parent], waits):
                    after.append(edge)
                    waits.setdefault(id, set()).add(edge.parent)
            for child in job.new.before:
                if child in self.model.jobs and child not in self.model.waits_on([id], waits):
                    before.append(child)
                    waits.setdefault(child, set()).add(id)
            retries.append(FlowRetry(id, tuple(after), tuple(before)))
        return retries[::-1] if data.draw(st.booleans(), label="reverse") else retries

    # ---- time ---------------------------------------------------------------------------------

    def promote_after(self, data: st.DataObject, after: int) -> None:
        """Promotions, until nothing is left to do now. A flow that is deleted is looked at once a second."""
        self.clock.advance(max(after, 2) if any(self.model.swept.values()) else after)
        said = self.call(data, self.promote_all)
        dues = {job.new.id: job.due or 0 for job in self.model.jobs.values()}
        self.model.expire()
        due = self.model.promote()
        self.model.sweep()
        assert said.now == self.model.now
        soonest = self.model.next_due()
        assert soonest is None or (said.next_due is not None and said.next_due <= soonest)
        self.ledger.by_due = [(dues[job.new.id], job.new.id) for job in due if job.state not in FINAL]
        self.check()

    async def promote_all(self, store: Store) -> PromoteResult:
        for _ in range(50):
            said = await store.promote()
            if said.next_due is None or said.next_due > said.now:
                return said
        raise AssertionError("promote never comes to an end")

    @rule(by=st.sampled_from((1, 13)))
    def move_clock(self, by: int) -> None:
        """Not back: that is for the other walks."""
        super().move_clock(by)

    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        """Prune until nothing is left to prune. It is a day later at times."""
        self.clock.advance(data.draw(st.sampled_from((0, 50_000, 90_000)), label="later"))
        ended = {id: row.finished or 0 for id, row in self.rows().items()}
        self.call(data, self.prune_all)
        self.model.prune(self.model.now - DAY, ended)
        self.check()

    async def prune_all(self, store: Store) -> None:
        for _ in range(50):
            if not await store.prune(RULES, limit=3):
                return
        raise AssertionError("prune never comes to an end")

    # ---- the end ------------------------------------------------------------------------------

    @rule(data=st.data())
    def finish_all(self, data: st.DataObject) -> None:
        """Close, work and wait until nothing moves: what is left waits for dead jobs that may be retried by hand."""
        for _ in range(100):
            live = [job for job in self.model.jobs.values() if job.state not in FINAL]
            if not any(self.moves(job) for job in live):
                break
            self.finish_some(data)
        left = [job for job in self.model.jobs.values() if job.state not in FINAL]
        assert all(self.waits_for_the_dead(job) for job in left), left

    def moves(self, job: ModelJob) -> bool:
        return job.state is not State.BLOCKED or (job.new.id in self.model.joins and self.model.joins[job.new.id].open)

    def finish_some(self, data: st.DataObject) -> None:
        for id in [id for id, join in self.model.joins.items() if join.open]:
            self.call(data, lambda store, id=id: store.close_join(id))  # type: ignore[misc]  # bound now
            self.model.close_join(id)
            self.check()
        self.promote_after(data, 4000)
        for slot, caller in list(self.callers.items()):
            row = self.model.workers.get(caller.name)
            if row is None or row.lost:
                self.register(slot)
        for caller in self.callers.values():
            self.end_all_of(data, caller)

    def end_all_of(self, data: st.DataObject, caller: WalkWorker) -> None:
        """One turn ends what the worker holds and claims; the next ends that."""
        for n in (20, 0):
            caller.number += 1
            done = tuple(Ack.succeeded(lease, b"1") for lease in self.held(caller))
            wants = (Want(LANES, n),) if n else ()
            caller.last = Turn(
                worker=caller.name, number=caller.number, seen=caller.seen, acks=done, wants=wants, suspects=5
            )
            self.take_turn(data, caller.last)
            caller.seen = caller.number

    def waits_for_the_dead(self, job: ModelJob) -> bool:
        """Whether the job waits for a dead job that may be retried, directly or not."""
        waited = [self.model.jobs[id] for id in self.model.waits_on([job.new.id], {})]
        return any(each.state is State.DEAD for each in waited)


joins = st.builds(Join, open=st.integers(0, 2).map(lambda n: n == 2), lenient=st.booleans())
