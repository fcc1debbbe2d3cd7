"""When a worker must be killed, and which jobs are guilty: pure rules, without side effects.

Every rule counts from the moment when the worker could last run: a worker that was stopped (SIGSTOP, a debugger, a
suspended machine) gets its whole time again after it continues. Times are boottime seconds.

While a body blocks the event loop of its worker, the other bodies on the loop cannot end, however late it is: only the
body that blocks is charged.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from mainspring.worker.lease import fencing
from mainspring.worker.lease.shared_state import BLOCKED_AFTER, ON_LOOP, STUCK, Phase, RunningBody

TICK_LIMIT = 30.0
"""Seconds without a tick after which the event loop of a worker without jobs counts as blocked."""
TURN_LEASES = 3
"""Leases without a try of a turn, while the event loop and the store work, after which a worker counts as wedged."""
SLOWEST_TURNS = 15.0
"""Seconds between two turns that are normal, whatever the lease is. The turns of an idle worker are 5 s apart."""
MAX_GAP = 2.5
"""Seconds. A longer time between two ticks of a worker, or between two checks of the supervisor, is a gap. A worker
ticks twice a second. After a gap of its own the supervisor gives every worker its whole time again. So a machine that
stood still does not look like a worker whose event loop does not run."""
_SETTLE = 0.5  # seconds that a worker gets to fence itself after supervisor and worker were stopped together


class KillCause(Enum):
    """Why a worker is killed."""

    OVERDUE = "a job ran past its hard time limit and did not end"
    REPLACED = "a job did not end after it was asked to"
    WEDGED_LOOP = "its event loop is blocked"
    WEDGED_TURNS = "it stopped sending turns to the store"
    FENCED = "its lease is over while a guarded job runs"
    LINGERING = "it did not end within its time limit"


class KillDecision(NamedTuple):
    """A worker must be killed."""

    cause: KillCause
    guilty: tuple[RunningBody, ...] = ()
    """The jobs that are charged with a time-out. The other jobs are handed back without blame."""


class ChildSnapshot(NamedTuple):
    """The state of a worker at one moment, as its supervisor sees it."""

    now: float
    stopped: bool
    watched_since: float
    """Since when the supervisor has watched without a gap."""
    moving_since: float
    """Since when the worker was not seen stopped."""
    ticking_since: float
    """Since when its event loop ticks without a gap."""
    heartbeats_since: float
    """Since when heartbeats for the worker succeed, its own or the supervisor's; infinite while they fail."""
    phase: int
    phase_since: float
    ticked: float
    tried: float
    """When it last tried to send a turn. A store that is away or refuses the turn is not the worker's fault."""
    blocker: int
    """The slot of the body that blocks its event loop; -1 if no such body is known."""
    lease_end: float
    jobs: list[RunningBody]
    lease: float
    grace: float
    drain: float


def turns_succeed(now: float, turned: float, lease: float) -> bool:
    """Whether the store answers a worker's turns. Its heartbeats alone do not show this."""
    return now - turned <= max(lease, SLOWEST_TURNS)


def decide_kill(child: ChildSnapshot) -> KillDecision | None:
    """The first rule that the worker breaks, or None."""
    lease_end = max(child.lease_end, child.watched_since + _SETTLE)
    if fencing.must_kill(child.now, lease_end, child.jobs) and child.lease_end > 0:
        return KillDecision(KillCause.FENCED, _find_guilty(child))
    if child.stopped:
        return None
    cause = _find_overdue(child) or _find_lingering(child) or _find_wedged(child)
    return KillDecision(cause, _find_guilty(child)) if cause else None


def _ticked_within(child: ChildSnapshot, seconds: float) -> bool:
    return max(child.ticked, child.moving_since) >= child.now - seconds


def _has_blocked_loop(child: ChildSnapshot) -> bool:
    return child.blocker >= 0 and not _ticked_within(child, BLOCKED_AFTER)


def _is_stuck(child: ChildSnapshot, job: RunningBody) -> bool:
    """The worker itself has found that the body does not end at its limit, and lets its other jobs finish."""
    if job.flags & STUCK:
        return True
    replaced = child.phase in (Phase.REPLACE, Phase.DONE) and _has_blocked_loop(child)
    return replaced and job.call_slot == child.blocker and 0 < job.deadline < child.now


def _is_overdue(child: ChildSnapshot, job: RunningBody, limit: float) -> bool:
    """Whether the body is more than ``limit`` seconds past its hard limit, and could have ended."""
    if job.flags & ON_LOOP and job.call_slot != child.blocker and _has_blocked_loop(child):
        return False
    return job.deadline > 0 and max(job.deadline, child.moving_since) + limit < child.now


def _find_guilty(child: ChildSnapshot) -> tuple[RunningBody, ...]:
    return tuple(job for job in child.jobs if _is_stuck(child, job) or _is_overdue(child, job, child.grace))


def _find_overdue(child: ChildSnapshot) -> KillCause | None:
    """Stuck bodies do not count here: the worker has reported them itself, and drains its other jobs first.

    A worker reports a stuck body when the grace is over, if its event loop runs. It gets a second grace for that: the
    supervisor must not kill it, with its other jobs, in the moment before the report.
    """
    limit = 2 * child.grace if _ticked_within(child, MAX_GAP) else child.grace
    late = any(_is_overdue(child, job, limit) for job in child.jobs if not _is_stuck(child, job))
    return KillCause.OVERDUE if late else None


def _find_lingering(child: ChildSnapshot) -> KillCause | None:
    since = child.now - max(child.phase_since, child.moving_since)
    if child.phase == Phase.REPLACE and since > child.drain + child.grace:
        return KillCause.REPLACED
    if child.phase == Phase.DONE and any(_is_stuck(child, job) for job in child.jobs):
        return KillCause.REPLACED
    limit = {Phase.DRAINING: child.drain + 2 * child.grace, Phase.DONE: 2 * child.grace}.get(Phase(child.phase))
    return KillCause.LINGERING if limit is not None and since > limit else None


def _find_wedged(child: ChildSnapshot) -> KillCause | None:
    if child.phase not in (Phase.RUNNING, Phase.DRAINING):
        return None
    if not child.jobs and 0 < max(child.ticked, child.moving_since) < child.now - TICK_LIMIT:
        return KillCause.WEDGED_LOOP
    working_since = max(child.tried, child.ticking_since, child.moving_since, child.heartbeats_since)
    limit = max(TURN_LEASES * child.lease, SLOWEST_TURNS)
    return KillCause.WEDGED_TURNS if working_since < child.now - limit else None
