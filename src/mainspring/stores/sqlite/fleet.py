"""Workers: beats, and the jobs of workers that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.jobs.lanes import guilt, is_suspect
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import Reason, State
from mainspring.worker.records import Beat, BeatResult, LeadResult, RescueResult, WorkerRow

from .driver.constants import FLAG_CANCEL_ORDERED
from .jobs.ack import apply_acks
from .jobs.finish import JobEnding, finish
from .jobs.promote import next_promotion
from .lanes import Placement, enter_ready, suspect_lane_of
from .limits.buckets import Capacities
from .limits.waiting import release_jobs, settle_released

if TYPE_CHECKING:
    from .driver.database import SqliteDatabase
    from .driver.transaction import Tx

GUILT_OF_SUSPECT = 2
"""The value of :func:`mainspring.jobs.lanes.guilt` for a suspect."""
_NEXT_STATES = (State.READY, State.RETRYING, State.DEAD, State.CANCELLED)
_decode_names = msgspec.json.Decoder(tuple[str, ...]).decode


# ---- beats -------------------------------------------------------------------------------------------------


def beat(tx: Tx, beats: Sequence[Beat]) -> list[BeatResult]:
    return [_beat(tx, each) for each in beats]


def _beat(tx: Tx, beat: Beat) -> BeatResult:
    counted = tx.first("beat", (tx.now, beat.worker))
    if counted is not None:
        if beat.register is not None:
            tx.run("set_worker_info", (beat.register.info, beat.worker))
        return BeatResult(beat.worker, True, counted[0])
    if beat.register is None:
        return BeatResult(beat.worker, False)
    facts = beat.register
    queues, tasks = (msgspec.json.encode(names).decode() for names in (facts.queues, facts.tasks))
    made = tx.run("register", (beat.worker, tx.now, tx.now, queues, tasks, facts.lease, facts.info))
    return BeatResult(beat.worker, made == 1, made)


def workers(tx: Tx) -> list[WorkerRow]:
    return [_worker(*row) for row in tx.all("workers")]


def _worker(name: str, *rest: Any) -> WorkerRow:
    number, turn, lost, started, seen, queues, tasks, lease, info, running = rest
    return WorkerRow(
        id=name, number=number, turn=turn, lost=bool(lost), started=started, seen=seen, running=running,
        queues=_decode_names(queues), tasks=_decode_names(tasks), lease=lease, info=info,
    )  # fmt: skip


# ---- leaders -----------------------------------------------------------------------------------------------


async def lead(database: SqliteDatabase, worker: str, services: Sequence[str], span: int) -> LeadResult:
    """Read first: a worker that leads nothing and gets nothing does not take the write lock."""
    if await database.read(partial(_may_lead, worker=worker, services=services, span=span)):
        await database.write(partial(_take_leads, worker=worker, services=services, span=span))
    return await database.read(partial(_read_leads, worker=worker, services=services))


def _may_lead(tx: Tx, worker: str, services: Sequence[str], span: int) -> bool:
    others = [(service, until) for service, leader, until in tx.all("leads") if leader != worker]
    held = {service for service, until in others if tx.now < until <= tx.now + span}
    return not held.issuperset(services)


def _take_leads(tx: Tx, worker: str, services: Sequence[str], span: int) -> None:
    for service in services:
        tx.run("take_lead", (service, worker, tx.now + span, tx.now))


def _read_leads(tx: Tx, worker: str, services: Sequence[str]) -> LeadResult:
    led = [name for name, leader, until in tx.all("leads") if leader == worker and name in services and until > tx.now]
    ((fleet, look, always),) = tx.all("fleet_and_looks")
    return LeadResult(
        now=tx.now, services=tuple(sorted(led)), fleet=fleet, next_due=next_promotion(tx), next_look=look,
        always_due=bool(always),
    )  # fmt: skip


# ---- rescue and retire -------------------------------------------------------------------------------------


def rescue(tx: Tx, worker: str, number: int, cause: Outcome, delays: Sequence[int]) -> RescueResult:
    """Compare and set on the beat number, then take the jobs of the worker back."""
    if not tx.run("mark_lost", (worker, number)):
        return RescueResult(False)
    tx.run("drop_leads", (worker,))
    return _take_jobs(tx, worker, cause, delays)


def retire(tx: Tx, worker: str, cause: Outcome, acks: Sequence[Ack], delays: Sequence[int]) -> RescueResult:
    """Apply the acks of guilty jobs first, take the other jobs back, and delete the row of the worker."""
    found = tx.first("worker_of_turn", (worker,))
    if found is None or found[0]:
        return RescueResult(False)
    apply_acks(tx, worker, acks)
    rescued = _take_jobs(tx, worker, cause, delays)
    tx.run("drop_leads", (worker,))
    tx.run("drop_worker", (worker,))
    return rescued


class LostJob(NamedTuple):
    """A running job of a worker that is gone: the row of the statement ``jobs_of_worker``."""

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

    def delay(self, crashes: int) -> int:
        return self.delays[min(crashes, len(self.delays)) - 1] if self.charged and self.delays else 0


def _take_jobs(tx: Tx, worker: str, cause: Outcome, delays: Sequence[int]) -> RescueResult:
    jobs = [LostJob(*row) for row in tx.all("jobs_of_worker", (worker,))]
    charged_guilt = min((each.guilt for each in jobs if each.guilt), default=0)
    moved: dict[State, list[bytes]] = {state: [] for state in _NEXT_STATES}
    for each in jobs:
        charged = cause is Outcome.CRASHED and each.guilt == charged_guilt
        certain = each.guilt == GUILT_OF_SUSPECT or len(jobs) == 1
        moved[_take_job(tx, worker, each, cause, CrashCharge(charged, certain, delays))].append(each.job)
    if tx.released:
        settle_released(tx, Capacities(tx))
    ready, retrying, dead, cancelled = (tuple(ids) for ids in moved.values())
    return RescueResult(True, ready, retrying, dead, cancelled)


def _take_job(tx: Tx, worker: str, job: LostJob, cause: Outcome, charge: CrashCharge) -> State:
    tx.add_attempt((job.job, job.token, job.epoch, job.attempt, worker, job.started, tx.now, None, cause, 0, None))
    if job.buckets:
        release_jobs(tx, [(job.job, job.buckets)])
    attempt, crashes = job.attempt - 1, job.crashes + charge.charged
    ending = _ending(job, charge, crashes)
    if ending is not None:
        note = job.cancel_order or None
        finish(tx, job.job, job.flags, JobEnding(*ending, None, attempt, crashes, note=note))
        return ending[0]
    lane = suspect_lane_of(job.lane, job.buckets) if is_suspect(crashes, job.crash_limit) else job.lane
    delay = charge.delay(crashes)
    state, due = (State.RETRYING, tx.now + delay) if delay > 0 else (State.READY, None)
    seq = tx.next_seq()
    tx.run("take_back", (state, due, attempt, crashes, lane, seq, job.job))
    if state is State.READY:
        enter_ready(tx, job.queue, Placement(lane, job.task, job.priority, crashes, job.buckets), seq)
    return state


def _ending(job: LostJob, charge: CrashCharge, crashes: int) -> tuple[State, Reason] | None:
    """The final state of a lost job; None if it runs again."""
    if job.flags & FLAG_CANCEL_ORDERED:
        return State.CANCELLED, Reason.BY_USER
    if job.early or (charge.charged and charge.certain and crashes >= job.crash_limit):
        return State.DEAD, Reason.CRASHED
    return None
