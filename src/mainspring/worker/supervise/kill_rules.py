"""When a worker must be killed, and who is to blame: the rules, without the acting.

Every rule counts from when the worker could last have moved: one that was stopped (SIGSTOP, a
debugger, a suspended machine) gets its time again after it goes on. Times are boottime seconds.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from mainspring.worker.lease import fencing
from mainspring.worker.lease.shared_state import STUCK, Phase, RunningBody

TICK_LIMIT = 30.0
"""Seconds without a tick after which an empty worker's loop counts as wedged."""
TURN_LEASES = 3
"""Leases without a try of a turn, while loop and store are well, after which a worker counts as wedged."""
SLOWEST_TURNS = 15.0
"""Seconds between two turns that are in order whatever the lease is: those of an idle worker are 5 s apart."""
_SETTLE = 0.5  # after a stop of the whole family the worker may fence itself first


class KillCause(Enum):
    """Why a worker is killed."""

    OVERDUE = "a job ran past its hard limit and did not yield"
    REPLACED = "a body would not end"
    WEDGED_LOOP = "its event loop stands still"
    WEDGED_TURNS = "it has stopped talking to the store"
    FENCED = "its lease is over while a guarded job runs"
    LINGERING = "it did not end in its time"


class KillDecision(NamedTuple):
    cause: KillCause
    guilty: tuple[RunningBody, ...] = ()
    """Who is charged with a time-out. The others are handed back without blame."""


class ChildSnapshot(NamedTuple):
    """One look at a worker."""

    now: float
    stopped: bool
    looking_since: float
    """Since when the watcher has looked without a gap."""
    moving_since: float
    """Since when the worker was not seen stopped."""
    ticking_since: float
    """Since when its loop ticks without a gap."""
    beating_since: float
    """Since when the watcher's own beats succeed; infinite while they fail."""
    phase: int
    phase_since: float
    ticked: float
    tried: float
    """When it last tried to make a turn: a store that is away or refuses is no fault of the worker."""
    lease_end: float
    jobs: list[RunningBody]
    lease: float
    grace: float
    drain: float


def claims(now: float, turned: float, lease: float) -> bool:
    """Whether a worker's turns come through: its beats alone say nothing of that."""
    return now - turned <= max(lease, SLOWEST_TURNS)


def judge(look: ChildSnapshot) -> KillDecision | None:
    """The first rule that is broken, or None."""
    if fencing.must_kill(look.now, max(look.lease_end, look.looking_since + _SETTLE), look.jobs) and look.lease_end > 0:
        return KillDecision(KillCause.FENCED, _guilty(look))
    if look.stopped:
        return None
    cause = _overdue(look) or _leaving_too_long(look) or _wedged(look)
    return KillDecision(cause, _guilty(look)) if cause else None


def _is_overdue(look: ChildSnapshot, job: RunningBody) -> bool:
    return job.deadline > 0 and max(job.deadline, look.moving_since) + look.grace < look.now


def _guilty(look: ChildSnapshot) -> tuple[RunningBody, ...]:
    return tuple(job for job in look.jobs if job.flags & STUCK or _is_overdue(look, job))


def _overdue(look: ChildSnapshot) -> KillCause | None:
    """A stuck body is the worker's own finding: its neighbours get the drain time first."""
    late = any(_is_overdue(look, job) for job in look.jobs if not job.flags & STUCK)
    return KillCause.OVERDUE if late else None


def _leaving_too_long(look: ChildSnapshot) -> KillCause | None:
    since = look.now - max(look.phase_since, look.moving_since)
    if look.phase == Phase.REPLACE and since > look.drain + look.grace:
        return KillCause.REPLACED
    if look.phase == Phase.DONE and any(job.flags & STUCK for job in look.jobs):
        return KillCause.REPLACED
    limit = {Phase.DRAINING: look.drain + 2 * look.grace, Phase.DONE: 2 * look.grace}.get(Phase(look.phase))
    return KillCause.LINGERING if limit is not None and since > limit else None


def _wedged(look: ChildSnapshot) -> KillCause | None:
    if look.phase not in (Phase.RUNNING, Phase.DRAINING):
        return None
    if not look.jobs and 0 < max(look.ticked, look.moving_since) < look.now - TICK_LIMIT:
        return KillCause.WEDGED_LOOP
    well_since = max(look.tried, look.ticking_since, look.moving_since, look.beating_since)
    limit = max(TURN_LEASES * look.lease, SLOWEST_TURNS)
    return KillCause.WEDGED_TURNS if well_since < look.now - limit else None
