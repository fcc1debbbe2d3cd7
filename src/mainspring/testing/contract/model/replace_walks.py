"""Random walks over unique keys under which the newest enqueue replaces the waiting job, and their model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import rule

from mainspring.errors import QueueDraining, StoreConflict
from mainspring.jobs.records import Edge, Enqueued, NewJob, UniqueKey
from mainspring.queues.records import QueueMode
from mainspring.states import FINAL, Action, State
from mainspring.testing.contract.fixtures import MakeStore
from mainspring.worker.records import Turn

from .compare import Ledger
from .draws import QUEUES, SECOND, TASK, one_in
from .key_walks import KeyedMachine
from .model import Model
from .model_records import ModelJob, Planned

MODES: tuple[Literal["debounce", "throttle", "keep_last"], ...] = ("debounce", "throttle", "keep_last")


@dataclass
class Taker:
    """Of a key: the job that took it last, and the one before it that was started."""

    job: bytes
    before: bytes | None = None


@dataclass
class LatestPlan(Planned):
    replaced: dict[bytes, NewJob] = field(default_factory=dict)
    """What the jobs that wait are to be from now on."""
    takers: dict[bytes, Taker] = field(default_factory=dict)


class LatestModel(Model):
    """The model of jobs with keys under which the newest enqueue replaces the waiting job, and of plain jobs."""

    def __init__(self) -> None:
        super().__init__()
        self.takers: dict[bytes, Taker] = {}
        self.started: dict[bytes, int] = {}
        self.enqueued: dict[bytes, int] = {}

    def plan(self, jobs: Sequence[NewJob]) -> LatestPlan:
        """One after the other: one that comes later replaces what an earlier one has made or replaced."""
        plan = LatestPlan()
        for job in jobs:
            if job.id in self.jobs:
                plan.replies.append(Enqueued(job.id, False))
                continue
            if self.modes.get(job.queue) is QueueMode.DRAINING:
                plan.refusals.add(QueueDraining)
            self._plan_one(plan, job)
        here = self.jobs.keys() | {job.id for job in plan.new}
        if any(edge.parent not in here for job in plan.new for edge in job.after):
            plan.refusals.add(StoreConflict)
        return plan

    def _plan_one(self, plan: LatestPlan, job: NewJob) -> None:
        unique = job.unique
        if unique is None:
            plan.new.append(job)
            plan.replies.append(Enqueued(job.id, True))
        elif unique.hash in plan.takers:
            self._say_again(plan, plan.takers[unique.hash].job, job)
        else:
            last = self.takers.get(unique.hash)
            plan.late += self._late(last)
            if last is not None and self._stands(last.job) and last.job not in plan.late:
                plan.takers[unique.hash] = last
                self._say_again(plan, last.job, job)
                return
            before = None if last is None else self._before(last, plan.late)
            plan.takers[unique.hash] = Taker(job.id, before if unique.mode != "debounce" else None)
            plan.new.append(job)
            plan.replies.append(Enqueued(job.id, True))

    def _say_again(self, plan: LatestPlan, id: bytes, job: NewJob) -> None:
        own = msgspec.structs.replace(job, id=id)
        made = [each.id for each in plan.new]
        if id in made:
            plan.new[made.index(id)] = own
        else:
            plan.replaced[id] = own
        plan.replies.append(Enqueued(id, False))

    def enqueue(self, plan: Planned) -> None:
        assert isinstance(plan, LatestPlan)
        super()._end_late(plan.late)
        self.takers |= plan.takers
        behind = {taker.job: taker.before for taker in plan.takers.values()}
        placed = [self._placed(job, behind.get(job.id)) for job in plan.new]
        for id, job in plan.replaced.items():
            self._replace(self.jobs[id], job)
        super().enqueue(Planned(new=placed))
        for job in placed:
            self.enqueued[job.id] = self.now

    def _placed(self, job: NewJob, before: bytes | None) -> NewJob:
        unique = job.unique
        if unique is None:
            return job
        if unique.mode == "debounce":
            return msgspec.structs.replace(job, run_at=self.now + unique.window)
        if before is not None and unique.mode == "throttle" and before in self.started:
            return msgspec.structs.replace(job, run_at=min(self.started[before], self.now) + unique.window)
        if before is not None and unique.mode == "keep_last" and self._lives(before):
            return msgspec.structs.replace(job, after=(Edge(before, "ignore"),))
        return job

    def _replace(self, job: ModelJob, new: NewJob) -> None:
        unique = new.unique
        assert unique is not None
        due = self.now + new.delay
        if unique.mode == "debounce":
            latest = self.enqueued[new.id] + unique.max_wait
            due = min(self.now + unique.window, latest) if unique.max_wait else self.now + unique.window
        elif unique.mode == "throttle":
            due = job.due or 0
        job.new, job.due = new, due if due > self.now else None
        job.expires = None if new.expires_in is None else self.now + new.expires_in
        if job.state is not State.BLOCKED and not (job.state is State.READY and job.due is None):
            self._unblock(job)

    # ---- who stands for a key -----------------------------------------------------------------

    def _lives(self, id: bytes) -> bool:
        return id in self.jobs and self.jobs[id].state not in FINAL

    def _stands(self, id: bytes) -> bool:
        """It waits and was never started."""
        return self._lives(id) and self.jobs[id].waiting and self.jobs[id].token == 0

    def _late(self, last: Taker | None) -> list[bytes]:
        if last is None or not self._lives(last.job):
            return []
        return [last.job] if self.jobs[last.job].waiting and self._expired(self.jobs[last.job]) else []

    def _before(self, last: Taker, late: Sequence[bytes]) -> bytes | None:
        """The job that a new one comes after: the last one if it was started, else the one before that."""
        found = self.jobs.get(last.job)
        mode = None if found is None or found.new.unique is None else found.new.unique.mode
        over = found is None or found.state in FINAL or last.job in late
        began = found is not None and found.token > 0 and not (over and mode == "keep_last")
        return last.job if began else last.before if last.before in self.jobs else None

    # ---- what else they hear of ----------------------------------------------------------------

    def _hand_out(self, turn: Turn) -> list[ModelJob]:
        claims = super()._hand_out(turn)
        self.started |= {job.new.id: self.now for job in claims}
        return claims

    def _retry(self, job: ModelJob) -> bool | bytes:
        unique = job.new.unique
        if job.state not in FINAL or unique is None:
            return super()._retry(job)
        last = self.takers.get(unique.hash)
        self._end_late(self._late(last))
        if last is not None:
            rivals = (last.job, *([last.before] if last.before and unique.mode == "keep_last" else []))
            for rival in rivals:
                if rival != job.new.id and self._lives(rival):
                    return rival
        if last is None or last.job != job.new.id:
            self.takers[unique.hash] = Taker(job.new.id)
        self.started.pop(job.new.id, None)
        job.new = msgspec.structs.replace(job.new, unique=None)
        done = super()._retry(job)
        job.new = msgspec.structs.replace(job.new, unique=unique)
        return done

    def _delete(self, job: ModelJob) -> bool:
        done = super()._delete(job)
        if done:
            self.started.pop(job.new.id, None)
            for key, last in list(self.takers.items()):
                if last.job == job.new.id:
                    del self.takers[key]
                    if last.before is not None and last.before in self.jobs:
                        self.takers[key] = Taker(last.before)
        return done


@st.composite
def latest_jobs(draw: st.DrawFn, number: int, parents: Sequence[bytes]) -> NewJob:
    """Few keys, each in a queue of its own; and plain jobs that wait for them."""
    which = draw(st.integers(0, 3))
    if which == 3:
        chosen = [draw(st.sampled_from(parents))] if parents and one_in(draw, 2) else []
        after = tuple(Edge(id, draw(st.sampled_from(("fail", "ignore")))) for id in chosen)
        return NewJob(id=number.to_bytes(6) + bytes(10), task=TASK, queue=draw(st.sampled_from(QUEUES)), after=after)
    mode = MODES[which]
    window, max_wait = (0, 0) if mode == "keep_last" else (4 * SECOND, 0)
    if mode == "debounce" and one_in(draw, 2):
        max_wait = 6 * SECOND
    return NewJob(
        id=number.to_bytes(6) + bytes(10),
        task=TASK,
        queue=QUEUES[which % 2],
        priority=draw(st.sampled_from((0, 0, 1))),
        delay=5 * SECOND if mode == "keep_last" and one_in(draw, 4) else 0,
        expires_in=12 * SECOND + 1 if one_in(draw, 6) else None,
        crashes=draw(st.sampled_from((3, 1))),
        early=one_in(draw, 6),
        record=b"%d" % number,
        unique=UniqueKey(mode.encode().ljust(16), window, mode=mode, max_wait=max_wait),
    )


class LatestMachine(KeyedMachine):
    """``walk(LatestMachine, make_store)``"""

    actions = (Action.CANCEL, Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE)
    draw_job = staticmethod(latest_jobs)

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__(make_store)
        self.model = LatestModel()
        self.ledger = Ledger(self.model)

    def made(self) -> list[NewJob]:
        """Plain ones: in a batch with a repeat all that share its key are repeats."""
        self.names += 1
        plain = [new for new in super().made() if new.unique is None]
        return plain or [NewJob(id=self.names.to_bytes(6) + bytes(10), task=TASK, queue=QUEUES[0])]

    @rule(by=st.sampled_from((1, 13)))
    def move_clock(self, by: int) -> None:
        """Not back: engines differ in when a job started that was enqueued later than that."""
        super().move_clock(by)
