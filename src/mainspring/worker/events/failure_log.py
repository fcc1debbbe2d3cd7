"""What the log says of attempts that fail and of jobs that die: one line each, with the job's fields.

Nothing is said of success. The error is shown as it is stored, without secrets, whatever handler shows it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainspring.breakers.records import BREAKER_SUFFIX
from mainspring.common.duration import format_duration
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.breakers.records import BreakerRow
    from mainspring.codec import ErrorRecord
    from mainspring.jobs.outcomes import Ack
    from mainspring.states import Reason
    from mainspring.worker.run.attempt import RunningAttempt

ERROR = "_mainspring_error"
"""Attribute of a record that tells of an error by its stored form, where there is no exception to show."""
_MESSAGE_LIMIT = 500

log = logging.getLogger("mainspring.worker")


def failed(attempt: RunningAttempt, error: ErrorRecord, retries: int, delay: int) -> None:
    """There is another attempt, ``delay`` microseconds from now."""
    if log.isEnabledFor(logging.WARNING):
        number, soon = attempt.claim.attempt, format_duration(_rounded(delay))
        text = f"attempt {number} of {retries + 1} failed: {_short(error)}; again in {soon}"
        _say(logging.WARNING, text, attempt.fields)


def dead(attempt: RunningAttempt, error: ErrorRecord, reason: Reason | None) -> None:
    """There is no other attempt."""
    if log.isEnabledFor(logging.ERROR):
        _say(logging.ERROR, f"the job is dead ({reason}): {_short(error)}", attempt.fields, error)


def dead_with_worker(worker: str, why: str, jobs: Iterable[bytes], acks: Iterable[Ack] = ()) -> None:
    """The end of their worker was the end of these jobs."""
    for job in {*jobs, *(ack.id for ack in acks if ack.to is State.DEAD)}:
        id = str(UUID(bytes=job))
        _say(logging.ERROR, f"job {id} is dead: its worker ended ({why})", {"job_id": id, "worker": worker})


def changed(breakers: Iterable[BreakerRow]) -> None:
    """What this worker did has opened or closed breakers."""
    for each in breakers:
        name = each.name.removesuffix(BREAKER_SUFFIX)
        if each.state == "open":
            log.warning("breaker %s is open after %d failures, the last: %s", name, each.failures, each.error)
        else:
            log.info("breaker %s is %s", name, "closed again" if each.state == "closed" else "tried again")


def _say(level: int, text: str, fields: Mapping[str, Any], error: ErrorRecord | None = None) -> None:
    """Not by ``extra=``, which refuses fields that a record factory of the program has set."""
    record = log.makeRecord(log.name, level, __file__, 0, "%s", (text,), None)
    vars(record).update(fields)
    if error is not None:
        record.exc_text = error.traceback.rstrip()  # what the standard formatters show
        setattr(record, ERROR, error)
    log.handle(record)


def _short(error: ErrorRecord) -> str:
    return f"{error.type}: {error.message}"[:_MESSAGE_LIMIT] if error.message else error.type


def _rounded(delay: int) -> float:
    seconds = delay / 1e6
    return round(seconds, 3 if seconds < 1 else 1 if seconds < 60 else 0)
