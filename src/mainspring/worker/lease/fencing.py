"""When bodies must end because the lease ends: pure rules, without side effects.

A lease that a heartbeat confirmed is valid for its whole length from the moment when the heartbeat was *sent*: no other
process can have started to count earlier. Near the end of the lease, a worker ends the bodies that must never overlap
with a re-run (``EARLY`` and ``STRICT``). The other bodies continue; their acks wait, and the store's answer shows
whether another worker has taken their jobs. If the worker cannot end the bodies (its loop is blocked, or the GIL is
held), its supervisor kills the process when the lease is over. Moments are boottime seconds.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.worker.lease.shared_state import EARLY, STRICT, RunningBody

GUARDED = EARLY | STRICT


def margin(lease: float) -> float:
    """Seconds before its end at which a lease counts as low: enough to end a body that cooperates."""
    return lease / 5


def is_low(now: float, lease_end: float, lease: float) -> bool:
    """Whether guarded bodies must end now. False before the first confirmed heartbeat."""
    return 0 < lease_end <= now + margin(lease)


def is_over(now: float, lease_end: float) -> bool:
    """Whether other workers may have started to re-run the jobs. False before the first confirmed heartbeat."""
    return 0 < lease_end <= now


def find_guarded(jobs: Iterable[RunningBody]) -> list[RunningBody]:
    """The bodies that must end before the lease ends."""
    return [job for job in jobs if job.flags & GUARDED]


def must_kill(now: float, lease_end: float, jobs: Iterable[RunningBody]) -> bool:
    """Whether the lease is over and a guarded body still runs."""
    return is_over(now, lease_end) and bool(find_guarded(jobs))
