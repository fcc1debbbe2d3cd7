"""Workers: beats, and the jobs of workers that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import State
from mainspring.worker.records import Beat, BeatResult, LeadResult, RescueResult, WorkerRow

from .jobs.ack import GUILT_OF_SUSPECT, CrashCharge, TakenJob, apply_acks, take_back
from .jobs.promote import next_promotion
from .limits.buckets import Capacities
from .limits.waiting import release_jobs, settle_released

if TYPE_CHECKING:
    from .driver.database import SqliteDatabase
    from .driver.transaction import Tx

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


def _take_jobs(tx: Tx, worker: str, cause: Outcome, delays: Sequence[int]) -> RescueResult:
    jobs = [TakenJob(*row) for row in tx.all("jobs_of_worker", (worker,))]
    charged_guilt = min((each.guilt for each in jobs if each.guilt), default=0)
    moved: dict[State, list[bytes]] = {state: [] for state in _NEXT_STATES}
    for each in jobs:
        charged = cause is Outcome.CRASHED and each.guilt == charged_guilt
        certain = each.guilt == GUILT_OF_SUSPECT or len(jobs) == 1
        tx.add_attempt(
            (each.job, each.token, each.epoch, each.attempt, worker, each.started, tx.now, None, cause, 0, None)
        )
        if each.buckets:
            release_jobs(tx, [(each.job, each.buckets)])
        moved[take_back(tx, each, CrashCharge(charged, certain, delays))].append(each.job)
    if tx.released:
        settle_released(tx, Capacities(tx))
    ready, retrying, dead, cancelled = (tuple(ids) for ids in moved.values())
    return RescueResult(True, ready, retrying, dead, cancelled)
