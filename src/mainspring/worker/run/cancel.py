"""How a running body is asked to end.

An ``async`` body gets its task cancelled. A thread body gets an exception raised inside it: first
one that it may catch to tidy up, then ``BodyEnded``, which no ``except Exception`` stops. A body
that has not started is only marked; its pool does not start it.
"""

from __future__ import annotations

from mainspring.errors import SoftTimeout
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt
from mainspring.worker.run.classify import BodyEnded, ending_error

_LAST_WORD = 0.8  # of the grace: then a body that would not listen is asked a second time, harder


def ask(attempt: RunningAttempt, ending: Ending, now: float, grace: float, reason: str = "") -> bool:
    """Ask the body to end; False if it is over, or was asked for as good a reason before."""
    if attempt.over or ending <= attempt.ending:
        return False
    attempt.ending = ending
    attempt.reason = reason
    attempt.asked_at = now
    if attempt.begun:
        attempt.next_at = now + grace * _LAST_WORD
        _push(attempt, ending_error(attempt))
    return True


def ask_again(attempt: RunningAttempt, now: float, grace: float) -> bool:
    """The body did not listen: the last word, then the verdict. True once the grace is over."""
    if now >= attempt.asked_at + grace:
        attempt.next_at = NEVER
        return True
    attempt.next_at = attempt.asked_at + grace
    _push(attempt, BodyEnded("this attempt must end"))
    return False


def soften(attempt: RunningAttempt) -> None:
    """The soft limit passed: raise SoftTimeout inside the body."""
    attempt.soft_at, attempt.soft_due, attempt.soft_pending = NEVER, True, True
    attempt.next_at = attempt.deadline
    _push(attempt, SoftTimeout(attempt.spec.soft_timeout / 1e6))


def _push(attempt: RunningAttempt, error: BaseException) -> None:
    if attempt.runner is not None:
        attempt.runner.throw(attempt, error)
    elif attempt.task is not None:
        attempt.task.cancel()
