"""Records of jobs that cross the store seam.

Ids are the 16 bytes of a UUID. Times and durations are microseconds; times count from 1970 on the clock of the store.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainspring.jobs.outcomes import Outcome
from mainspring.limits.records import Bucket, Limit
from mainspring.queues.records import FairKey, QueueSettings
from mainspring.states import Reason, State

RECORD_VERSION = 1


class JobBody(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The opaque part of a job: what the producer wrote and only a worker reads."""

    v: int = RECORD_VERSION
    args: msgspec.Raw = msgspec.Raw(b"{}")
    options: dict[str, Any] = {}
    """The options given for this job that the table of options marks ``record``, by name and in normal form."""
    code: str | None = None
    """Version of the code that enqueued the job."""
    tags: tuple[str, ...] = ()
    meta: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET  # not None: a union of it and Raw decodes nothing else
    """A JSON object of the user's own."""
    key: str | None = None
    """The unique key as people read it."""
    mode: str | None = None
    """The mode of that key, if it is not once."""
    hide: tuple[str, ...] = ()
    """Arguments whose values are shown to nobody."""
    parent: str | None = None
    """The id of the job that spawned this one or that this one follows."""
    trace: str | None = None
    """32 hex digits shared by all jobs that come of one; the id of the job itself if absent."""
    schedule: str | None = None
    """The schedule that it is a run of."""
    occurrence: int | None = None
    """The moment that this run stands for."""

    @property
    def retries(self) -> int | None:
        """The retries given for this job; None leaves them to the task."""
        return self.options.get("retries")

    @property
    def timeout(self) -> int | None:
        """Microseconds; 0 switches the time limit off; None leaves it to the task."""
        return (self.options["timeout"] or 0) if "timeout" in self.options else None


class Edge(msgspec.Struct, frozen=True):
    """The job waits for ``parent``. What happens when the parent ends badly is ``policy``."""

    parent: bytes
    policy: str = "fail"
    """``fail``: the child is cancelled (parent) unless the parent succeeded. ``ignore``: any end will do."""


class UniqueKey(msgspec.Struct, frozen=True):
    """A claim to a unique key, which is held while its job is live and to the end of its window."""

    hash: bytes
    """16 bytes made of the task's name, the key and the mode: a key is always asked for in one mode."""
    window: int = 0
    """Microseconds. ``once``: from the enqueue, for which the key is held even if the job has ended. ``debounce``:
    how long the job waits for another enqueue. ``throttle``: from one start to the next."""
    conflict: Literal["return", "replace", "error"] = "return"
    """Of the mode ``once``."""
    mode: Literal["once", "debounce", "throttle", "keep_last"] = "once"
    max_wait: int = 0
    """``debounce``: microseconds after the first enqueue beyond which nothing is put off; 0: there is no such bound."""
    keep: int = 0
    """``once``: microseconds for which the key is held after the job succeeded; the job is kept as long."""
    print: bytes = b""
    """Of a key with ``keep``: 16 bytes made of all arguments. Another one under the same key is an error."""


class FollowUp(msgspec.Struct, frozen=True):
    """A job that is inserted in the very step in which another ends in state ``on``."""

    on: State
    job: NewJob
    """Its id ends in two zero bytes: the store writes the epoch of the ended job there."""


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
    """What the job can be found by: its tags, and ``^`` with the hex id of its parent."""
    keep: int | None = None
    """Microseconds for which the job is kept after it succeeded or was cancelled; None leaves it to retention."""
    follows: tuple[FollowUp, ...] = ()


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What became of one job of an enqueue: made now, or found to be there already."""

    id: bytes
    """The job's own, or that of the job which holds its unique key."""
    created: bool


class PromoteResult(msgspec.Struct, frozen=True):
    now: int
    promoted: int = 0
    expired: int = 0
    queues: tuple[str, ...] = ()
    next_due: int | None = None
    """When the next promotion or expiry is due, as far as the store knows now."""
    ended: tuple[bytes, ...] = ()
    """The jobs that expired."""


class LogLine(msgspec.Struct, frozen=True):
    at: int
    level: str
    text: str
    n: int = 0
    """Its number among the lines of its job, from 1; given by the store."""


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True):
    """News of a running attempt; refused as stale unless the lease is still good."""

    id: bytes
    token: int
    progress: bytes | None = None
    logs: tuple[LogLine, ...] = ()
    items: tuple[tuple[int, bytes], ...] = ()
    """What the handler sent, by its place in the stream of this attempt, from 1."""


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a store knows of a job, live or finished."""

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
    """A cancel order is waiting for the owner."""
    progress: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None
    note: str | None = None
    """The words of whoever cancelled it."""
    buckets: tuple[Bucket, ...] = ()
    """What a live job needs room in, by name."""
    record: bytes


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt, kept under (job, token)."""

    token: int
    epoch: int
    attempt: int
    worker: str
    started: int
    ended: int
    outcome: Outcome
    error: bytes | None = None


class JobRows(msgspec.Struct, frozen=True):
    jobs: tuple[JobRow, ...]
    cursor: str | None = None
    """Hand it to the next call to go on; None when there is no more."""


class ActResult(msgspec.Struct, frozen=True):
    """``done`` changed; ``refused`` were found in a state (named) in which the action does nothing."""

    done: tuple[bytes, ...] = ()
    refused: tuple[tuple[bytes, State], ...] = ()
    more: bool = False
    held: tuple[tuple[bytes, bytes], ...] = ()
    """Jobs that were not retried because another job holds their unique key, each with the holder."""
    cursor: str | None = None
    """Where the next call may go on; an engine that finds what is left by its state gives none."""


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended jobs are kept. Durations in microseconds."""

    keep: int = 7 * 86_400_000_000
    keep_count: int = 100_000
    keep_at_least: int = 3_600_000_000
    keep_dead: int = 30 * 86_400_000_000
    keep_dead_count: int = 100_000
    keep_workers: int = 3_600_000_000


class TallyRow(msgspec.Struct, frozen=True):
    """How many jobs of a query share a value and a state."""

    value: str
    state: State
    count: int
    first: int
    """The earliest moment: of the enqueue for a live job, of its end for an ended one."""
    last: int


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What one enqueue call inserts: all of it or nothing."""

    id: bytes
    """Made by the client, the same for every try."""
    jobs: tuple[NewJob, ...]
    retry: bool = False
    """An earlier try of this batch may have arrived: insert only what is found in no place."""
    limits: tuple[Limit, ...] = ()
    """Those that its jobs name: made if the store does not know them, else left as they stand there."""
    queues: tuple[tuple[str, QueueSettings], ...] = ()
    """Settings that code declares, by queue: stored if the store knows of none that were declared, else left. What
    waits there already counts for a depth from the next :meth:`Store.configure` on."""
    accepted: bool = False
    """It comes of a job that runs: refused for no depth."""
    forced: bool = False
    """Its jobs, new and replaced ones, wait for no parts; they are released at once, and that takes the notes away."""
