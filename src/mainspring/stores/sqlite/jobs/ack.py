"""Acks: compare each with the running row by (job, token, worker), then move the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mainspring.jobs.lanes import guilt, is_suspect, relaned
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.limits.records import Bucket
from mainspring.states import FINAL, Reason, State, allows
from mainspring.stores.sqlite.driver.constants import FLAG_CANCEL_ORDERED, FLAG_HAS_CHILDREN
from mainspring.stores.sqlite.driver.errors import is_unstorable
from mainspring.stores.sqlite.driver.statements import sizes
from mainspring.stores.sqlite.lanes import (
    Placement,
    enter_ready,
    flags_of_limits,
    home_of,
    parked_lane_of,
    read_buckets,
    suspect_lane_of,
    write_buckets,
)
from mainspring.stores.sqlite.limits.waiting import correct_costs_of_job, release_jobs

from .finish import EndedParent, JobEnding, finish, resolve

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx

Leases = list[tuple[bytes, int]]
GUILT_OF_SUSPECT = 2
"""The value of :func:`mainspring.jobs.lanes.guilt` for a suspect."""


class AckVerdicts:
    """The leases of acks that were not applied, by the reason."""

    __slots__ = ("already", "stale", "unstorable")

    def __init__(self) -> None:
        self.already: Leases = []
        self.stale: Leases = []
        self.unstorable: Leases = []


class OwnedJob(NamedTuple):
    """The row of the statement ``owned_job``."""

    state: str
    token: int
    worker: str | None
    lane: str
    task: str
    queue: str
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
    """The reason of the cancel order."""


def apply_acks(tx: Tx, worker: str, acks: Sequence[Ack]) -> AckVerdicts:
    """Apply the acks of a worker: plain successes in bulk, all others one by one."""
    verdicts = AckVerdicts()
    ended: list[EndedParent] = []
    plain = [ack for ack in acks if ack.to is State.SUCCEEDED]
    if plain and _apply_successes(tx, worker, plain, ended):
        acks = [ack for ack in acks if ack.to is not State.SUCCEEDED] if len(plain) < len(acks) else ()
    for ack in acks:
        _apply_one(tx, worker, ack, verdicts, ended)
    resolve(tx, ended)
    return verdicts


# ---- successes in bulk -------------------------------------------------------------------------------------


def _apply_successes(tx: Tx, worker: str, acks: Sequence[Ack], ended: list[EndedParent]) -> bool:
    """Apply plain successes in bulk, and add those with children to ``ended``.

    False, and nothing changed, unless all of them could be applied.
    """
    execute = tx.cursor.execute
    execute("savepoint successes")
    try:
        parents: list[bytes] = []
        good = _move_succeeded(tx, worker, acks, parents) == len(acks)
        if good:
            ended += [EndedParent(parent, State.SUCCEEDED) for parent in parents]
    except Exception as error:
        if not is_unstorable(error):
            raise
        good = False
    if not good:
        execute("rollback to successes")
        tx.seqs.forget()
    execute("release successes")
    return good


def _move_succeeded(tx: Tx, worker: str, acks: Sequence[Ack], parents: list[bytes]) -> int:
    """Move the jobs to history and add those with children to ``parents``. Returns how many were moved."""
    moved = 0
    for start, end in sizes(len(acks)):
        part = acks[start:end]
        values: list[object] = [tx.now, worker]
        for ack in part:
            values += (ack.id, ack.token, ack.result, ack.error, ack.run_us)
        moved += tx.sized("ack_succeeded", end - start, values).rowcount
        ids = [ack.id for ack in part]
        corrections = [ack for ack in part if ack.spent or ack.slow]
        if (corrections or tx.sized("delete_plain", end - start, ids).rowcount < len(part)) and moved == end:
            parents += _delete_others(tx, ids, corrections)
    return moved


def _delete_others(tx: Tx, ids: list[bytes], corrections: Sequence[Ack]) -> list[bytes]:
    """Delete the jobs that have just succeeded and still have a live row; release and correct their buckets.

    Returns the jobs with children.
    """
    rows = tx.sized("delete_others", len(ids), ids).fetchall()
    left = {id: buckets for id, _, buckets in rows if buckets}
    if left:
        release_jobs(tx, list(left.items()))
    for ack in corrections:
        correct_costs_of_job(tx, left.get(ack.id), ack.spent, ack.slow)
    return [id for id, flags, _ in rows if flags & FLAG_HAS_CHILDREN]


# ---- one ack -----------------------------------------------------------------------------------------------


def _apply_one(tx: Tx, worker: str, ack: Ack, verdicts: AckVerdicts, ended: list[EndedParent]) -> None:
    lease = (ack.id, ack.token)
    try:
        found = tx.first("owned_job", (ack.id,))
        job = None if found is None else OwnedJob(*found)
        if job is None or job.token != ack.token or job.worker != worker or job.state != State.RUNNING:
            (verdicts.already if _was_applied(tx, worker, ack) else verdicts.stale).append(lease)
        elif not allows(ack.action, State.RUNNING, ack.to):
            verdicts.unstorable.append(lease)
        else:
            with tx.savepoint("ack"):
                _move(tx, worker, ack, job, ended)
    except Exception as error:
        if not is_unstorable(error):
            raise
        verdicts.unstorable.append(lease)


def _was_applied(tx: Tx, worker: str, ack: Ack) -> bool:
    """Whether this owner has ended this attempt in this way before."""
    values = {"id": ack.id, "token": ack.token, "worker": worker, "outcome": ack.outcome}
    return bool(tx.all("ended_by", values))


def _move(tx: Tx, worker: str, ack: Ack, job: OwnedJob, ended: list[EndedParent]) -> None:
    """Keep the attempt, leave the limits, and move the job to its next state."""
    ordered = job.flags & FLAG_CANCEL_ORDERED
    if ordered or ack.to is not State.SUCCEEDED:
        facts = (job.epoch, job.attempt, worker, job.started, tx.now, ack.run_us, ack.outcome, 1, ack.error)
        tx.add_attempt((ack.id, job.token, *facts))
    if job.buckets is not None:
        spent = _nothing_spent(job.buckets) if ack.buckets else ack.spent
        correct_costs_of_job(tx, job.buckets, spent, ack.slow)
        release_jobs(tx, [(ack.id, job.buckets)])
    if ack.outcome is Outcome.CRASHED:
        charge = CrashCharge(True, True, ack.delays, ack.reason or Reason.CRASHED, ack.to is State.DEAD)
        take_back(tx, _taken(ack, job), charge, worker, ack, later=ended)
        return
    attempt = job.attempt - 1 if ack.refund else job.attempt
    if ordered or ack.to in FINAL:
        finish(tx, ack.id, job.flags, _ending(worker, ack, job, attempt), ended)
    elif ack.to is State.READY:
        _hand_back(tx, ack, job, attempt)
    else:
        due = ack.due if ack.due is not None else tx.now + ack.delay
        tx.run("set_due", (ack.to, due, attempt, ack.id))


def _ending(worker: str, ack: Ack, job: OwnedJob, attempt: int) -> JobEnding:
    if job.flags & FLAG_CANCEL_ORDERED:
        return JobEnding(
            State.CANCELLED, Reason.BY_USER, worker, attempt, job.crashes, ack.run_us, error=ack.error,
            note=job.cancel_order or None,
        )  # fmt: skip
    return JobEnding(
        ack.to, ack.reason, worker, attempt, job.crashes, ack.run_us, result=ack.result, error=ack.error,
        label=ack.label,
    )  # fmt: skip


def _taken(ack: Ack, job: OwnedJob) -> TakenJob:
    """The job of the ack, as a rescue would find it."""
    return TakenJob(
        ack.id, job.token, job.queue, job.lane, job.task, job.priority, job.attempt, job.epoch, job.crashes,
        job.crash_limit, job.early, job.started, job.flags, job.buckets, job.cancel_order,
    )  # fmt: skip


# ---- hand-backs --------------------------------------------------------------------------------------------


def _hand_back(tx: Tx, ack: Ack, job: OwnedJob, attempt: int) -> None:
    """The job is ready again: behind the others, or in the lane of new buckets at its old place."""
    placement = Placement(job.lane, job.task, job.priority, job.crashes, job.buckets)
    if ack.buckets:
        _hand_back_to_lane(tx, ack, job, attempt, placement)
        return
    if ack.park:
        placement = placement._replace(lane=parked_lane_of(job.lane, job.task, job.buckets))
    seq = tx.next_seq()
    tx.run("hand_back", (attempt, placement.lane, seq, ack.id, ack.unstarted))
    enter_ready(tx, job.queue, placement, seq)


def _hand_back_to_lane(tx: Tx, ack: Ack, job: OwnedJob, attempt: int, placement: Placement) -> None:
    """The job names the buckets of its task from now on, and keeps its place.

    It is ready in the lane of its buckets and those of the ack.
    """
    placement = _add_buckets(placement, ack.buckets)
    if ack.park:
        placement = placement._replace(lane=parked_lane_of(placement.lane, placement.task, placement.buckets))
    flags = flags_of_limits(read_buckets(placement.buckets))
    ((seq,),) = tx.all("hand_back_to_lane", (attempt, placement.lane, placement.buckets, ack.id, flags))
    enter_ready(tx, job.queue, placement, seq)
    # A lane with keys may wait for the moment of a job that is not its first any more. Other lanes have no such row.
    tx.run("open_lane", (placement.lane, -placement.priority))


def _add_buckets(job: Placement, more: Sequence[Bucket]) -> Placement:
    """Add buckets of limits that the job does not name yet."""
    own = read_buckets(job.buckets)
    known = {each.limit for each in own}
    buckets = sorted((*own, *(each for each in more if each.limit not in known)), key=lambda each: each.name)
    home = home_of(job.lane, job.buckets)
    return job._replace(lane=relaned(home, buckets) + job.lane[len(home) :], buckets=write_buckets(buckets))


def _nothing_spent(buckets: str | None) -> list[tuple[str, int]]:
    """The costs of an attempt that never began, by limit."""
    return [(each.limit, 0) for each in read_buckets(buckets)]


# ---- jobs that are taken back ------------------------------------------------------------------------------

# A rescue, a retirement and the ack of a crash take a running job back in one way: running -> ready, retrying, dead or
# cancelled. The caller has recorded the attempt and released the buckets.


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


def take_back(
    tx: Tx, job: TakenJob, charge: CrashCharge, worker: str | None = None, ack: Ack | None = None, *,
    later: list[EndedParent] | None = None,
) -> State:  # fmt: skip
    """Move the job and return its new state. ``worker`` stays readable as its owner; after a rescue none does.

    ``later``: see :func:`finish`.
    """
    attempt, crashes = job.attempt - 1, job.crashes + charge.charged
    ending = _end_of_taken(job, charge, crashes)
    if ending is not None:
        ran, error, label = (None, None, None) if ack is None else (ack.run_us, ack.error, ack.label)
        note = job.cancel_order or None
        made = JobEnding(*ending, worker, attempt, crashes, ran, None, error, label, note)
        finish(tx, job.job, job.flags, made, later)
        return ending[0]
    lane = suspect_lane_of(job.lane, job.buckets) if is_suspect(crashes, job.crash_limit) else job.lane
    delay = charge.delay(crashes)
    state, due = (State.RETRYING, tx.now + delay) if delay > 0 else (State.READY, None)
    seq = tx.next_seq()
    tx.run("take_back", (state, due, attempt, crashes, lane, seq, job.job, worker))
    if state is State.READY:
        enter_ready(tx, job.queue, Placement(lane, job.task, job.priority, crashes, job.buckets), seq)
    return state


def _end_of_taken(job: TakenJob, charge: CrashCharge, crashes: int) -> tuple[State, Reason] | None:
    """The final state of a job; None if it runs again."""
    if job.flags & FLAG_CANCEL_ORDERED:
        return State.CANCELLED, Reason.BY_USER
    if job.early or charge.ends_early or (charge.charged and charge.certain and crashes >= job.crash_limit):
        return State.DEAD, charge.reason
    return None
