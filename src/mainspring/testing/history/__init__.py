"""Was every promise kept? Pure functions over the history of a run, one for each invariant.

A history is what three kinds of witnesses wrote down: the store (what became of each job, by its own clock and order),
the clients (what they asked for and what they were told) and the bodies (when each began and ended, under which
token). Add what was done to the fleet meanwhile, and what each job was promised, and ask:

>>> from mainspring.testing.history import History, check
>>> check(History())
[]

`read` makes the store's part from the store itself, at the end of a run. What a history does not hold is not judged:
without calls nobody can have lost a job.
"""

from mainspring.testing.history._events import (
    Answer,
    BodyRun,
    Bounds,
    ClientCall,
    Disturbance,
    History,
    Holding,
    JobEvent,
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
from mainspring.testing.history._flow import FLOW
from mainspring.testing.history._gates import GATES
from mainspring.testing.history._leases import LEASES, overlaps, recoveries
from mainspring.testing.history._limits import LIMITS
from mainspring.testing.history._lines import LINES
from mainspring.testing.history._lives import LIVES
from mainspring.testing.history._locks import LOCKS
from mainspring.testing.history._requests import REQUESTS
from mainspring.testing.history._stored import StoredHistory, read
from mainspring.testing.history._ticks import TICKS

INVARIANTS = LIVES | LEASES | LIMITS | FLOW | REQUESTS | GATES | LINES | TICKS | LOCKS
"""By name, I1 to I29 and I34 to I36: from a history to what is wrong with it."""

__all__ = [
    "INVARIANTS",
    "Answer",
    "BodyRun",
    "Bounds",
    "ClientCall",
    "Disturbance",
    "History",
    "Holding",
    "JobEvent",
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
    """Everything that is wrong with it, by invariant."""
    return [Violation(name, job, what) for name, invariant in INVARIANTS.items() for job, what in invariant(history)]
