"""The outcome of an attempt, and the ack that reports it to the store.

The core decides and the store writes: the executor returns an outcome, the worker makes an :class:`Ack` with one of the
named constructors, and the store applies it in the next turn. Do not build an ``Ack`` field by field.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import msgspec

from mainspring.limits.records import Bucket  # at run time: acks of pool children are decoded
from mainspring.states import FINAL, Action, Reason, State

CRASH_DELAYS = (0, 5_000_000, 20_000_000, 80_000_000, 320_000_000, 600_000_000)
"""Microseconds before the next try after the 1st, 2nd, ... crash: at once first, then with backoff."""


class Outcome(StrEnum):
    """The outcome of one attempt."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"
    CRASHED = "crashed"
    LOST = "lost"


class Lease(NamedTuple):
    """The right to write for a job: valid while ``token`` is the last token of the job and the worker is not lost."""

    id: bytes
    token: int


class Ack(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A report that ends an attempt. See the constructors for the legal combinations."""

    id: bytes
    token: int
    outcome: Outcome
    to: State
    reason: Reason | None = None
    delay: int = 0
    """Microseconds from the store's now until the job is due, for ``retrying`` and ``scheduled``."""
    due: int | None = None
    """An absolute due time in microseconds, instead of ``delay``."""
    result: bytes | None = None
    error: bytes | None = None
    """An encoded ``ErrorRecord``."""
    label: str | None = None
    """The type of the error, by which dead jobs are grouped."""
    refund: bool = False
    """The attempt is given back: it does not count for ``retries``."""
    unstarted: bool = False
    """The body never began, so the job keeps its ``expires``: the limit is for the first start."""
    park: bool = False
    """The worker does not know the task: the job is ready again, for workers that know the task only."""
    buckets: tuple[Bucket, ...] = ()
    """Buckets that the task names and the job did not: the job is ready again at its old position and names them
    too."""
    run_us: int = 0
    """Microseconds that the body ran, by the worker's monotonic clock."""
    slow: int = 0
    """Microseconds from now for which the rates that the job names let no job start."""
    spent: tuple[tuple[str, int], ...] = ()
    """The real cost of the attempt, by limit: the store adds the difference to the cost of its start, or gives it
    back."""
    fault: str = ""
    """The failure in a few words, if it counts for the breakers that the job names. The store does not read it."""
    delays: tuple[int, ...] = ()
    """Of a crash: microseconds before the next try after the 1st, 2nd, ... crash of the job."""

    @property
    def lease(self) -> Lease:
        return Lease(self.id, self.token)

    @property
    def action(self) -> Action:
        return ACTIONS[self.outcome]

    @property
    def may_end_job(self) -> bool:
        """Whether the job may have ended with this ack. The store decides whether a crash was the last of its job."""
        return self.to in FINAL or self.outcome is Outcome.CRASHED

    @classmethod
    def succeeded(
        cls, lease: Lease, result: bytes | None = None, *, error: bytes | None = None, run_us: int = 0
    ) -> Ack:
        """The job succeeded. ``error`` is a note, for example that the result was too large to be stored."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.SUCCEEDED, to=State.SUCCEEDED,
            result=result, error=error, run_us=run_us,
        )  # fmt: skip

    @classmethod
    def failed(
        cls, lease: Lease, error: bytes, *, retry_in: int, timed_out: bool = False, run_us: int = 0, fault: str = ""
    ) -> Ack:
        """The attempt failed and the job is tried again ``retry_in`` microseconds from now."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.TIMED_OUT if timed_out else Outcome.FAILED,
            to=State.RETRYING, delay=retry_in, error=error, run_us=run_us, fault=fault,
        )  # fmt: skip

    @classmethod
    def dead(
        cls, lease: Lease, error: bytes, reason: Reason, *, label: str = "", timed_out: bool = False, run_us: int = 0,
        fault: str = "",
    ) -> Ack:  # fmt: skip
        """The attempt failed and the job is not tried again."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.TIMED_OUT if timed_out else Outcome.FAILED,
            to=State.DEAD, reason=reason, error=error, label=label or None, run_us=run_us, fault=fault,
        )  # fmt: skip

    @classmethod
    def snoozed(cls, lease: Lease, *, delay: int = 0, due: int | None = None, slow: int = 0, run_us: int = 0) -> Ack:
        """Run the job later; this attempt does not count. ``slow``: see the field."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.SNOOZED, to=State.SCHEDULED,
            delay=delay, due=due, slow=slow, refund=True, run_us=run_us,
        )  # fmt: skip

    @classmethod
    def cancelled(cls, lease: Lease, error: bytes | None = None, *, run_us: int = 0) -> Ack:
        """The handler cancelled the job, or obeyed a cancel order."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.CANCELLED, to=State.CANCELLED,
            reason=Reason.BY_USER, error=error, run_us=run_us,
        )  # fmt: skip

    @classmethod
    def bypassed(cls, lease: Lease) -> Ack:
        """The job has nothing to do: the body never began, and the jobs behind it go on."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.CANCELLED, to=State.CANCELLED,
            reason=Reason.BYPASSED, refund=True, unstarted=True,
        )  # fmt: skip

    @classmethod
    def interrupted(cls, lease: Lease, error: bytes | None = None, *, run_us: int = 0) -> Ack:
        """The worker ended the body (stop, deploy, lost lease): the job is ready again, without a crash."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.INTERRUPTED, to=State.READY,
            error=error, refund=True, run_us=run_us,
        )  # fmt: skip

    @classmethod
    def lost_early(cls, lease: Lease, error: bytes, *, label: str = "", run_us: int = 0) -> Ack:
        """The interrupted body belongs to an ``ack="early"`` job: the job began, so it never runs again."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.INTERRUPTED, to=State.DEAD,
            reason=Reason.NOT_RETRYABLE, error=error, label=label or None, run_us=run_us,
        )  # fmt: skip

    @classmethod
    def returned(cls, lease: Lease, *, park: bool = False, buckets: tuple[Bucket, ...] = ()) -> Ack:
        """The body never began (claimed ahead, expired, unknown task, missing limits): the job is ready again."""
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.INTERRUPTED, to=State.READY, refund=True,
            unstarted=True, park=park, buckets=buckets,
        )  # fmt: skip

    @classmethod
    def crashed(
        cls, lease: Lease, error: bytes, *, delays: tuple[int, ...] = CRASH_DELAYS, out_of_memory: bool = False,
        early: bool = False, label: str = "", run_us: int = 0, fault: str = "",
    ) -> Ack:  # fmt: skip
        """The process that ran this job alone has ended, and its worker is alive: a crash that this job caused.

        The store charges the crash to the job, as :meth:`Store.rescue` does for the only job of a dead worker: the job
        is ready again, or retrying for ``delays[crashes - 1]``, or dead at its crash limit. ``out_of_memory``: the
        reason of a dead job is ``out_of_memory`` instead of ``crashed``. ``early``: the task has ``ack="early"``, which
        the store may not know, so the job is dead in any case.
        """
        return cls(
            id=lease.id, token=lease.token, outcome=Outcome.CRASHED, to=State.DEAD if early else State.READY,
            reason=Reason.OUT_OF_MEMORY if out_of_memory else Reason.CRASHED, delays=delays, refund=True,
            error=error, label=label or None, run_us=run_us, fault=fault,
        )  # fmt: skip


ACTIONS = {
    Outcome.SUCCEEDED: Action.ACK_SUCCEEDED,
    Outcome.FAILED: Action.ACK_FAILED,
    Outcome.TIMED_OUT: Action.ACK_TIMED_OUT,
    Outcome.SNOOZED: Action.ACK_SNOOZED,
    Outcome.CANCELLED: Action.ACK_CANCELLED,
    Outcome.INTERRUPTED: Action.ACK_INTERRUPTED,
    Outcome.CRASHED: Action.RESCUE,
    Outcome.LOST: Action.RESCUE,
}
