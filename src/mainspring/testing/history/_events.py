"""The records of a history. Times are in seconds of one clock: the store's, or a clock that agrees with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Protocol, TypeVar

import msgspec

from mainspring.jobs.outcomes import Outcome
from mainspring.schedules.rules import RuleWindow
from mainspring.states import Action, Reason, State

Answer = Literal["ok", "failed", "unknown"]
"""The answer to a client. A call that timed out is unknown, never failed."""


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one job in the store."""

    seq: int
    """The store's order. Events of one job are compared by it, never by time."""
    at: float
    action: Action
    job: str
    state: State | None
    """The new state; None if the job was deleted."""
    epoch: int = 1
    attempt: int = 0
    token: int = 0
    worker: str = ""
    reason: Reason | None = None
    outcome: Outcome | None = None
    wrote: int | None = None
    """The token under which the stored result was written, where it is known (a body returns its own token)."""
    parent: str = ""
    """The job that enqueued this job; then no client call did."""


class ClientCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a client and its answer."""

    verb: Literal["enqueue", "cancel", "retry", "delete"]
    jobs: tuple[str, ...]
    answer: Answer
    began: float = 0.0
    ended: float = 0.0
    transaction: Literal["", "committed", "rolled_back", "unknown"] = ""
    """The end of the caller's own transaction, if the call was inside of one."""
    digests: tuple[str, ...] = ()
    """The digests of the payloads, in the order of ``jobs``."""


class BodyRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a body, as the body recorded it. A body that was killed has no end."""

    job: str
    token: int
    began: float
    ended: float | None = None
    digest: str = ""
    """The digest of the payload that the body got."""


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """A disturbance of a worker, or of the store (``worker=""``), with its begin and end."""

    what: Literal["killed", "stopped", "cut_off", "terminated", "store_away", "child_killed"]
    """``child_killed``: a process in which a worker ran one job was killed, and the worker lived."""
    began: float
    ended: float
    """For a kill, the same moment; for a termination, the moment at which the process was gone."""
    worker: str = ""


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """The promises for one job."""

    retries: int | None = None
    crashes: int = 3
    early: bool = False
    not_before: float | None = None
    backoff: float = 0.0
    expires: float | None = None
    timeout: float | None = None
    undecodable: bool = False
    writes_down: bool = True
    """The body records its runs."""
    queue: str = "default"
    key: str = ""
    """The unique key that the job holds while it is live."""
    buckets: tuple[str, ...] = ()
    """The names of the buckets of the job."""
    breakers: tuple[str, ...] = ()
    """The names of the breakers of the job."""
    line: str = ""
    """The line that the job joined at its enqueue: jobs that the same slots may run, whose order is checked. Empty: the
    order of the job is not checked."""
    stack: bool = False
    """The newest job of the line comes first."""
    priority: int = 0
    schedule: str = ""
    """The schedule of which the job is a run."""


class LimitBound(msgspec.Struct, frozen=True, kw_only=True):
    """A limit: ``size`` jobs at once, or ``size`` starts in each ``per`` seconds."""

    size: int
    per: float = 0.0


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A queue was paused or disabled: from the answer of the pause until the request to resume."""

    queue: str
    began: float
    ended: float
    disabled: bool = False


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker opened at ``began`` by the store's clock, and was half open from ``until`` on."""

    breaker: str
    began: float
    until: float
    probes: int = 1
    """The number of probes at once while the breaker is half open."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An enqueue under a key that identifies one request, and its answer."""

    key: str
    print: str
    """The digest of all arguments."""
    made: str
    """The id of the job that the enqueue would make."""
    answer: Literal["ok", "refused", "unknown"]
    job: str = ""
    """The id of the job that the answer names."""
    began: float = 0.0
    ended: float = 0.0
    keep: float = 0.0
    """Seconds for which the key is held after its job succeeded."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A count of all jobs by state."""

    at: float
    """When the answer arrived."""
    asked: float | None = None
    """When the count was requested; None means the same moment."""
    counts: Mapping[State, int]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """A measured size: the memory of a worker, the size of the store."""

    what: str
    at: float
    size: float


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The longest allowed times, in seconds."""

    lease: float = 15.0
    reclaim: float = 21.0
    """From the death of a worker until its leases are taken back."""
    ending: float = 32.0
    """From the request to terminate until the process is gone."""
    fence: float | None = None
    """How long a body may run beside its successor; None means without a bound, once its lease is over."""
    kill: float = 5.0
    """From a time limit until the body has ended."""
    slack: float = 1.0
    """The largest difference between the clocks of the witnesses."""
    growth: float = 1.1
    slots: int = 0
    """Jobs of one line that a worker claims at once; 0 means that the order is not checked."""


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """The record of one occurrence of a schedule, or of a run triggered by hand."""

    schedule: str
    at: int
    """Microseconds since 1970."""
    what: str
    job: str = ""
    count: int = 1
    """The number of occurrences that share this record."""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """A process held a lock, as the process recorded it."""

    lock: str
    token: int
    asked: float
    """When the successful request was sent."""
    began: float
    """When the answer arrived."""
    ttl: float
    ended: float | None = None
    """When the release began; None if the process was killed before."""
    kept: bool = False
    """The store confirmed that the process held the lock until then."""


class FlowEdge(msgspec.Struct, frozen=True, kw_only=True):
    """A job waits for another, as it was enqueued."""

    parent: str
    child: str
    policy: str = "fail"
    """``member``: the child is a join, and the parent is one of its members."""


class JoinCount(msgspec.Struct, frozen=True, kw_only=True):
    """A join at the end of the run, with the number of its members and of their ends."""

    job: str
    open: bool = False
    total: int = 0
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    bypassed: int = 0


class History(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known of a run."""

    events: tuple[JobEvent, ...] = ()
    calls: tuple[ClientCall, ...] = ()
    runs: tuple[BodyRun, ...] = ()
    troubles: tuple[Disturbance, ...] = ()
    promises: Mapping[str, Promise] = {}
    snapshots: tuple[Snapshot, ...] = ()
    samples: tuple[Sample, ...] = ()
    limits: Mapping[str, LimitBound] = {}
    """By the name of the bucket."""
    pauses: tuple[Pause, ...] = ()
    openings: tuple[Opening, ...] = ()
    trips: Mapping[str, tuple[float, ...]] = {}
    """By breaker: the moments at which it may have been opened by hand."""
    requests: tuple[Request, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    rules: Mapping[str, RuleWindow] = {}
    """By schedule: its stored rule."""
    holdings: tuple[Holding, ...] = ()
    edges: tuple[FlowEdge, ...] = ()
    joins: tuple[JoinCount, ...] = ()
    """No job of their flows was deleted."""
    listed: tuple[tuple[str, State], ...] = ()
    """Every job that the store lists at the end, as often as it is found."""
    durability: str = ""
    """The durability class of the store, for example ``redis:aof-always``."""
    asked: str = ""
    """The durability that was requested: ``full`` or ``normal``."""
    quiet: bool = True
    """The run had time to finish all jobs."""
    bounds: Bounds = Bounds()


class Violation(msgspec.Struct, frozen=True):
    """A broken promise."""

    invariant: str
    job: str
    """The id of the job, or the name of another thing."""
    what: str


Found = Iterator[tuple[str, str]]
"""An invariant yields the job and the violation."""


class _OfJob(Protocol):
    @property
    def job(self) -> str: ...


T = TypeVar("T", bound=_OfJob)


def by_job(things: Iterable[T]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = {}
    for thing in things:
        found.setdefault(thing.job, []).append(thing)
    return found


def lives(history: History) -> dict[str, list[JobEvent]]:
    """The events of each job in the store's order."""
    return {job: sorted(events, key=lambda event: event.seq) for job, events in by_job(history.events).items()}


def promise_of(history: History, job: str) -> Promise:
    return history.promises.get(job, Promise())
