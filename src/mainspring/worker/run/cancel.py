"""How a running body is asked to end.

For an ``async`` body, its task is cancelled. In a thread body an exception is raised: first one that the body may catch
to clean up, then ``BodyEnded``, which no ``except Exception`` catches. A body that has not started is only marked, and
its pool does not start it.
"""

from __future__ import annotations

from mainspring.errors import SoftTimeout
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt
from mainspring.worker.run.classify import BodyEnded, ending_error

_SECOND_REQUEST = 0.8  # part of the grace after which a body that still runs is interrupted a second time


def request_end(attempt: RunningAttempt, ending: Ending, now: float, grace: float, reason: str = "") -> bool:
    """Ask the body to end. False if it has ended, or was asked before for the same or a stronger reason."""
    if attempt.finished or ending <= attempt.ending:
        return False
    attempt.ending = ending
    attempt.ending_reason = reason
    attempt.ending_since = now
    if attempt.begun:
        attempt.check_at = now + grace * _SECOND_REQUEST
        _interrupt(attempt, ending_error(attempt))
    return True


def repeat_request(attempt: RunningAttempt, now: float, grace: float) -> bool:
    """The body still runs: interrupt it with ``BodyEnded``. True once the grace is over."""
    if now >= attempt.ending_since + grace:
        attempt.check_at = NEVER
        return True
    attempt.check_at = attempt.ending_since + grace
    _interrupt(attempt, BodyEnded("this attempt must end"))
    return False


def raise_soft_timeout(attempt: RunningAttempt) -> None:
    """The soft limit passed: raise ``SoftTimeout`` in the body."""
    attempt.soft_at, attempt.soft_raised, attempt.soft_pending = NEVER, True, True
    attempt.check_at = attempt.deadline
    _interrupt(attempt, SoftTimeout(attempt.spec.soft_timeout / 1e6))


def _interrupt(attempt: RunningAttempt, error: BaseException) -> None:
    if attempt.child is not None:
        attempt.child.end(attempt, attempt.ending, attempt.ending_reason)
    elif attempt.thread is not None:
        attempt.thread.throw(attempt, error)
    elif attempt.task is not None:
        attempt.task.cancel()
