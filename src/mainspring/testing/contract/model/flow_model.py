"""The model of flows: edges with policies, joins with counts, flows that are cancelled, deleted, pruned and retried.

Where several causes end a job in one step (two of its parents end in one turn, or it expires together with a parent),
the contract leaves open which cause comes first. Then the model reads which one the store chose (``truth``), and checks
that this cause was among them. A job that ends and is deleted in one step leaves no such trace: then its joins and
children show how it had ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from mainspring.errors import FlowClosed, StoreConflict
from mainspring.jobs.query import flow_mark
from mainspring.jobs.records import FLOW_KEEP, ActResult, Edge, Enqueued, FlowRetry, JobRow, JoinRow, NewJob
from mainspring.states import FINAL, Reason, State

from .model import Model
from .model_records import ModelJob, Planned

Count = Literal["succeeded", "dead", "cancelled", "bypassed"]
COUNTS: tuple[Count, ...] = ("succeeded", "dead", "cancelled", "bypassed")
MEMBER = "member"
NATURAL_ENDS = ((State.SUCCEEDED, None), (State.CANCELLED, Reason.PARENT))
"""How a join ends by its members."""


class FlowEnding(NamedTuple):
    """How a parent ended, for its children."""

    state: State
    reason: Reason | None
    died: bool
    """The parent is dead, or is a join with a dead member."""

    @property
    def good(self) -> bool:
        return self.state is State.SUCCEEDED or self.reason is Reason.BYPASSED

    @property
    def counts_as(self) -> Count:
        if self.good:
            return "bypassed" if self.reason is Reason.BYPASSED else "succeeded"
        return "dead" if self.died else "cancelled"


@dataclass
class ModelJoin:
    """The counts of a join."""

    open: bool
    lenient: bool
    total: int = 0
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    bypassed: int = 0

    def row(self, id: bytes) -> JoinRow:
        counts = {count: getattr(self, count) for count in COUNTS}
        return JoinRow(id=id, open=self.open, total=self.total, **counts)

    @property
    def is_bad(self) -> bool:
        return not self.lenient and self.dead + self.cancelled > 0


@dataclass
class FlowPlanned(Planned):
    accepted: bool = False


@dataclass
class Truth:
    """The store after the step: where the model has a choice, it follows the store."""

    rows: Mapping[bytes, JobRow] = field(default_factory=dict)
    joins: Mapping[bytes, JoinRow] = field(default_factory=dict)


class FlowModel(Model):
    """Jobs without unique keys, follow-up jobs and limits, and all of flows."""

    def __init__(self) -> None:
        super().__init__()
        self.joins: dict[bytes, ModelJoin] = {}
        self.swept: dict[bytes, bool] = {}
        """Roots whose flow a promotion has to cancel, or (true) delete."""
        self.truth = Truth()
        self._before: dict[bytes, JoinRow] = {}
        """The counts at the beginning of the step."""
        self._open_ends: dict[bytes, tuple[State, Reason | None]] = {}
        """Jobs that the store ended by another cause than the model: it must find that cause in this step."""
        self._left: dict[bytes, list[bytes]] = {}
        """Joins that ended in this step, perhaps by another cause than their members, with the members that were not
        counted."""
        self._is_sweeping = False
        self._loose: set[bytes] = set()
        """Joins of which a member ended and was deleted in this step: it is open how it ended."""

    # ---- steps --------------------------------------------------------------------------------

    def begin(self, now: int) -> None:
        super().begin(now)
        self.truth = Truth()
        self._before = {id: join.row(id) for id, join in self.joins.items()}
        self._open_ends, self._left, self._loose = {}, {}, set()

    def end(self) -> None:
        """The step is over: every end has its cause, and what the contract leaves open is taken from the store."""
        found = [(self.jobs[id], end) for id, end in self._open_ends.items() if id in self.jobs]
        unexplained = [(job, end) for job, end in found if (job.state, job.reason) != end]
        assert not unexplained, f"ended without a cause: {unexplained}"
        for id, left in self._left.items():
            if id in self.joins and id in self.truth.joins:
                self._adopt_counts(id, left)
        for id in self._loose & self.joins.keys() & self.truth.joins.keys():
            counted, said = self.joins[id].row(id), self.truth.joins[id]
            assert id in self._left or counted.pending == said.pending, (counted, said)
            self._adopt_counts(id, [*self._left.get(id, ()), *[b""] * counted.total])
        self._open_ends, self._left, self._loose = {}, {}, set()

    def _adopt_counts(self, id: bytes, left: Sequence[bytes]) -> None:
        """Members that end in the same step as their join, which ends by another cause, may be counted or not."""
        join, said, before = self.joins[id], self.truth.joins[id], self._before.get(id)
        ended = sum(each not in self.jobs or self.jobs[each].state in FINAL for each in left)
        for count in COUNTS:
            least, value = getattr(before, count, 0), getattr(said, count)
            assert least <= value <= getattr(join, count) + ended, (count, said, join, before)
            setattr(join, count, value)

    def _chosen(self, job: ModelJob, state: State, reason: Reason | None) -> bool:
        """Whether the store ended the waiting job by this cause."""
        row = self.truth.rows.get(job.new.id)
        if row is None or row.state not in FINAL or (row.state, row.reason) == (state, reason):
            return True
        self._open_ends[job.new.id] = row.state, row.reason
        return False

    # ---- enqueue ------------------------------------------------------------------------------

    def plan_flow(self, jobs: Sequence[NewJob], *, accepted: bool) -> FlowPlanned:
        """What this batch would do; nothing is done yet."""
        plan = FlowPlanned(accepted=accepted)
        for job in jobs:
            plan.replies.append(Enqueued(job.id, job.id not in self.jobs))
            plan.new += [] if job.id in self.jobs else [job]
        new = {job.id for job in plan.new}
        for job in plan.new:
            if any(edge.parent not in self.jobs and edge.parent not in new for edge in job.after):
                plan.refusals.add(StoreConflict)
            for child in job.before:
                if child not in new and not self._takes(child, accepted=accepted):
                    plan.refusals |= {FlowClosed} if child in self.jobs else {FlowClosed, StoreConflict}
        return plan

    def _takes(self, child: bytes, *, accepted: bool) -> bool:
        """Whether the job waits, and accepts one more job to wait for."""
        job = self.jobs.get(child)
        if job is None or job.state is not State.BLOCKED:
            return False
        return child not in self.joins or accepted or self.joins[child].open

    def enqueue(self, plan: Planned) -> None:
        assert not plan.refusals
        for new in plan.new:
            job = self.jobs[new.id] = self._made(new)
            if new.join is not None:
                job.due = None
                self.joins[new.id] = ModelJoin(new.join.open, new.join.lenient)
        self._link(plan.new)

    def _link(self, jobs: Sequence[NewJob | FlowRetry]) -> None:
        """Add the edges of jobs that are new or were retried, then end them or let them go."""
        for job in jobs:
            for child in dict.fromkeys(job.before):
                if child in self.jobs and self.jobs[child].state is State.BLOCKED:
                    self._add_parent(job.id, child)
        ends = {job.id: reasons for job in jobs if (reasons := self._wait_for(job))}
        for job in jobs:
            made = self.jobs[job.id]
            if job.id not in ends and job.id not in self.joins and not made.waits_for:
                self._unblock(made)
        for id, reasons in ends.items():
            chosen = Reason.PARENT if Reason.PARENT in reasons else reasons[0]
            self._end_waiting(self.jobs[id], State.CANCELLED, chosen)
        for job in jobs:
            if job.id in self.joins:
                self._settle_join(job.id)

    def _add_parent(self, parent: bytes, child: bytes) -> None:
        is_join = child in self.joins
        if parent not in self.jobs[child].waits_for:
            self.jobs[child].waits_for[parent] = MEMBER if is_join else "fail"
            if is_join:
                self.joins[child].total += 1

    def _wait_for(self, job: NewJob | FlowRetry) -> list[Reason]:
        """Add the edges to parents. Returns the reasons for which parents that ended before end the job."""
        waits: dict[bytes, str] = {}
        reasons: list[Reason] = []
        for edge in job.after:
            parent = self.jobs[edge.parent]
            if parent.state not in FINAL:
                verdict = "release" if edge.policy == "dead" and self._died(edge.parent) else "keep"
            else:
                verdict = verdict_of(edge.policy, FlowEnding(parent.state, parent.reason, self._died(edge.parent)))
            if verdict == "keep":
                waits.setdefault(edge.parent, edge.policy)
            elif isinstance(verdict, Reason):
                reasons.append(verdict)
        if not reasons:
            self.jobs[job.id].waits_for = {**waits, **self.jobs[job.id].waits_for}
        return reasons

    # ---- ends ---------------------------------------------------------------------------------

    def _died(self, id: bytes) -> bool:
        job = self.jobs[id]
        return self.joins[id].dead > 0 if id in self.joins else job.state is State.DEAD

    def _finish(self, job: ModelJob, state: State, reason: Reason | None) -> None:
        """From the base: a running job ends, or a waiting job by a user or because it has expired."""
        if job.state is State.RUNNING:
            self._end(job, state, reason)
        else:
            self._end_waiting(job, state, reason)

    def _end_waiting(self, job: ModelJob, state: State, reason: Reason | None) -> None:
        """A waiting job ends by another cause than the end of its members."""
        if job.state in FINAL or not self._chosen(job, state, reason):
            return
        id = job.new.id
        if id in self.joins:
            self.joins[id].open = False
            self._sweep(id, deleted=False)
        self._end(job, state, reason)

    def _end(self, job: ModelJob, state: State, reason: Reason | None, *, by_members: bool = False) -> None:
        id = job.new.id
        left = [parent for parent, policy in job.waits_for.items() if policy == MEMBER]
        job.state, job.reason, job.ordered, job.due, job.waits_for = state, reason, False, None, {}
        died = state is State.DEAD
        if id in self.joins:
            said = self.truth.joins.get(id)
            died = self._died(id)
            if not by_members or job.new.after or {*map(flow_mark, self.swept)} & {*job.new.marks}:
                self._left[id] = left
                died = died if said is None else said.dead > 0
        self._tell(id, FlowEnding(state, reason, died))

    def _tell(self, parent: bytes, ending: FlowEnding) -> None:
        """Resolve the edges of the children."""
        is_open = self._is_sweeping and parent not in self.truth.rows
        for id, child in list(self.jobs.items()):
            policy = child.waits_for.get(parent)
            if policy is None or child.state is not State.BLOCKED:
                continue
            if policy == MEMBER:
                del child.waits_for[parent]
                self._loose |= {id} if is_open else set()
                self._count(id, ending)
                continue
            verdict = verdict_of(policy, ending)
            if is_open and id in self.truth.rows:
                verdict = self._verdict_seen(id, policy)
            if verdict == "keep":
                continue
            del child.waits_for[parent]
            if isinstance(verdict, Reason):
                self._end_waiting(child, State.CANCELLED, verdict)
            else:
                self._released(child)

    def _verdict_seen(self, id: bytes, policy: str) -> Literal["release", "keep"] | Reason:
        """What a parent that left no trace has done to its child, which is there."""
        row = self.truth.rows[id]
        ways = ((state, reason, died) for state, reason in NATURAL_ENDS for died in (False, True))
        verdicts = [verdict_of(policy, FlowEnding(*way)) for way in ways]
        reasons = [each for each in verdicts if isinstance(each, Reason) and each is row.reason]
        return reasons[0] if reasons else "release" if "release" in verdicts else verdicts[0]

    def _released(self, child: ModelJob) -> None:
        """The child waits for one job less."""
        if child.new.id in self.joins:
            self._settle_join(child.new.id)
        elif not child.waits_for and child.new.id not in self._open_ends:
            self._unblock(child)

    def _count(self, id: bytes, ending: FlowEnding) -> None:
        """A member has ended."""
        join = self.joins[id]
        setattr(join, ending.counts_as, getattr(join, ending.counts_as) + 1)
        if ending.counts_as == "dead" and join.dead == 1:
            self._first_death(id)
        self._settle_join(id)

    def _first_death(self, id: bytes) -> None:
        for child in list(self.jobs.values()):
            if child.state is State.BLOCKED and child.waits_for.get(id) == "dead":
                del child.waits_for[id]
                self._released(child)

    def _settle_join(self, id: bytes) -> None:
        """A join ends when it is closed and waits for nothing."""
        join, job = self.joins[id], self.jobs[id]
        if job.state is not State.BLOCKED or join.open or job.waits_for:
            return
        state, reason = (State.CANCELLED, Reason.PARENT) if join.is_bad else (State.SUCCEEDED, None)
        seen = self.truth.rows.get(id)
        if id in self._loose and seen is not None and (seen.state, seen.reason) in NATURAL_ENDS:
            state, reason = seen.state, seen.reason
        if self._chosen(job, state, reason):
            self._end(job, state, reason, by_members=True)

    # ---- flows --------------------------------------------------------------------------------

    def close_join(self, id: bytes) -> JoinRow | None:
        if id not in self.joins:
            return None
        self.joins[id].open = False
        self._settle_join(id)
        return self.joins[id].row(id)

    def flow_of(self, root: bytes) -> list[ModelJob]:
        """The jobs of a flow, without the root."""
        mark = flow_mark(root)
        return [job for id, job in self.jobs.items() if mark in job.new.marks and id != root]

    def _sweep(self, root: bytes, *, deleted: bool) -> None:
        if self.flow_of(root):
            self.swept[root] = deleted or self.swept.get(root, False)

    def sweep(self) -> None:
        """What promotions do for the flows whose root was cancelled or deleted, until nothing is left to do."""
        self._is_sweeping = True
        while any(self._sweep_once(root, deleted=deleted) for root, deleted in list(self.swept.items())):
            pass  # the first flow that changes is walked again, then the next
        self._is_sweeping = False
        for root, deleted in list(self.swept.items()):
            if not deleted or not self.flow_of(root):
                del self.swept[root]

    def _sweep_once(self, root: bytes, *, deleted: bool) -> bool:
        changed = False
        for job in self.flow_of(root):
            if job.state is State.RUNNING:
                changed |= not job.ordered
                job.ordered = True
            elif job.waiting:
                self._end_waiting(job, State.CANCELLED, Reason.PARENT)
                changed |= not job.waiting
            elif deleted and job.state in FINAL and job.new.id in self.jobs:
                self._delete(job)
                changed = True
        return changed

    def prune(self, before: int, ended: Mapping[bytes, int]) -> None:
        """Delete what ended before that moment. ``ended``: when each job ended."""
        old = [job for id, job in self.jobs.items() if job.state in FINAL and ended[id] < before]
        for job in [job for job in old if job.new.keep != FLOW_KEEP]:
            id = job.new.id
            if any(each.state not in FINAL for each in self.flow_of(id)):
                continue
            for each in self.flow_of(id) if id in self.joins else ():
                self._delete(each)
            self._delete(job)
            self.swept.pop(id, None)

    def retry_flow(self, retries: Sequence[FlowRetry]) -> ActResult | None:
        """None: a parent does not exist."""
        chosen: dict[bytes, FlowRetry] = {}
        refused: list[tuple[bytes, State]] = []
        first: dict[bytes, FlowRetry] = {}
        for retry in retries:
            first.setdefault(retry.id, retry)
        for retry in first.values():
            job = self.jobs.get(retry.id)
            if job is not None:
                if job.state in (State.DEAD, State.CANCELLED):
                    chosen[retry.id] = retry
                else:
                    refused.append((retry.id, job.state))
        if any(edge.parent not in self.jobs for retry in chosen.values() for edge in retry.after):
            return None
        for id in chosen:
            self._revive(id)
        self._link(list(chosen.values()))
        return ActResult(tuple(chosen), tuple(refused))

    def _revive(self, id: bytes) -> None:
        job = self.jobs[id]
        job.state, job.reason, job.expires, job.due = State.BLOCKED, None, None, None
        job.attempt = job.crashes = 0
        job.epoch += 1
        if id in self.joins:
            join = self.joins[id]
            join.open, join.total, join.dead, join.cancelled = False, join.succeeded + join.bypassed, 0, 0
            self.swept.pop(id, None)
            self._before.pop(id, None)

    # ---- by hand ------------------------------------------------------------------------------

    def _retry(self, job: ModelJob) -> bool | bytes:
        return False if job.new.id in self.joins else super()._retry(job)

    def _delete(self, job: ModelJob) -> bool:
        if job.state is State.RUNNING:
            return False
        id = job.new.id
        ending = FlowEnding(State.CANCELLED, None, id in self.joins and self._died(id))
        del self.jobs[id]
        if self.joins.pop(id, None) is not None:
            self._sweep(id, deleted=True)
        self._tell(id, ending)
        return True

    # ---- graphs -------------------------------------------------------------------------------

    def waits_on(self, ids: Iterable[bytes], more: Mapping[bytes, set[bytes]]) -> set[bytes]:
        """These jobs and all jobs that they wait for, directly or not; ``more`` has edges that are not there yet."""
        found: set[bytes] = set()
        left = list(ids)
        while left:
            id = left.pop()
            if id not in found:
                found.add(id)
                left += more.get(id, ())
                left += self.jobs[id].waits_for if id in self.jobs else ()
        return found

    def is_stuck(self, job: ModelJob) -> bool:
        """Whether a blocked job waits for something that will not come."""
        if job.new.id in self.joins and self.joins[job.new.id].open:
            return False
        parents = [(self.jobs.get(id), policy) for id, policy in job.waits_for.items()]
        return not parents or any(
            parent is None or (parent.state in FINAL and not (parent.state is State.DEAD and policy == "wait"))
            for parent, policy in parents
        )


def verdict_of(policy: str, parent: FlowEnding) -> Literal["release", "keep"] | Reason:
    """What the end of a parent does to its child: the child is released, keeps waiting, or ends for a reason."""
    match policy:
        case "dead":
            return "release" if parent.died else Reason.BYPASSED
        case "failed":
            return Reason.BYPASSED if parent.good else "release"
        case _ if parent.good or policy == "ignore":
            return "release"
        case "skip":
            return Reason.BYPASSED
        case "wait" if parent.state is State.DEAD:
            return "keep"
    return Reason.PARENT


def edges_of(job: ModelJob) -> list[Edge]:
    """The unresolved edges of a job, as :meth:`Store.waits_for` returns them."""
    policies = {id: "fail" if policy == MEMBER else policy for id, policy in job.waits_for.items()}
    return [Edge(id, policy) for id, policy in sorted(policies.items())]  # type: ignore[arg-type]  # a policy
