"""Which events are told of what became of a job."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.states import State
from mainspring.tasks.events import EventName
from mainspring.worker.records import RescueResult

_ONE: dict[Outcome, tuple[EventName, ...]] = {
    Outcome.SUCCEEDED: ("succeeded",),
    Outcome.SNOOZED: ("snoozed",),
    Outcome.CANCELLED: ("cancelled",),
}


class MovedJob(msgspec.Struct, frozen=True):
    """A job that others than its own worker moved."""

    job: bytes
    state: State
    names: tuple[EventName, ...]
    worker: str = ""
    """Whose job it was."""
    refunded: bool = True
    """The attempt that it lost was given back."""
    breaker: BreakerRow | None = None
    """In place of a job, a breaker that has changed with the jobs of that worker."""


def names_of(ack: Ack) -> tuple[EventName, ...]:
    """The events of an ack that was stored, in order; an attempt that was handed back is none."""
    if ack.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
        return ("failed", "dead") if ack.to is State.DEAD else ("failed", "retrying")
    if ack.outcome is Outcome.INTERRUPTED:
        return ("dead",) if ack.to is State.DEAD else ()
    return _ONE[ack.outcome]


def of_rescue(worker: str, rescued: RescueResult) -> list[MovedJob]:
    """The jobs of a worker that is gone."""
    return [
        *(MovedJob(job, State.READY, ("stalled",), worker) for job in rescued.ready),
        *(MovedJob(job, State.RETRYING, ("stalled",), worker) for job in rescued.retrying),
        *(MovedJob(job, State.DEAD, ("stalled", "dead"), worker) for job in rescued.dead),
        *(MovedJob(job, State.CANCELLED, ("stalled", "cancelled"), worker) for job in rescued.cancelled),
        *(MovedJob(b"", State.READY, (), worker, breaker=each) for each in rescued.breakers),
    ]


def of_acks(worker: str, acks: Iterable[Ack]) -> list[MovedJob]:
    """The jobs that a supervisor judged after it had seen their worker's end."""
    return [
        MovedJob(
            ack.id, ack.to, ("stalled", *names) if ack.outcome is Outcome.INTERRUPTED else names, worker, ack.refund
        )
        for ack in acks
        if (names := names_of(ack))
    ]


def of_expiry(jobs: Iterable[bytes]) -> list[MovedJob]:
    """Jobs that were not started in time."""
    return [MovedJob(job, State.CANCELLED, ("cancelled",), refunded=False) for job in jobs]
