"""Records of jobs that the core and a store exchange.

An id is the 16 bytes of a UUID. Times and durations are in microseconds; times count from 1970, on the store's clock.
"""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.jobs.outcomes import Outcome
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import FairKey, QueueSettings
from mainspring.states import Reason, State

RECORD_VERSION = 1


class JobBody(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The part of a job that a store does not read: the producer writes it and a worker reads it."""

    v: int = RECORD_VERSION
    args: msgspec.Raw = msgspec.Raw(b"{}")
    options: dict[str, Any] = {}
    """The options given for this job that the table of options marks ``record``, by name and in normal form."""
    code: str | None = None
    """The version of the code that enqueued the job."""
    tags: tuple[str, ...] = ()
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # not None: a union of it and Raw decodes nothing else
    """A JSON object of the user's own."""
    key: str | None = None
    """The unique key as text, for people."""
    mode: str | None = None
    """The mode of the unique key, if it is not ``once``."""
    hide: tuple[str, ...] = ()
    """The arguments whose values are never shown."""
    parent: str | None = None
    """The id of the job that enqueued this job, or that this job follows up."""
    trace: str | None = None
    """32 hex digits that a job shares with all jobs it enqueues; the id of the job itself if absent."""
    schedule: str | None = None
    """The schedule that this job is a run of."""
    occurrence: int | None = None
    """The occurrence of the schedule that this run is for."""

    @property
    def retries(self) -> int | None:
        """The retries given for this job; None leaves them to the task."""
        return self.options.get("retries")

    @property
    def timeout(self) -> int | None:
        """Microseconds; 0 switches the time limit off; None leaves it to the task."""
        return (self.options["timeout"] or 0) if "timeout" in self.options else None


class Edge(msgspec.Struct, frozen=True):
    """The job waits for ``parent``. ``policy`` decides what happens if the parent does not succeed."""

    parent: bytes
    policy: str = "fail"
    """``fail``: the child is cancelled (parent) unless the parent succeeded. ``ignore``: the child runs after any
    end."""


class UniqueKey(msgspec.Struct, frozen=True):
    """A unique key. A job holds it while the job is live and until the end of the window."""

    hash: bytes
    """16 bytes made of the task's name, the key and the mode. So two modes of one key are two keys."""
    window: int = 0
    """Microseconds. ``once``: the time from the enqueue for which the job holds the key even if it has ended.
    ``debounce``: the time that the job waits for another enqueue. ``throttle``: the time from one start to the next."""
    conflict: Literal["return", "replace", "error"] = "return"
    """What an enqueue does if another job holds the key. For the mode ``once`` only."""
    mode: Literal["once", "debounce", "throttle", "keep_last"] = "once"
    max_wait: int = 0
    """``debounce``: the job is due at most this many microseconds after the first enqueue; 0 means no such bound."""
    keep: int = 0
    """``once``: the job holds the key for this many microseconds after it succeeded, and the store keeps the job as
    long."""
    print: bytes = b""
    """For a key with ``keep``: 16 bytes made of all arguments. Another value under the same key is an error."""


ENDED_JOB = UUID("f0110e4d-0000-7000-8000-1b7c5d2ae9f3")
"""In the record and the marks of a follow-up job of a follow-up job, the id of the job that it follows. That job gets
its id when it is inserted: then the store replaces this id by it, as text with dashes and as 32 hex digits."""


MOST_FOLLOW_UPS = 100
"""The follow-up jobs of one job, with the follow-up jobs of its follow-up jobs."""


class FollowUp(msgspec.Struct, frozen=True):
    """A job that the store inserts in the step in which another job ends in the state ``on``."""

    on: State
    job: NewJob
    """Its id ends in two zero bytes, where the store writes the epoch of the ended job. It may have follow-up jobs."""


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A job to be enqueued."""

    id: bytes
    task: str
    queue: str
    kind: str = "any"
    priority: int = 0
    delay: int = 0
    run_at: int | None = None
    expires_in: int | None = None
    crashes: int = 3
    early: bool = False
    record: bytes = b"{}"
    after: tuple[Edge, ...] = ()
    buckets: tuple[Bucket, ...] = ()
    fair: FairKey | None = None
    unique: UniqueKey | None = None
    marks: tuple[str, ...] = ()
    """Texts by which a query finds the job: its tags, and ``^`` with the hex id of its parent."""
    keep: int | None = None
    """Microseconds for which the store keeps the job after it succeeded or was cancelled; None: as retention says."""
    follows: tuple[FollowUp, ...] = ()


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """The reply for one job of an enqueue: inserted now, or found in the store."""

    id: bytes
    """The id of the job, or of the job that holds its unique key."""
    created: bool


class PromoteResult(msgspec.Struct, frozen=True):
    """The reply to a promotion."""

    now: int
    promoted: int = 0
    expired: int = 0
    queues: tuple[str, ...] = ()
    next_due: int | None = None
    """The moment of the next promotion or expiry, as far as the store knows now."""
    ended: tuple[bytes, ...] = ()
    """The jobs that expired."""


class LogLine(msgspec.Struct, frozen=True):
    """A log line of a job."""

    at: int
    level: str
    text: str
    n: int = 0
    """The number of the line among the lines of its job, from 1. The store gives it."""


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """Progress, log lines and stream items of a running attempt. The store refuses it unless the lease is valid."""

    id: bytes
    token: int
    progress: bytes | None = None
    logs: tuple[LogLine, ...] = ()
    items: tuple[tuple[int, bytes], ...] = ()
    """The items that the handler sent, each with its number in the stream of this attempt, from 1."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the store has it, live or ended."""

    id: bytes
    state: State
    reason: Reason | None = None
    task: str
    queue: str
    lane: str
    priority: int
    attempt: int
    epoch: int
    crashes: int
    crash_limit: int
    early: bool
    token: int
    worker: str | None
    seq: int
    enqueued: int
    due: int | None = None
    expires: int | None = None
    started: int | None = None
    finished: int | None = None
    deps: int = 0
    ordered: bool = False
    """A cancel order waits for the owner."""
    progress: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None
    note: str | None = None
    """The reason that the canceller gave."""
    buckets: tuple[Bucket, ...] = ()
    """The buckets that a live job needs capacity in, by name."""
    record: bytes


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """An ended attempt. The store keeps it under (job, token)."""

    token: int
    epoch: int
    attempt: int
    worker: str
    started: int
    ended: int
    outcome: Outcome
    error: bytes | None = None


class JobRows(msgspec.Struct, frozen=True):
    """A page of jobs."""

    jobs: tuple[JobRow, ...]
    cursor: str | None = None
    """The argument of the next call for the next page; None if there are no more jobs."""


class ActResult(msgspec.Struct, frozen=True):
    """The reply to an action. ``done`` names the changed jobs, ``refused`` the jobs in a state without that action."""

    done: tuple[bytes, ...] = ()
    refused: tuple[tuple[bytes, State], ...] = ()
    more: bool = False
    held: tuple[tuple[bytes, bytes], ...] = ()
    """Jobs that were not retried because another job holds their unique key, each with the id of that job."""
    cursor: str | None = None
    """Where the next call can continue; None from an engine that finds the remaining jobs by their state."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long the store keeps ended jobs and rows of lost workers. Durations are in microseconds."""

    keep: int = 7 * 86_400_000_000
    keep_count: int = 100_000
    keep_at_least: int = 3_600_000_000
    keep_dead: int = 30 * 86_400_000_000
    keep_dead_count: int = 100_000
    keep_workers: int = 3_600_000_000


class TallyRow(msgspec.Struct, frozen=True):
    """The number of jobs of a query that share a value and a state."""

    value: str
    state: State
    count: int
    first: int
    """The earliest moment: of the enqueue of a live job, of the end of an ended job."""
    last: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one enqueue call: the store inserts all of them or none."""

    id: bytes
    """The client makes it and sends the same id with every try."""
    jobs: tuple[NewJob, ...]
    retry: bool = False
    """An earlier try of this batch may have arrived: the store inserts only jobs that it does not have."""
    limits: tuple[Limit, ...] = ()
    """The limits that the jobs name. The store adds those that it does not have and leaves the others unchanged."""
    queues: tuple[tuple[str, QueueSettings], ...] = ()
    """The settings that code declares, by queue. The store adds them where it has no declared settings. Jobs that wait
    there already count for the depth after the next :meth:`Store.configure_queue`."""
    accepted: bool = False
    """A running job enqueues the batch: no depth refuses it."""
    forced: bool = False
    """The jobs, new and replaced, wait for no dependencies of schedules. They are released at once, which deletes the
    recorded successes."""
