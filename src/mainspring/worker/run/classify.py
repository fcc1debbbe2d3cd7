"""From the end of a body to its ack: success, retry, dead, cancelled, handed back. Uses neither store nor loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainspring.codec import describe_error, dumps
from mainspring.codec.failures import words_of
from mainspring.common.callables import let_go
from mainspring.common.clock import from_datetime
from mainspring.common.duration import to_us
from mainspring.errors import (
    BreakerOpen,
    Cancel,
    ConfigError,
    Fenced,
    ForkedWorker,
    HardTimeout,
    JobCancelled,
    MainspringError,
    MiddlewareError,
    MissingArgument,
    NoMainGuard,
    NotOpen,
    RateLimited,
    ResultNotSerializable,
    ResultTooLarge,
    Retry,
    Signal,
    Snooze,
    SoftTimeout,
    Undecodable,
    UnknownArgument,
    WouldBlockLoop,
    WouldDeadlock,
)
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.states import Reason
from mainspring.worker import failure_log
from mainspring.worker.run.attempt import Ending, RunningAttempt

if TYPE_CHECKING:
    from mainspring.tasks.spec import TaskSpec

log = logging.getLogger("mainspring.worker")

PAUSE = 1_000_000
"""Microseconds: the pause of a snooze that asks for none. Without one the job would run again and again, with no end.
"""
_MICROSECOND = timedelta(microseconds=1)
_MISUSE = (
    ConfigError, WouldBlockLoop, WouldDeadlock, NoMainGuard, ForkedWorker, MissingArgument, UnknownArgument,
    MiddlewareError, NotOpen,
)  # fmt: skip
"""Errors of the program itself: another attempt of the same code raises the same error."""
_CALLERS = str(Path(__file__).parent) + os.sep
"""The directory of the modules that call the functions of tasks."""


class Interrupted(MainspringError):
    """The attempt was ended because its worker stops. Recorded, never raised in a handler."""


class BodyEnded(BaseException):
    """Raised inside a thread body that must end and did not end after the first exception."""


def ending_error(attempt: RunningAttempt) -> BaseException:
    """The error to raise in a body that must end."""
    match attempt.ending:
        case Ending.CANCEL:
            return JobCancelled(UUID(bytes=attempt.claim.id), attempt.ending_reason)
        case Ending.HARD:
            return HardTimeout(attempt.timeout / 1e6, attempt.ending_reason)
        case Ending.FENCE | Ending.GONE:
            return Fenced("this worker can no longer prove that it owns the job")
        case _:
            return BodyEnded("the worker stops")


def encode_error(error: BaseException, code: str = "") -> bytes:
    """The record of an error; ``code`` is the version of the code that ran."""
    return dumps(describe_error(error, code=code))


def ack_error(attempt: RunningAttempt, error: BaseException, retries: int, run_us: int) -> Ack:
    """The ack for a body that ended with ``error``.

    If the body was asked to end, that is the reason of its end, whatever it raised. A job with ``ack="early"`` has
    begun and must not begin again, unless its handler raises ``Retry``.
    """
    if attempt.ending is Ending.HARD:
        return ack_hard_timeout(attempt, retries, run_us)
    signal = _signal_of(error)
    if signal is not None:
        return _ack_signal(attempt, signal, retries, run_us)
    if attempt.ending:
        return _ack_requested_end(attempt, error, run_us)
    if isinstance(error, BreakerOpen) and not isinstance(error, attempt.spec.never_retry_on):
        return Ack.snoozed(attempt.lease, delay=error.retry_after // _MICROSECOND, run_us=run_us)
    if isinstance(error, Undecodable) and not attempt.begun:
        return _ack_dead(attempt, error, Reason.UNDECODABLE, 0)
    if isinstance(error, _MISUSE) or _is_wrong_call(error):
        return _ack_dead(attempt, error, Reason.NOT_RETRYABLE, run_us)
    soft = isinstance(error, SoftTimeout) and attempt.soft_raised
    if not may_retry(attempt.spec, error):
        return _ack_dead(attempt, error, Reason.NOT_RETRYABLE, run_us, timed_out=soft)
    return _ack_failed(attempt, error, 0 if attempt.early else retries, run_us, timed_out=soft)


def ack_crashed(attempt: RunningAttempt, error: MainspringError, run_us: int, *, out_of_memory: bool = False) -> Ack:
    """The ack for a body whose child process died."""
    record = describe_error(error, code=attempt.environment.code)
    fault = _breaker_fault(attempt, error, retryable=True)
    return Ack.crashed(
        attempt.lease,
        dumps(record),
        label=record.type,
        early=attempt.early,
        out_of_memory=out_of_memory,
        run_us=run_us,
        fault=fault,
    )


def ack_cancelled(attempt: RunningAttempt, run_us: int) -> Ack:
    """The ack for a body that was ended by a cancel order."""
    error = JobCancelled(UUID(bytes=attempt.claim.id), attempt.ending_reason)
    return Ack.cancelled(attempt.lease, encode_error(error, attempt.environment.code), run_us=run_us)


def ack_hard_timeout(attempt: RunningAttempt, retries: int, run_us: int) -> Ack:
    """The ack for a body that ended at or after its hard limit."""
    error = HardTimeout(attempt.timeout / 1e6, attempt.ending_reason)
    if attempt.early or not may_retry(attempt.spec, error):
        retries = 0
    return _ack_failed(attempt, error, retries, run_us, timed_out=True)


def ack_unstored_result(attempt: RunningAttempt, note: MainspringError, run_us: int) -> Ack:
    """The ack for a body that returned a value which is not stored.

    A result that is too large is dropped, and the job has succeeded. Any other result that cannot be stored is an error
    of the code: every attempt would end with the same error, so the job is not tried again.
    """
    if not isinstance(note, ResultTooLarge):
        return _ack_dead(attempt, note, Reason.NOT_RETRYABLE, run_us)
    record = describe_error(note, code=attempt.environment.code)
    failure_log.log_dropped_result(attempt, record)
    return Ack.succeeded(attempt.lease, error=dumps(record), run_us=run_us)


def unrun_error(value: Any) -> ResultNotSerializable:
    """The error for a body that returned a coroutine or a generator: the work was not done."""
    return ResultNotSerializable(
        f"the function returned {let_go(value)}, which has not run: the work is not done",
        hint="Await it, or write the task as async def; a decorator around an async def must be async itself.",
    )


def unraised_error(value: Any) -> ResultNotSerializable | None:
    """The error for a body that returned an exception, or an exception class, and did not raise it; else None."""
    kind = value if isinstance(value, type) else type(value)
    if not issubclass(kind, BaseException):
        return None
    name = kind.__name__
    article = "an" if name[:1] in "AEIO" else "a"
    return ResultNotSerializable(
        f"the function returned {article} {name}, which has no effect: only an exception that is raised has one",
        hint=f"Write raise {name}(...), not return {name}(...).",
    )


def ack_unnamed_task(lease: Lease, task: object, code: str) -> Ack:
    """The ack for a job whose task name is not text: no worker can have such a task."""
    error = Undecodable(
        f"job of task {task!r}", "the name of its task is not text", hint="Delete the job, and enqueue it again."
    )
    record = describe_error(error, code=code)
    log.error("job %s is dead: %s", UUID(bytes=lease.id), record.message)
    return Ack.dead(lease, dumps(record), Reason.UNDECODABLE, label=record.type)


def ack_handed_back(attempt: RunningAttempt, run_us: int) -> Ack:
    """The ack for an attempt that is handed back without blame. A begun attempt with ``ack="early"`` is dead."""
    if not attempt.begun:
        return Ack.returned(attempt.lease)
    fenced = attempt.ending is Ending.FENCE
    error: MainspringError = (
        Fenced("the attempt was ended because its worker could no longer prove its lease")
        if fenced
        else Interrupted("the attempt was ended because its worker stopped")
    )
    record = describe_error(error, code=attempt.environment.code)
    if attempt.early:
        failure_log.log_dead_job(attempt, record, Reason.NOT_RETRYABLE)
        return Ack.lost_early(attempt.lease, dumps(record), label=record.type, run_us=run_us)
    return Ack.interrupted(attempt.lease, dumps(record), run_us=run_us)


def may_retry(spec: TaskSpec, error: BaseException) -> bool:
    """Whether the task's error classes and predicate allow another attempt after ``error``.

    The classes are compared with a group of errors, such as that of a ``TaskGroup``, and with the errors in it: another
    attempt needs that all of them may be retried.
    """
    leaves = list(_leaves(error))
    if any(isinstance(each, spec.never_retry_on) for each in (error, *leaves)):
        return False
    if spec.retry_on and not (isinstance(error, spec.retry_on) or all(_is_wanted(spec, each) for each in leaves)):
        return False
    if spec.retry_if is None:
        return True
    try:
        return bool(spec.retry_if(error))
    except Exception:
        log.exception("retry_if of task %r raised an error; the job is not retried", spec.name)
        return False


def _is_wanted(spec: TaskSpec, error: BaseException) -> bool:
    # SystemExit, or a CancelledError that the body raised itself, counts as an Exception here.
    return isinstance(error, spec.retry_on) or (not isinstance(error, Exception) and Exception in spec.retry_on)


def _leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group of errors, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _signal_of(error: BaseException) -> Signal | None:
    """The signal that the body raised, also inside of a ``TaskGroup`` if nothing else was raised there."""
    if isinstance(error, Signal):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    first, *others = _leaves(error)
    return first if isinstance(first, Signal) and not others else None


def _is_wrong_call(error: BaseException) -> bool:
    """Whether the function of the task does not accept the arguments that its signature promises, for example because
    a decorator has other parameters. Such an error has no frame of the function: it is raised in the frame that calls
    the function."""
    if not isinstance(error, TypeError) or error.__traceback__ is None:
        return False
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_code.co_filename.startswith(_CALLERS)


def retry_delay(spec: TaskSpec, attempt: int, error: BaseException) -> int:
    """Microseconds until the next attempt, by the task's backoff."""
    delay, problem = spec.backoff.plan(attempt, error)
    if problem is not None:
        log.error("the backoff function of task %r failed; the default backoff is used: %r", spec.name, problem)
    return delay // _MICROSECOND


def _ack_requested_end(attempt: RunningAttempt, error: BaseException, run_us: int) -> Ack:
    if attempt.ending is Ending.CANCEL:
        cancelled = error if isinstance(error, JobCancelled) else JobCancelled(reason=attempt.ending_reason)
        return Ack.cancelled(attempt.lease, encode_error(cancelled, attempt.environment.code), run_us=run_us)
    return ack_handed_back(attempt, run_us)


def _ack_signal(attempt: RunningAttempt, signal: Signal, retries: int, run_us: int) -> Ack:
    lease = attempt.lease
    try:
        match signal:
            case Snooze(for_=None, until=until) if until is not None:
                due = from_datetime(until, what="Snooze until")
                if due <= attempt.environment.store_now():
                    return Ack.snoozed(lease, delay=PAUSE, run_us=run_us)
                return Ack.snoozed(lease, due=due, run_us=run_us)
            case Snooze(for_=for_) if for_ is not None:
                return Ack.snoozed(lease, delay=to_us(for_, what="Snooze for_") or PAUSE, run_us=run_us)
            case RateLimited(retry_after=pause):
                slow = to_us(pause, what="RateLimited retry_after")
                return Ack.snoozed(lease, delay=slow or PAUSE, slow=slow, run_us=run_us)
            case Retry(after=after):
                delay = None if after is None else to_us(after, what="Retry after")
                return _ack_failed(attempt, signal, retries, run_us, delay=delay)
            case Cancel():
                return Ack.cancelled(lease, encode_error(signal, attempt.environment.code), run_us=run_us)
    except MainspringError as invalid:  # an invalid duration or moment: every attempt of the handler has the same one
        return _ack_dead(attempt, invalid, Reason.NOT_RETRYABLE, run_us)
    return _ack_dead(attempt, signal, Reason.NOT_RETRYABLE, run_us)


def _ack_failed(
    attempt: RunningAttempt,
    error: BaseException,
    retries: int,
    run_us: int,
    *,
    timed_out: bool = False,
    delay: int | None = None,
) -> Ack:
    """Retry after ``delay`` microseconds (by default, the task's backoff), or dead if no retry is left."""
    if attempt.claim.attempt > retries:
        reason = Reason.RETRIES_EXHAUSTED if retries else Reason.FAILED
        if timed_out:
            reason = Reason.TIMED_OUT
        return _ack_dead(attempt, error, reason, run_us, timed_out=timed_out, retryable=True)
    if delay is None:
        delay = retry_delay(attempt.spec, attempt.claim.attempt, error)
    record = describe_error(error, code=attempt.environment.code)
    failure_log.log_failed_attempt(attempt, record, retries, delay)
    fault = _breaker_fault(attempt, error, retryable=True)
    return Ack.failed(attempt.lease, dumps(record), retry_in=delay, timed_out=timed_out, run_us=run_us, fault=fault)


def _ack_dead(
    attempt: RunningAttempt, error: BaseException, reason: Reason, run_us: int, *, timed_out: bool = False,
    retryable: bool = False,
) -> Ack:  # fmt: skip
    record = describe_error(error, code=attempt.environment.code)
    failure_log.log_dead_job(attempt, record, reason)
    fault = _breaker_fault(attempt, error, retryable=retryable or timed_out)
    return Ack.dead(
        attempt.lease, dumps(record), reason, label=record.type, timed_out=timed_out, run_us=run_us, fault=fault
    )


def _breaker_fault(attempt: RunningAttempt, error: BaseException, *, retryable: bool) -> str:
    """The text by which the task's breaker counts the failure; empty if the failure does not count."""
    breaker = attempt.spec.breaker
    if breaker is None or not attempt.begun or not breaker.counts(error, retryable=retryable):
        return ""
    return words_of(error)
