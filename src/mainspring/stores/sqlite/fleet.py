"""Workers: their beats, and the jobs of those that are gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.jobs.lanes import guilt, is_suspect
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import Reason, State
from mainspring.worker.records import Beat, BeatResult, RescueResult, WorkerRow

from .acks import take_acks
from .breakers import lost
from .finish import End, finish
from .leaving import free
from .parking import settle
from .places import Standing, enter_ready, suspected
from .rooms import Rooms
from .tx import ORDERED

if TYPE_CHECKING:
    from .tx import Tx

_AFTER = (State.READY, State.RETRYING, State.DEAD, State.CANCELLED)
_words = msgspec.json.Decoder(tuple[str, ...]).decode


def beat(tx: Tx, beats: Sequence[Beat]) -> list[BeatResult]:
    return [_beat(tx, each) for each in beats]


def _beat(tx: Tx, beat: Beat) -> BeatResult:
    counted = tx.first("beat", (tx.now, beat.worker))
    if counted is not None:
        if beat.register is not None:
            tx.run("say_again", (beat.register.info, beat.worker))
        return BeatResult(beat.worker, True, counted[0])
    if beat.register is None:
        return BeatResult(beat.worker, False)
    said = beat.register
    queues, tasks = (msgspec.json.encode(names).decode() for names in (said.queues, said.tasks))
    made = tx.run("register", (beat.worker, tx.now, tx.now, queues, tasks, said.lease, said.info))
    return BeatResult(beat.worker, made == 1, made)


def workers(tx: Tx) -> list[WorkerRow]:
    return [_worker(*row) for row in tx.all("workers")]


def _worker(name: str, *rest: Any) -> WorkerRow:
    number, turn, lost, started, seen, queues, tasks, lease, info, running = rest
    return WorkerRow(
        id=name, number=number, turn=turn, lost=bool(lost), started=started, seen=seen, running=running,
        queues=_words(queues), tasks=_words(tasks), lease=lease, info=info,
    )  # fmt: skip


def rescue(tx: Tx, worker: str, number: int, cause: Outcome, delays: Sequence[int]) -> RescueResult:
    """Compare-and-set on the beat number, then take the jobs."""
    if not tx.run("mark_lost", (worker, number)):
        return RescueResult(False)
    return _take_jobs(tx, worker, cause, delays)


def retire(tx: Tx, worker: str, cause: Outcome, acks: Sequence[Ack], delays: Sequence[int]) -> RescueResult:
    """The worker's row goes; acks of the guilty are taken first."""
    found = tx.first("worker_row", (worker,))
    if found is None or found[0]:
        return RescueResult(False)
    take_acks(tx, worker, acks)
    rescued = _take_jobs(tx, worker, cause, delays)
    tx.run("forget_worker", (worker,))
    return rescued


def _take_jobs(tx: Tx, worker: str, cause: Outcome, delays: Sequence[int]) -> RescueResult:
    held = [Held(*row) for row in tx.all("held", (worker,))]
    if cause is not Outcome.INTERRUPTED:
        lost(tx, [(each.buckets, each.started) for each in held], cause)
    blamed = min((each.guilt for each in held if each.guilt), default=0)
    moved: dict[State, list[bytes]] = {state: [] for state in _AFTER}
    for each in held:
        charged = cause is Outcome.CRASHED and each.guilt == blamed
        named = each.guilt == 2 or len(held) == 1  # only then is it known whose crash it was
        moved[_take_job(tx, worker, each, cause, Charge(charged, named, delays))].append(each.job)
    if tx.freed:
        settle(tx, Rooms(tx))
    ready, retrying, dead, cancelled = (tuple(ids) for ids in moved.values())
    return RescueResult(True, ready, retrying, dead, cancelled, tuple(tx.news))


class Held(NamedTuple):
    """A running job of a worker that is gone, as the statement ``held`` returns it."""

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
    ordered: str | None
    """The words of a cancel order."""

    @property
    def guilt(self) -> int:
        return guilt(self.crashes, self.crash_limit)


def _take_job(tx: Tx, worker: str, held: Held, cause: Outcome, charge: Charge) -> State:
    outcome = (held.job, held.token, held.epoch, held.attempt, worker, held.started, tx.now, cause, 0, None)
    tx.add_attempt(outcome)
    if held.buckets:
        free(tx, [(held.job, held.buckets)])
    attempt, crashes = held.attempt - 1, held.crashes + charge.charged
    ending: tuple[State, Reason] | None = None
    if held.flags & ORDERED:
        ending = State.CANCELLED, Reason.BY_USER
    elif held.early or (charge.charged and charge.named and crashes >= held.crash_limit):
        ending = State.DEAD, Reason.CRASHED
    if ending is not None:
        finish(tx, held.job, held.flags, End(*ending, None, attempt, crashes, note=held.ordered or None))
        return ending[0]
    lane = suspected(held.lane, held.buckets) if is_suspect(crashes, held.crash_limit) else held.lane
    delay = charge.delay(crashes)
    state, due = (State.RETRYING, tx.now + delay) if delay > 0 else (State.READY, None)
    seq = tx.next_seq()
    tx.run("take_back", (state, due, attempt, crashes, lane, seq, held.job))
    if state is State.READY:
        enter_ready(tx, held.queue, Standing(lane, held.task, held.priority, crashes, held.buckets), seq)
    return state


class Charge(NamedTuple):
    """Whether a crash is blamed on a job, whether it can be its last, and how long it then waits."""

    charged: bool
    named: bool
    delays: Sequence[int]

    def delay(self, crashes: int) -> int:
        return self.delays[min(crashes, len(self.delays)) - 1] if self.charged and self.delays else 0
