"""Checks of the promises of Mainspring: pure functions over the history of a run, one for each invariant.

A history is recorded by three kinds of witnesses: the store (the steps of each job, by the store's clock and order),
the clients (their calls and the answers) and the bodies (when each run began and ended, under which token). Add the
disturbances of workers and store, and the promises of each job, and check:

>>> from mainspring.testing.history import History, check
>>> check(History())
[]

`read` makes the store's part from the store itself, at the end of a run. An invariant checks only what the history
contains: in a history without calls, no job can be lost.
"""

from mainspring.testing.history._breakers import BREAKERS
from mainspring.testing.history._concurrency import CONCURRENCY
from mainspring.testing.history._events import (
    Answer,
    BodyRun,
    Bounds,
    ClientCall,
    Disturbance,
    FlowEdge,
    History,
    Holding,
    JobEvent,
    JoinCount,
    LimitBound,
    Occurrence,
    Opening,
    Pause,
    Promise,
    Request,
    Sample,
    Snapshot,
    Violation,
)
from mainspring.testing.history._flows import FLOWS
from mainspring.testing.history._jobs import JOBS
from mainspring.testing.history._leases import LEASES, overlaps, recoveries
from mainspring.testing.history._limits import LIMITS
from mainspring.testing.history._locks import LOCKS
from mainspring.testing.history._order import ORDER
from mainspring.testing.history._requests import REQUESTS
from mainspring.testing.history._schedules import SCHEDULES
from mainspring.testing.history._stored import StoredHistory, read

INVARIANTS = JOBS | LEASES | LIMITS | CONCURRENCY | REQUESTS | BREAKERS | ORDER | SCHEDULES | LOCKS | FLOWS
"""The invariants by name, I1 to I32 and I34 to I36: each yields the violations in a history."""

__all__ = [
    "INVARIANTS",
    "Answer",
    "BodyRun",
    "Bounds",
    "ClientCall",
    "Disturbance",
    "FlowEdge",
    "History",
    "Holding",
    "JobEvent",
    "JoinCount",
    "LimitBound",
    "Occurrence",
    "Opening",
    "Pause",
    "Promise",
    "Request",
    "Sample",
    "Snapshot",
    "StoredHistory",
    "Violation",
    "check",
    "overlaps",
    "read",
    "recoveries",
]


def check(history: History) -> list[Violation]:
    """All violations in a history, by invariant."""
    return [Violation(name, job, what) for name, invariant in INVARIANTS.items() for job, what in invariant(history)]
