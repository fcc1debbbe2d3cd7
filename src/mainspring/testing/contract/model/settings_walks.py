"""Random walks over the settings of queues (order, depth, disabled), and their model."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID, uuid4

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from mainspring.errors import QueueDisabled, QueueFull
from mainspring.jobs.records import Edge, FollowUp, JobBatch, NewJob
from mainspring.queues.records import DisabledMode, QueueMode, QueueSettings
from mainspring.states import Action, Reason, State
from mainspring.testing.contract.fixtures import MakeStore
from mainspring.worker.records import Want

from .compare import Ledger
from .draws import LANES, QUEUES, SECOND, TASK, one_in
from .key_walks import KeyedMachine
from .model import Model
from .model_records import ModelJob, Planned

SETTINGS = (
    QueueSettings(),
    QueueSettings(order="lifo"),
    QueueSettings(max_depth=3),
    QueueSettings(max_depth=3, on_full="drop_oldest"),
    QueueSettings(max_depth=5, on_full="drop_oldest", order="lifo"),
)


@dataclass
class SettledPlan(Planned):
    drops: Counter[str] = field(default_factory=Counter)
    """How many have to go, by queue."""


class SettledModel(Model):
    """Plain jobs in queues with settings."""

    def __init__(self, dropped: Callable[[], set[bytes]]) -> None:
        """``dropped``: the jobs that the store dropped in the current step because their queue was full."""
        super().__init__()
        self.settings: dict[str, QueueSettings] = {}
        self.disabled: dict[str, DisabledMode] = {}
        self.stacked: dict[bytes, bool] = {}
        """Whether a job goes by the newest first."""
        self.enqueued: dict[bytes, int] = {}
        self.accepted = False
        """The batch that comes next is refused for no depth."""
        self._dropped = dropped

    def _made(self, new: NewJob) -> ModelJob:
        self.stacked[new.id] = self.settings.get(new.queue, QueueSettings()).order == "lifo"
        self.enqueued[new.id] = self.now
        return super()._made(new)

    def plan(self, jobs: Sequence[NewJob]) -> SettledPlan:
        found = super().plan(jobs)
        plan = SettledPlan(found.replies, found.new, refusals=found.refusals)
        for queue, n in Counter(job.queue for job in plan.new).items():
            how, settings = self.disabled.get(queue), self.settings.get(queue, QueueSettings())
            if how is DisabledMode.REJECT:
                plan.refusals.add(QueueDisabled)
            waiting = len(self._waiting(queue))
            if not settings.max_depth or how is DisabledMode.SKIP or self.accepted or waiting + n <= settings.max_depth:
                continue
            if settings.on_full == "drop_oldest" and waiting + n - settings.max_depth <= waiting:
                plan.drops[queue] = waiting + n - settings.max_depth
            else:
                plan.refusals.add(QueueFull)
        return plan

    def enqueue(self, plan: Planned) -> None:
        assert isinstance(plan, SettledPlan)
        before = {queue: self._waiting(queue) for queue in plan.drops}
        super().enqueue(plan)
        for new in plan.new:
            if self.disabled.get(new.queue) is DisabledMode.SKIP:
                self._finish(self.jobs[new.id], State.CANCELLED, Reason.SKIPPED)
        dropped = self._dropped() if plan.drops else set()
        for queue, n in plan.drops.items():
            gone = [job for job in before[queue] if job.new.id in dropped]
            left = [job for job in before[queue] if job.new.id not in dropped]
            assert len(gone) == n, f"{len(gone)} had to make room in {queue}, not {n}"
            newest = max(self.enqueued[job.new.id] for job in gone)
            assert all(self.enqueued[job.new.id] >= newest for job in left), "an older one was left"
            for job in gone:
                self._finish(job, State.CANCELLED, Reason.SUPERSEDED)

    def _waiting(self, queue: str) -> list[ModelJob]:
        return [job for job in self.jobs.values() if job.new.queue == queue and job.waiting]

    def _may_run(self, job: ModelJob, want: Want) -> bool:
        return job.new.queue not in self.disabled and super()._may_run(job, want)


class SettledLedger(Ledger):
    """The positions of lifo jobs fall instead of growing."""

    def __init__(self, model: SettledModel) -> None:
        super().__init__(model)
        self._stacked = model.stacked
        self._bottom = math.inf

    def _placed(self, fresh: dict[bytes, ModelJob]) -> None:
        stack = [job.seq for id, job in fresh.items() if self._stacked[id]]
        line = [job.seq for id, job in fresh.items() if not self._stacked[id]]
        assert all(place < min([self._bottom, *line]) for place in stack), "one does not stand before all others"
        assert all(place > self.top for place in line), f"one is not behind {self.top}"
        self._bottom, self.top = min([self._bottom, *stack, *line]), max([self.top, *stack, *line])

    def _line(self, job: ModelJob) -> tuple[bool, int]:
        """A position in the lane, growing in the order of arrival."""
        stack = self._stacked[job.new.id]
        return stack, -job.seq if stack else job.seq


@st.composite
def settled_jobs(draw: st.DrawFn, number: int, parents: Sequence[bytes]) -> NewJob:
    """Plain ones, some that wait for others, some that others follow."""
    chosen = [draw(st.sampled_from(parents))] if parents and one_in(draw, 4) else []
    id = UUID(int=(number << 80) | (7 << 76) | (2 << 62)).bytes
    queue = draw(st.sampled_from(QUEUES))
    follow = NewJob(id=id[:13] + bytes([1, 0, 0]), task=TASK, queue=queue, record=b"%d after" % number)
    return NewJob(
        id=id,
        task=TASK,
        queue=queue,
        priority=draw(st.sampled_from((0, 0, 1))),
        delay=5 * SECOND if one_in(draw, 5) else 0,
        expires_in=12 * SECOND + 1 if one_in(draw, 6) else None,
        crashes=draw(st.sampled_from((3, 1))),
        record=b"%d" % number,
        after=tuple(Edge(each, "ignore") for each in chosen),
        follows=(FollowUp(State.SUCCEEDED, follow),) if one_in(draw, 5) else (),
    )


class SettledMachine(KeyedMachine):
    """``walk(SettledMachine, make_store)``"""

    actions = (Action.CANCEL, Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE)
    draw_job = staticmethod(settled_jobs)

    def __init__(self, make_store: MakeStore) -> None:
        super().__init__(make_store)
        self.model: SettledModel = SettledModel(self.dropped)
        self.ledger = SettledLedger(self.model)

    def dropped(self) -> set[bytes]:
        return {id for id, row in self.rows().items() if row.reason is Reason.SUPERSEDED}

    def batch(self, jobs: tuple[NewJob, ...], *, retry: bool) -> JobBatch:
        self.model.accepted = len(jobs) == 2
        return JobBatch(id=uuid4().bytes, jobs=jobs, retry=retry, accepted=self.model.accepted)

    @initialize()
    def open(self) -> None:
        super().open()
        for queue, settings in zip(QUEUES, SETTINGS[-2:], strict=True):
            self.run(self.clients[0].configure_queue(queue, settings))
            self.model.settings[queue] = settings

    @rule(data=st.data(), queue=st.sampled_from(QUEUES), settings=st.sampled_from(SETTINGS), n=st.integers(1, 4))
    def configure(self, data: st.DataObject, queue: str, settings: QueueSettings, n: int) -> None:
        """Then a client continues as before."""
        self.call(data, lambda store: store.configure_queue(queue, settings or None))
        self.model.settings[queue] = settings
        self.check()
        self.send_batch(data, n)

    @rule(data=st.data(), n=st.integers(2, 4))
    def crowd(self, data: st.DataObject, n: int) -> None:
        """Many jobs are enqueued and few are claimed."""
        self.send_batch(data, n)
        self.send_batch(data, 3)
        self.next_turn(data, [Want(LANES, 1)], True, 1, False)

    @rule(data=st.data(), queue=st.sampled_from(QUEUES), how=st.sampled_from((None, None, *DisabledMode)))
    def disable(self, data: st.DataObject, queue: str, how: DisabledMode | None) -> None:
        """Then a client continues as before."""
        self.call(data, lambda store: store.disable_queues([queue], how, "somebody"))
        self.model.disabled.pop(queue, None)
        if how is not None:
            self.model.disabled[queue] = how
        self.check()
        self.enqueue_and_take(data, 2)

    def same_modes(self) -> None:
        rows = {row.name: row for row in self.run(self.clients[1].queues())}
        for queue in QUEUES:
            row = rows.get(queue)
            said = (
                (row.mode, row.settings, row.disabled) if row is not None else (QueueMode.OPEN, QueueSettings(), None)
            )
            model = self.model
            known = model.modes.get(queue, QueueMode.OPEN), model.settings.get(queue, QueueSettings())
            assert said == (*known, model.disabled.get(queue))

    @rule(by=st.sampled_from((1, 13)))
    def move_clock(self, by: int) -> None:
        """Not back: then the contract does not say which of two jobs was enqueued first."""
        super().move_clock(by)
