"""From how a body ended to the ack that says so. Decides; knows no store and no loop."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from mainspring.clock import from_datetime
from mainspring.codec import describe_error, dumps
from mainspring.duration import to_us
from mainspring.errors import (
    Cancel,
    Fenced,
    HardTimeout,
    JobCancelled,
    MainspringError,
    Retry,
    Signal,
    Snooze,
    SoftTimeout,
    Undecodable,
)
from mainspring.outcomes import Ack
from mainspring.states import Reason
from mainspring.worker.attempt import Attempt, Ending

if TYPE_CHECKING:
    from mainspring.spec import TaskSpec

log = logging.getLogger("mainspring.worker")

_MICROSECOND = timedelta(microseconds=1)


class Interrupted(MainspringError):
    """The attempt was ended because its worker stops; recorded, never raised in a handler."""


class BodyEnded(BaseException):
    """Raised inside a thread body that must end and did not listen to a milder word."""


def encoded(error: BaseException) -> bytes:
    """The record of an error."""
    return dumps(describe_error(error))


def judge(attempt: Attempt, error: BaseException, retries: int, run_us: int) -> Ack:
    """The ack for a body that ended by raising ``error``.

    A body that was asked to end has ended because of that, whatever it raised on its way out. An
    ``ack="early"`` job began and must not begin again, unless its handler asks for it by Retry.
    """
    if attempt.ending is Ending.HARD:
        return timed_out(attempt, retries, run_us)
    if isinstance(error, Signal):
        return _signalled(attempt, error, retries, run_us)
    if attempt.ending:
        return _ended(attempt, error, run_us)
    if isinstance(error, Undecodable) and not attempt.begun:
        return Ack.dead(attempt.lease, encoded(error), Reason.UNDECODABLE)
    soft = isinstance(error, SoftTimeout) and attempt.soft_due
    if not may_retry(attempt.spec, error):
        return Ack.dead(attempt.lease, encoded(error), Reason.NOT_RETRYABLE, timed_out=soft, run_us=run_us)
    return _failed(attempt, error, 0 if attempt.claim.early else retries, run_us, timed_out=soft)


def timed_out(attempt: Attempt, retries: int, run_us: int) -> Ack:
    """The ack for a body that ended at or after its hard limit."""
    error = HardTimeout(attempt.timeout / 1e6)
    if attempt.claim.early or not may_retry(attempt.spec, error):
        retries = 0
    return _failed(attempt, error, retries, run_us, timed_out=True)


def handed_back(attempt: Attempt, run_us: int) -> Ack:
    """The ack for an attempt that is given back without blame; one acked early that began is over for good."""
    if not attempt.begun:
        return Ack.returned(attempt.lease)
    fenced = attempt.ending is Ending.FENCE
    error: MainspringError = (
        Fenced("the attempt was ended: its worker could not prove its lease any longer")
        if fenced
        else Interrupted("the attempt was ended because its worker stopped")
    )
    if attempt.claim.early:
        return Ack.lost_early(attempt.lease, encoded(error), run_us=run_us)
    return Ack.interrupted(attempt.lease, encoded(error), run_us=run_us)


def may_retry(spec: TaskSpec, error: BaseException) -> bool:
    """Whether the task's error classes and predicate allow another attempt after ``error``."""
    if isinstance(error, spec.never_retry_on):
        return False
    # SystemExit, or a CancelledError of its own doing, counts as an Exception here.
    wanted = isinstance(error, spec.retry_on) or (not isinstance(error, Exception) and Exception in spec.retry_on)
    if spec.retry_on and not wanted:
        return False
    if spec.retry_if is None:
        return True
    try:
        return bool(spec.retry_if(error))
    except Exception:
        log.exception("retry_if of task %r raised; the error is not retried", spec.name)
        return False


def retry_in(spec: TaskSpec, attempt: int, error: BaseException) -> int:
    """Microseconds until the next attempt, by the task's backoff."""
    delay, problem = spec.backoff.plan(attempt, error)
    if problem is not None:
        log.error("backoff function of task %r failed, the default is used: %r", spec.name, problem)
    return delay // _MICROSECOND


def _ended(attempt: Attempt, error: BaseException, run_us: int) -> Ack:
    if attempt.ending is Ending.CANCEL:
        said = error if isinstance(error, JobCancelled) else JobCancelled(reason=attempt.reason)
        return Ack.cancelled(attempt.lease, encoded(said), run_us=run_us)
    return handed_back(attempt, run_us)


def _signalled(attempt: Attempt, signal: Signal, retries: int, run_us: int) -> Ack:
    lease = attempt.lease
    try:
        match signal:
            case Snooze(for_=None, until=until) if until is not None:
                return Ack.snoozed(lease, due=from_datetime(until, what="Snooze until"), run_us=run_us)
            case Snooze(for_=for_) if for_ is not None:
                return Ack.snoozed(lease, delay=to_us(for_, what="Snooze for_"), run_us=run_us)
            case Retry(after=after):
                delay = None if after is None else to_us(after, what="Retry after")
                return _failed(attempt, signal, retries, run_us, delay=delay)
            case Cancel():
                return Ack.cancelled(lease, encoded(signal), run_us=run_us)
    except MainspringError as wrong:  # a duration or moment that cannot be read: an error of the handler
        return _failed(attempt, wrong, retries, run_us)
    return Ack.dead(lease, encoded(signal), Reason.NOT_RETRYABLE, run_us=run_us)


def _failed(
    attempt: Attempt,
    error: BaseException,
    retries: int,
    run_us: int,
    *,
    timed_out: bool = False,
    delay: int | None = None,
) -> Ack:
    if attempt.claim.attempt > retries:
        reason = Reason.TIMED_OUT if timed_out else Reason.RETRIES_EXHAUSTED
        return Ack.dead(attempt.lease, encoded(error), reason, timed_out=timed_out, run_us=run_us)
    if delay is None:
        delay = retry_in(attempt.spec, attempt.claim.attempt, error)
    return Ack.failed(attempt.lease, encoded(error), retry_in=delay, timed_out=timed_out, run_us=run_us)
