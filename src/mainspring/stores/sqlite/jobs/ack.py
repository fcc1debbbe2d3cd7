"""Acks: compare each with the running row by (job, token, worker), then move the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mainspring.jobs.lanes import relaned
from mainspring.jobs.outcomes import Ack
from mainspring.limits.records import Bucket
from mainspring.schedules.records import part_mark
from mainspring.states import FINAL, Reason, State, allows
from mainspring.stores.sqlite.breakers import report_end, report_successes
from mainspring.stores.sqlite.driver.constants import FLAG_CANCEL_ORDERED, FLAG_DEPENDENCY, FLAG_LIMITED
from mainspring.stores.sqlite.driver.errors import is_unstorable
from mainspring.stores.sqlite.driver.statements import sizes
from mainspring.stores.sqlite.lanes import (
    Placement,
    enter_ready,
    flags_of_limits,
    home_of,
    lane_set_of,
    parked_lane_of,
    read_buckets,
    write_buckets,
)
from mainspring.stores.sqlite.limits.waiting import correct_costs_of_job, release_jobs

from .dependencies import join_waiting_jobs
from .finish import JobEnding, finish

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx

Leases = list[tuple[bytes, int]]


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
    started: int
    flags: int
    buckets: str | None
    cancel_order: str | None
    """The reason of the cancel order."""


def apply_acks(tx: Tx, worker: str, acks: Sequence[Ack]) -> AckVerdicts:
    """Apply the acks of a worker: plain successes in bulk, all others one by one."""
    verdicts = AckVerdicts()
    plain = [ack for ack in acks if ack.to is State.SUCCEEDED]
    if plain and _apply_successes(tx, worker, plain):
        acks = [ack for ack in acks if ack.to is not State.SUCCEEDED] if len(plain) < len(acks) else ()
    for ack in acks:
        _apply_one(tx, worker, ack, verdicts)
    return verdicts


# ---- successes in bulk -------------------------------------------------------------------------------------


def _apply_successes(tx: Tx, worker: str, acks: Sequence[Ack]) -> bool:
    """Apply plain successes in bulk. False, and nothing changed, unless all of them could be applied."""
    execute = tx.cursor.execute
    execute("savepoint successes")
    try:
        good = _move_succeeded(tx, worker, acks) == len(acks)
    except Exception as error:
        if not is_unstorable(error):
            raise
        good = False
    if not good:
        execute("rollback to successes")  # no seq was taken: the block of seqs stays valid
    execute("release successes")
    return good


def _move_succeeded(tx: Tx, worker: str, acks: Sequence[Ack]) -> int:
    moved = 0
    for start, end in sizes(len(acks)):
        part = acks[start:end]
        values: list[object] = [tx.now, worker]
        for ack in part:
            values += (ack.id, ack.token, ack.result, ack.error)
        moved += tx.sized("ack_succeeded", end - start, values).rowcount
        ids = [ack.id for ack in part]
        corrections = [ack for ack in part if ack.spent or ack.slow]
        if (corrections or tx.sized("delete_unlimited", end - start, ids).rowcount < len(part)) and moved == end:
            _leave_limits(tx, ids, corrections)
    return moved


def _leave_limits(tx: Tx, ids: list[bytes], corrections: Sequence[Ack]) -> None:
    """Delete the jobs that have just succeeded and still have a live row; release and correct their buckets."""
    rows = tx.sized("delete_limited", len(ids), ids).fetchall()
    left = {id: buckets for id, buckets, _ in rows if buckets}
    release_jobs(tx, list(left.items()))
    began: dict[str, int] = {}
    for _, buckets, started in rows:
        began[buckets] = max(started, began.get(buckets, 0))
    for buckets, started in began.items():
        report_successes(tx, buckets, started)
    for ack in corrections:
        correct_costs_of_job(tx, left.get(ack.id), ack.spent, ack.slow)


# ---- one ack -----------------------------------------------------------------------------------------------


def _apply_one(tx: Tx, worker: str, ack: Ack, verdicts: AckVerdicts) -> None:
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
                _move(tx, worker, ack, job)
            if job.flags & FLAG_LIMITED:
                report_end(tx, job.buckets, ack, job.started)
    except Exception as error:
        if not is_unstorable(error):
            raise
        verdicts.unstorable.append(lease)


def _was_applied(tx: Tx, worker: str, ack: Ack) -> bool:
    """Whether this owner has ended this attempt in this way before."""
    values = {"id": ack.id, "token": ack.token, "worker": worker, "outcome": ack.outcome}
    return bool(tx.all("ended_by", values))


def _move(tx: Tx, worker: str, ack: Ack, job: OwnedJob) -> None:
    """Keep the attempt, leave the limits, and move the job to its next state."""
    ordered = job.flags & FLAG_CANCEL_ORDERED
    if ordered or ack.to is not State.SUCCEEDED:
        facts = (job.epoch, job.attempt, worker, job.started, tx.now, ack.outcome, 1, ack.error)
        tx.add_attempt((ack.id, job.token, *facts))
    if job.buckets is not None:
        spent = _nothing_spent(job.buckets) if ack.buckets or ack.part else ack.spent
        correct_costs_of_job(tx, job.buckets, spent, ack.slow)
        release_jobs(tx, [(ack.id, job.buckets)])
    attempt = job.attempt - 1 if ack.refund else job.attempt
    if ordered or ack.to in FINAL:
        finish(tx, ack.id, job.flags, _ending(worker, ack, job, attempt))
    elif ack.to is State.READY:
        _hand_back(tx, ack, job, attempt)
    else:
        due = ack.due if ack.due is not None else tx.now + ack.delay
        tx.run("set_due", (ack.to, due, attempt, ack.id))


def _ending(worker: str, ack: Ack, job: OwnedJob, attempt: int) -> JobEnding:
    if job.flags & FLAG_CANCEL_ORDERED:
        note = job.cancel_order or None
        return JobEnding(State.CANCELLED, Reason.BY_USER, worker, attempt, job.crashes, error=ack.error, note=note)
    return JobEnding(
        ack.to, ack.reason, worker, attempt, job.crashes, result=ack.result, error=ack.error, label=ack.label
    )


# ---- hand-backs --------------------------------------------------------------------------------------------


def _hand_back(tx: Tx, ack: Ack, job: OwnedJob, attempt: int) -> None:
    """The job is ready again: behind the others, or in the lane of new buckets at its old place."""
    placement = Placement(job.lane, job.task, job.priority, job.crashes, job.buckets)
    if ack.buckets or ack.part:
        _hand_back_to_lane(tx, ack, job, attempt, placement)
        return
    if ack.park:
        placement = placement._replace(lane=parked_lane_of(job.lane, job.task, job.buckets))
    seq = tx.next_seq()
    tx.run("hand_back", (attempt, placement.lane, seq, ack.id))
    enter_ready(tx, job.queue, placement, seq)


def _hand_back_to_lane(tx: Tx, ack: Ack, job: OwnedJob, attempt: int, placement: Placement) -> None:
    """The job names the buckets and the dependency mark of its task from now on, and keeps its place.

    It is ready in the lane of its buckets and those of the ack; or blocked, if its name waits for dependencies.
    """
    if ack.buckets:
        placement = _add_buckets(placement, ack.buckets)
    if ack.park:
        placement = placement._replace(lane=parked_lane_of(placement.lane, placement.task, placement.buckets))
    flags = flags_of_limits(read_buckets(placement.buckets))
    ((seq,),) = tx.all("hand_back_to_lane", (attempt, placement.lane, placement.buckets, ack.id, flags))
    joins = ack.part and not job.flags & FLAG_DEPENDENCY
    if joins and join_waiting_jobs(tx, part_mark(ack.part), ack.id, seq):
        tx.run("block_job", {"id": ack.id, "deps": 1, "due": None})
        return
    enter_ready(tx, job.queue, placement, seq)
    if lane_set_of(placement.lane)[1]:  # the lane may wait for the moment of a job that is not its first any more
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
