"""Take a running job back after a crash or the loss of its worker: running -> ready, retrying, dead or cancelled.

Rescues, retirements and acks of crashes use this one step. The caller records the attempt and releases the buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mainspring.jobs.lanes import guilt, is_suspect
from mainspring.states import Reason, State
from mainspring.stores.sqlite.driver.constants import FLAG_CANCEL_ORDERED
from mainspring.stores.sqlite.lanes import Placement, enter_ready, suspect_lane_of

from .finish import JobEnding, finish

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack
    from mainspring.stores.sqlite.driver.transaction import Tx

GUILT_OF_SUSPECT = 2
"""The value of :func:`mainspring.jobs.lanes.guilt` for a suspect."""


class TakenJob(NamedTuple):
    """A running job that is taken from its worker: the row of the statement ``jobs_of_worker``."""

    job: bytes
    token: int
    queue: str
    lane: str
    task: str
    priority: int
    attempt: int
    epoch: int
    crashes: int
    crash_limit: int
    early: int
    started: int
    flags: int
    buckets: str | None
    cancel_order: str | None
    """The reason of a cancel order."""

    @property
    def guilt(self) -> int:
        return guilt(self.crashes, self.crash_limit)


class CrashCharge(NamedTuple):
    """Whether a crash is charged to a job, whether it may be the job's last, and how long the job waits then."""

    charged: bool
    certain: bool
    """The job was a suspect or ran alone: only then is it known whose crash it was."""
    delays: Sequence[int]
    reason: Reason = Reason.CRASHED
    """Why the job is dead, if it is."""
    ends_early: bool = False
    """The worker knows that the task has ``ack="early"``: the job is dead in any case."""

    def delay(self, crashes: int) -> int:
        return self.delays[min(crashes, len(self.delays)) - 1] if self.charged and self.delays else 0


def take_back(tx: Tx, job: TakenJob, charge: CrashCharge, worker: str | None = None, ack: Ack | None = None) -> State:
    """Move the job and return its new state. ``worker`` stays readable as its owner; after a rescue none does."""
    attempt, crashes = job.attempt - 1, job.crashes + charge.charged
    ending = _ending(job, charge, crashes)
    if ending is not None:
        ran, error, label = (None, None, None) if ack is None else (ack.run_us, ack.error, ack.label)
        note = job.cancel_order or None
        finish(tx, job.job, job.flags, JobEnding(*ending, worker, attempt, crashes, ran, None, error, label, note))
        return ending[0]
    lane = suspect_lane_of(job.lane, job.buckets) if is_suspect(crashes, job.crash_limit) else job.lane
    delay = charge.delay(crashes)
    state, due = (State.RETRYING, tx.now + delay) if delay > 0 else (State.READY, None)
    seq = tx.next_seq()
    tx.run("take_back", (state, due, attempt, crashes, lane, seq, job.job, worker))
    if state is State.READY:
        enter_ready(tx, job.queue, Placement(lane, job.task, job.priority, crashes, job.buckets), seq)
    return state


def _ending(job: TakenJob, charge: CrashCharge, crashes: int) -> tuple[State, Reason] | None:
    """The final state of a job; None if it runs again."""
    if job.flags & FLAG_CANCEL_ORDERED:
        return State.CANCELLED, Reason.BY_USER
    if job.early or charge.ends_early or (charge.charged and charge.certain and crashes >= job.crash_limit):
        return State.DEAD, charge.reason
    return None
