"""Log lines for failed attempts, dead jobs, dropped results and breakers that change: one line each, with the fields of
the job.

Success is not logged here, except a success whose result was dropped: see ``job_lines``. Where a worker logs a line for
each attempt, those lines replace the lines of failed attempts and dead jobs. The error is shown in its stored form,
without secrets, whichever log handler shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX
from mainspring.common.duration import format_duration
from mainspring.common.text import cut
from mainspring.jobs.lanes import is_in_suspect_lane
from mainspring.jobs.outcomes import Outcome
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.breakers.records import BreakerRow
    from mainspring.codec import ErrorRecord
    from mainspring.jobs.outcomes import Ack
    from mainspring.states import Reason
    from mainspring.worker.run.attempt import RunningAttempt

ERROR = "_mainspring_error"
"""Attribute of a log record with the stored form of an error, where there is no exception to show."""
_MESSAGE_LIMIT = 500

log = logging.getLogger("mainspring.worker")


def log_failed_attempt(attempt: RunningAttempt, error: ErrorRecord, retries: int, delay: int) -> None:
    """The attempt failed. The next attempt starts in ``delay`` microseconds."""
    if attempt.environment.job_lines is None and log.isEnabledFor(logging.WARNING):
        number, pause = attempt.claim.attempt, wait_text(delay)
        text = f"attempt {number} of {retries + 1} failed, retry in {pause}: {shorten_error(error)}"
        log_record(logging.WARNING, text, attempt.log_fields)


def log_dead_job(attempt: RunningAttempt, error: ErrorRecord, reason: Reason | None) -> None:
    """The attempt failed, and there is no further attempt."""
    if attempt.environment.job_lines is None and log.isEnabledFor(logging.ERROR):
        log_record(logging.ERROR, f"the job is dead ({reason}): {shorten_error(error)}", attempt.log_fields, error)


def log_crashed_attempt(attempt: RunningAttempt, ack: Ack) -> None:
    """The process that ran this job alone has died, and the store has charged the crash to the job."""
    number = attempt.claim.crashes + 1
    is_last = ack.to is State.DEAD or is_in_suspect_lane(attempt.claim.lane)
    level = logging.ERROR if is_last else logging.WARNING
    if attempt.environment.job_lines is None and log.isEnabledFor(level):
        what = f"the job is dead ({ack.reason})" if is_last else f"the attempt crashed (crash {number} of the job)"
        log_record(level, f"{what}{_said(ack)}", attempt.log_fields)


def log_dropped_result(attempt: RunningAttempt, note: ErrorRecord) -> None:
    """The job has succeeded, but its result is too large and is not stored."""
    if log.isEnabledFor(logging.WARNING):
        text = f"the job of task {attempt.claim.task!r} succeeded without a result: {note.message}"
        log_record(logging.WARNING, text, attempt.log_fields)


def log_dead_with_worker(worker: str, why: str, jobs: Iterable[bytes], acks: Iterable[Ack] = ()) -> None:
    """These jobs are dead because their worker ended. ``acks`` are the ends of the jobs that are charged for it."""
    ends = {ack.id: ack for ack in acks}
    for job in {*jobs, *ends}:
        id, ack = str(UUID(bytes=job)), ends.get(job)
        fields = {"job_id": id, "worker": worker}
        said = _said(ack)
        if ack is not None and ack.outcome is Outcome.CRASHED:
            log_record(logging.WARNING, f"an attempt of job {id} crashed ({why}){said}", fields)
        elif ack is None or ack.to is State.DEAD:
            log_record(logging.ERROR, f"job {id} is dead: its worker ended ({why}){said}", fields)
        elif ack.to is State.RETRYING:
            text = f"an attempt of job {id} ended with its worker ({why}), retry in {wait_text(ack.delay)}{said}"
            log_record(logging.WARNING, text, fields)


def _said(ack: Ack | None) -> str:
    if ack is None or not ack.error:
        return ""
    from mainspring.codec import ErrorRecord  # heavy, and rarely needed in a supervisor

    return f": {shorten_error(msgspec.json.decode(ack.error, type=ErrorRecord))}"


def log_stuck_body(attempt: RunningAttempt, cause: str, place: str, consequence: str) -> None:
    """The body was to be ended, but it is in a call that cannot be interrupted."""
    where = f" at {place}" if place else ""
    text = f"job {UUID(bytes=attempt.claim.id)} ({attempt.claim.task}) {cause} and does not end{where}: {consequence}"
    log_record(logging.ERROR, text, attempt.log_fields)


def log_stalled_loop(seconds: float) -> None:
    """The event loop of this worker does not run, though no Python function runs on it."""
    log.warning(
        "the event loop of this worker has not run for %.1f s, and no function blocks it: the process gets no "
        "processor time (a crowded machine, a CPU quota), or a thread holds the GIL in C code",
        seconds,
    )


def log_blocked_loop(attempt: RunningAttempt | None, seconds: float, place: str) -> None:
    """The event loop of this worker does not run: the body of ``attempt`` blocks it; None if another function does."""
    if attempt is None:
        what = "something outside of the bodies of jobs (a callback, a hook, or a task that a body has started)"
    else:
        what = f"task {attempt.claim.task!r} (job {UUID(bytes=attempt.claim.id)})"
    text = (
        f"{what} has blocked the event loop for {seconds:.1f} s; the other async jobs of this worker stand still, "
        "and it starts no new jobs\n"
        f"{place}\n  Write the task as def, or call the blocking function with await asyncio.to_thread(...)."
    )
    log_record(logging.WARNING, text, {} if attempt is None else attempt.log_fields)


def log_breaker_changes(breakers: Iterable[BreakerRow]) -> None:
    """Acks of this worker have opened, closed or probed these breakers."""
    for each in breakers:
        name = each.name.removesuffix(BREAKER_SUFFIX)
        if each.state == "open":
            log.warning("breaker %s is open after %d failures; the last failure: %s", name, each.failures, each.error)
        else:
            log.info("breaker %s is %s", name, "closed again" if each.state == "closed" else "half-open")


def log_record(level: int, text: str, fields: Mapping[str, Any], error: ErrorRecord | None = None) -> None:
    """Log a line with these fields. ``extra=`` would refuse fields that a record factory of the program has set."""
    record = log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None)
    vars(record).update(fields)
    if error is not None:
        record.exc_text = error.traceback.rstrip()  # the standard formatters show this text
        setattr(record, ERROR, error)
    log.handle(record)


def shorten_error(error: ErrorRecord) -> str:
    """The type and the message of an error, at most 500 characters."""
    return cut(f"{error.type}: {error.message}", _MESSAGE_LIMIT) if error.message else error.type


def wait_text(delay: int) -> str:
    """``delay`` microseconds for people, rounded: ``5s``, ``1m40s``."""
    seconds = delay / 1e6
    return format_duration(round(seconds, 3 if seconds < 1 else 1 if seconds < 60 else 0))
