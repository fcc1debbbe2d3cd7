"""Which events follow from an ack, and the record of a job that was moved by another process than its worker."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import State
from mainspring.tasks.events import EventName
from mainspring.worker.records import RescueResult

_SINGLE: dict[Outcome, tuple[EventName, ...]] = {
    Outcome.SUCCEEDED: ("succeeded",),
    Outcome.SNOOZED: ("snoozed",),
    Outcome.CANCELLED: ("cancelled",),
}


class MovedJob(msgspec.Struct, frozen=True):
    """A job that was moved to another state without an ack of its own worker."""

    job: bytes
    state: State
    names: tuple[EventName, ...]
    worker: str = ""
    """The worker that held the job."""
    refunded: bool = True
    """The lost attempt does not count."""
    crashed: int = 0
    """The token of an ack with the outcome crashed. Then the row of the job says which of ``names`` happened: the store
    decided whether this crash was the last."""
    breaker: BreakerRow | None = None
    """If set, this record is about a breaker that changed with the jobs of the worker, and not about a job."""


def events_of_ack(ack: Ack) -> tuple[EventName, ...]:
    """The events of a stored ack, in order. An attempt that was handed back has none. After a crash, the store may have
    ended the job: see :func:`events_of_crash`."""
    if ack.outcome is Outcome.CRASHED:
        return events_of_crash(ack.to)
    if ack.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        return ("failed", "dead") if ack.to is State.DEAD else ("failed", "retrying")
    if ack.outcome is Outcome.INTERRUPTED:
        return ("dead",) if ack.to is State.DEAD else ()
    return _SINGLE[ack.outcome]


def events_of_crash(state: State) -> tuple[EventName, ...]:
    """The events of a crash after which the job is in this state."""
    if state is State.DEAD:
        return ("stalled", "dead")
    return ("stalled", "cancelled") if state is State.CANCELLED else ("stalled",)


def moved_by_rescue(worker: str, rescued: RescueResult, breakers: Iterable[BreakerRow] = ()) -> list[MovedJob]:
    """The jobs of a worker that is gone, and the breakers that opened because of it."""
    return [
        *(MovedJob(job, State.READY, ("stalled",), worker) for job in rescued.ready),
        *(MovedJob(job, State.RETRYING, ("stalled",), worker) for job in rescued.retrying),
        *(MovedJob(job, State.DEAD, ("stalled", "dead"), worker) for job in rescued.dead),
        *(MovedJob(job, State.CANCELLED, ("stalled", "cancelled"), worker) for job in rescued.cancelled),
        *(MovedJob(b"", State.READY, (), worker, breaker=each) for each in breakers),
    ]


def moved_by_acks(worker: str, acks: Iterable[Ack]) -> list[MovedJob]:
    """The jobs that a supervisor acked after their worker had ended."""
    return [
        MovedJob(ack.id, ack.to, names, worker, ack.refund, ack.token if ack.outcome is Outcome.CRASHED else 0)
        for ack in acks
        if (names := _events_of_last_ack(ack))
    ]


def _events_of_last_ack(ack: Ack) -> tuple[EventName, ...]:
    if ack.outcome is Outcome.CRASHED:
        return ("stalled", "dead", "cancelled")
    names = events_of_ack(ack)
    return ("stalled", *names) if names and ack.outcome is Outcome.INTERRUPTED else names


def moved_by_expiry(jobs: Iterable[bytes]) -> list[MovedJob]:
    """Jobs that expired before they started."""
    return [MovedJob(job, State.CANCELLED, ("cancelled",), refunded=False) for job in jobs]
