"""What a history is made of. Times are seconds of one clock: the store's, or one that agrees with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, Protocol, TypeVar

import msgspec

from mainspring.jobs.outcomes import Outcome
from mainspring.schedules.rules import RuleWindow
from mainspring.states import Action, Reason, State

Answer = Literal["ok", "failed", "unknown"]
"""What a client was told; a call that timed out is unknown, never failed."""


class JobEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one job, as the store took it."""

    seq: int
    """The store's order; events of one job are compared by it, never by time."""
    at: float
    action: Action
    job: str
    state: State | None
    """Where it led; None when the job is gone."""
    epoch: int = 1
    attempt: int = 0
    token: int = 0
    worker: str = ""
    reason: Reason | None = None
    outcome: Outcome | None = None
    wrote: int | None = None
    """The token by which what is stored now was written, where that can be seen (a body returns its own)."""
    parent: str = ""
    """Who spawned the job: no client asked for it."""


class ClientCall(msgspec.Struct, frozen=True, kw_only=True):
    """What a client asked for and what it was told."""

    verb: Literal["enqueue", "cancel", "retry", "delete"]
    jobs: tuple[str, ...]
    answer: Answer
    began: float = 0.0
    ended: float = 0.0
    transaction: Literal["", "committed", "rolled_back", "unknown"] = ""
    """What became of the caller's own transaction, if the call was in one."""
    digests: tuple[str, ...] = ()
    """Of the payloads, in the order of ``jobs``."""


class BodyRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of a body, as it wrote down itself; a body that was killed has no end."""

    job: str
    token: int
    began: float
    ended: float | None = None
    digest: str = ""
    """Of the payload as the body saw it."""


class Disturbance(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a worker, or to the store (``worker=""``), and for how long."""

    what: Literal["killed", "stopped", "cut_off", "terminated", "store_away"]
    began: float
    ended: float
    """Of a kill: the same moment. Of a termination: when the process was gone."""
    worker: str = ""


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What one job was promised."""

    retries: int | None = None
    crashes: int = 3
    early: bool = False
    not_before: float | None = None
    backoff: float = 0.0
    expires: float | None = None
    timeout: float | None = None
    undecodable: bool = False
    writes_down: bool = True
    """Its body writes down its runs."""
    queue: str = "default"
    key: str = ""
    """The unique key that it holds while it is live."""
    buckets: tuple[str, ...] = ()
    """The names of those that limit it."""
    breakers: tuple[str, ...] = ()
    """The names of those that guard it."""
    line: str = ""
    """The line that it joined when it was enqueued, of jobs that any slot of it may run; empty: it need not keep to
    one."""
    stack: bool = False
    """The newest of its line comes first."""
    priority: int = 0
    schedule: str = ""
    """The schedule of which it is a run."""


class LimitBound(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit lets through: so many at once, or in each ``per`` seconds."""

    size: int
    per: float = 0.0


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A queue was paused or disabled: from the answer that it is until it was asked to go on."""

    queue: str
    began: float
    ended: float
    disabled: bool = False


class Opening(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker opened, by the store's clock, and was half open from ``until`` on."""

    breaker: str
    began: float
    until: float
    probes: int = 1
    """How many it lets through at once while it is half open."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """An enqueue under a key that stands for one request, and what it was told."""

    key: str
    print: str
    """Of all its arguments."""
    made: str
    """The job that it would make."""
    answer: Literal["ok", "refused", "unknown"]
    job: str = ""
    """The job that it was given."""
    began: float = 0.0
    ended: float = 0.0
    keep: float = 0.0
    """Seconds for which the key is held after its job has succeeded."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A count of all jobs by state."""

    at: float
    """When it was there."""
    asked: float | None = None
    """When it was asked for; None: at the same moment."""
    counts: Mapping[State, int]


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """How large something was: the memory of a worker, the size of the store."""

    what: str
    at: float
    size: float


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """How long things may take, in seconds."""

    lease: float = 15.0
    reclaim: float = 21.0
    """From the death of a worker until its leases are taken back."""
    ending: float = 32.0
    """From the word to terminate until the process is gone."""
    fence: float | None = None
    """How long a body may go on beside its successor; None: as long as it likes, once its lease is over."""
    kill: float = 5.0
    """From a time limit until the body has ended."""
    slack: float = 1.0
    """How far the clocks of the witnesses may be apart."""
    growth: float = 1.1
    slots: int = 0
    """Jobs of one line that a worker takes at once; 0: their order is not judged."""
    aged: int = 20
    """One claim of so many takes the oldest, whatever its priority."""


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one occurrence of a schedule, or a run that somebody asked for."""

    schedule: str
    at: int
    """Microseconds since 1970."""
    what: str
    job: str = ""
    count: int = 1
    """Of occurrences that stand in this record together."""


class Holding(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody held a lock, by its own words."""

    lock: str
    token: int
    asked: float
    """When the try was sent that got it."""
    began: float
    """When it knew."""
    ttl: float
    ended: float | None = None
    """When it began to give it back; None: it never came to that, for it was killed."""
    kept: bool = False
    """The store confirmed that it held it until then."""


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of a run."""

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
    """By breaker: when somebody may have opened it by hand."""
    requests: tuple[Request, ...] = ()
    occurrences: tuple[Occurrence, ...] = ()
    rules: Mapping[str, RuleWindow] = {}
    """By schedule: when it is due, as it was stored."""
    holdings: tuple[Holding, ...] = ()
    listed: tuple[tuple[str, State], ...] = ()
    """Every job that the store lists at the end, in each place where it is found."""
    durability: str = ""
    """The class that the store says it keeps, e.g. ``redis:aof-always``."""
    asked: str = ""
    """The class that was asked for: ``full`` or ``normal``."""
    quiet: bool = True
    """The run was given time to come to rest."""
    bounds: Bounds = Bounds()


class Violation(msgspec.Struct, frozen=True):
    """A promise that was not kept."""

    invariant: str
    job: str
    """Its id, or what else it is about."""
    what: str


Found = Iterator[tuple[str, str]]
"""What an invariant yields: the job and what is wrong."""


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
