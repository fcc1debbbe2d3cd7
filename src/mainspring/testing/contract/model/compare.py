"""The comparison of the rows of a store with the jobs of the model."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.jobs.records import AttemptRow, JobRow
from mainspring.states import FINAL, Reason, State

from .model import Model
from .model_records import ModelJob

_MISSED = {Reason.EXPIRED, Reason.PARENT}
_REPLACED = {Reason.SUPERSEDED, Reason.PARENT}


def same_job(job: ModelJob, row: JobRow) -> None:
    """Every field that the contract fixes in the job's state."""
    assert row.state is job.state, (row, job)
    assert (row.token, row.priority, row.record) == (job.token, job.new.priority, job.new.record), (row, job)
    assert (row.queue, row.task, row.early, row.crash_limit) == (
        job.new.queue, job.new.task, job.new.early, job.new.crashes,
    )  # fmt: skip
    same_reason(job, row)
    if job.state in FINAL:
        assert row.finished is not None
        return
    assert (row.attempt, row.crashes, row.expires) == (job.attempt, job.crashes, job.expires), (row, job)
    assert row.deps == len(job.waits_for), (row, job)
    assert row.ordered == job.ordered, (row, job)
    if job.state in (State.SCHEDULED, State.RETRYING):
        assert row.due == job.due, (row, job)
    assert set(row.buckets) == set(job.new.buckets), (row, job)
    if job.state is State.RUNNING:
        assert row.worker == job.worker, (row, job)


def same_reason(job: ModelJob, row: JobRow) -> None:
    """A job that is late, or was replaced, and whose parent ended in the same step may be called the one or the
    other."""
    late = job.expires is not None and {job.reason, row.reason} <= _MISSED
    if late or (job.new.unique is not None and {job.reason, row.reason} <= _REPLACED):
        job.reason = row.reason
    assert row.reason is job.reason, (row, job)


class Ledger:
    """What the model cannot know by itself, learnt from the store and checked for sense."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.top = 0
        self.in_order: list[bytes] = []
        self.by_due: list[tuple[int, bytes]] = []
        self.epochs: dict[bytes, int] = {}
        self.read: dict[bytes, int] = {}

    def adopt(self, rows: dict[bytes, JobRow]) -> None:
        """The positions of the jobs that became ready in this step: behind all jobs that were ready before. A job
        that was released and ended in the same step (the job and its parent have both expired) needs no position.
        """
        fresh = {job.new.id: job for job in self.model.fresh if job.state not in FINAL}
        for id, job in self.model.jobs.items():
            assert id in fresh or job.state is not State.READY or rows[id].seq == job.seq, "its place has changed"
        for id, job in fresh.items():
            job.seq = rows[id].seq
        self._placed(fresh)
        assert len({job.seq for job in fresh.values()}) == len(fresh)
        self._ordered(self.in_order, fresh)
        self._in_due_order(fresh)
        self.model.fresh, self.in_order, self.by_due = [], [], []
        self._same_epochs(rows)

    def _placed(self, fresh: dict[bytes, ModelJob]) -> None:
        assert all(job.seq > self.top for job in fresh.values()), f"one is not behind {self.top}"
        self.top = max([self.top, *(job.seq for job in fresh.values())])

    def _line(self, job: ModelJob) -> tuple[bool, int]:
        """The lane of the job, and its position there: later jobs have greater positions."""
        return False, job.seq

    def _ordered(self, ids: list[bytes], fresh: dict[bytes, ModelJob]) -> None:
        places = [self._line(fresh[id]) for id in ids if id in fresh]
        assert sorted(places, key=lambda place: place[0]) == sorted(places)

    def _in_due_order(self, fresh: dict[bytes, ModelJob]) -> None:
        """Jobs due at the same moment may have any order."""
        places = sorted((self._line(fresh[id]), due) for due, id in self.by_due)
        for line in (False, True):
            dues = [due for (stack, _), due in places if stack is line]
            assert dues == sorted(dues)

    def _same_epochs(self, rows: dict[bytes, JobRow]) -> None:
        for id, job in self.model.jobs.items():
            first = self.epochs.setdefault(id, rows[id].epoch)
            assert rows[id].epoch == first + job.epoch

    def counts(self) -> dict[State, int]:
        states = [job.state for job in self.model.jobs.values()]
        return {state: states.count(state) for state in State}

    def unread(self) -> list[bytes]:
        """Jobs with attempts that have not been compared yet."""
        return [id for id, job in self.model.jobs.items() if len(job.attempts) != self.read.get(id, 0)]

    def same_attempts(self, id: bytes, kept: Sequence[AttemptRow]) -> None:
        """Every ended attempt but the plain successes, oldest first."""
        expected = self.model.jobs[id].attempts
        assert [(row.token, row.attempt, row.worker, row.outcome) for row in kept] == [
            (ended.token, ended.attempt, ended.worker, ended.outcome) for ended in expected
        ]
        self.read[id] = len(expected)
