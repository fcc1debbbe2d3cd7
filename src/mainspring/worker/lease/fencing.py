"""When bodies must end because their lease may: the rules, without the acting.

A lease that was confirmed by a beat is good for its whole length from the moment that beat was
*sent*: nobody can have started to count earlier. Near its end a worker ends the bodies that must
never overlap with a re-run (``EARLY`` and ``STRICT``); the rest run on, buffer their acks and learn
from the store whether they were taken over. Should the worker not manage (its loop blocked, its GIL
held), whoever watches it kills the process when the lease is over. Moments are boottime seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.worker.lease.shared_state import EARLY, STRICT, RunningBody

GUARDED = EARLY | STRICT


def margin(lease: float) -> float:
    """How long before its end a lease counts as low: time to end a body that yields."""
    return lease / 5


def is_low(now: float, lease_end: float, lease: float) -> bool:
    """Bodies that must not overlap are to end now. Never before the first confirmed beat."""
    return 0 < lease_end <= now + margin(lease)


def is_over(now: float, lease_end: float) -> bool:
    """Somebody may have started to re-run the jobs. Never before the first confirmed beat."""
    return 0 < lease_end <= now


def guarded(jobs: Iterable[RunningBody]) -> list[RunningBody]:
    """The bodies that must not outlive the lease."""
    return [job for job in jobs if job.flags & GUARDED]


def must_kill(now: float, lease_end: float, jobs: Iterable[RunningBody]) -> bool:
    """The lease is over and a body that must not overlap still runs."""
    return is_over(now, lease_end) and bool(guarded(jobs))
