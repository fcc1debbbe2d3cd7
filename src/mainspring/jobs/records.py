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

PRIORITY_STEP = 3_600_000_000
"""Microseconds by which one point of priority moves a job ahead: one hour."""


def order_key(seq: int, priority: int) -> int:
    """The place of a ready job among all ready jobs; the lowest is claimed first.

    ``seq`` is the time at which the job became ready, so a job never waits behind more than some hours of later jobs.

    >>> order_key(7_200_000_000, 1) == order_key(3_600_000_000, 0)
    True
    """
    return seq - priority * PRIORITY_STEP


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
    flow: str | None = None
    """The id of the root join of the flow that the job belongs to, in hex."""
    after: tuple[tuple[str, str], ...] = ()
    """The edges of a job of a flow, for a retry of the flow: the parent in hex, and the policy."""
    before: tuple[str, ...] = ()
    """The joins that the job is a member of, in hex. To the first one ``ctx.flow.add`` adds members."""
    next: tuple[str, ...] = ()
    """The jobs that wait for this one, in hex: they wait also for what it adds to the flow."""
    inputs: dict[str, str] = {}
    """Arguments that are results of other jobs: the parameter, and the id of the job or join in hex."""
    undoes: bool = False
    """A compensation: the body runs only if the job of its input has succeeded."""
    undoable: bool = False
    """The flow has compensations: the job also has the mark of the body join, whose end by a time limit cancels it."""
    members: int | None = None
    """For the join of a group: how many results it has. Their ids follow from the id of the join. -1: the store knows
    the number."""
    partial: bool = False
    """For the join of a group: members that ended badly have no result, and the others are the result."""
    shape: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """For the root join of a flow: its nodes, see :mod:`mainspring.flows.shape`."""

    @property
    def retries(self) -> int | None:
        """The retries given for this job; None leaves them to the task."""
        return self.options.get("retries")

    @property
    def timeout(self) -> int | None:
        """Microseconds; 0 switches the time limit off; None leaves it to the task."""
        return (self.options["timeout"] or 0) if "timeout" in self.options else None


class Edge(msgspec.Struct, frozen=True):
    """The job waits for ``parent``. ``policy`` decides what a bad end of the parent does.

    A parent ends *well* if it succeeds, or if it is bypassed; all other ends are *bad*. See ``stores/base.py``, Flows.
    """

    parent: bytes
    policy: Literal["fail", "ignore", "skip", "wait", "failed", "dead"] = "fail"
    """After a bad end of the parent: ``fail`` cancels the child (parent); ``ignore`` lets it run; ``skip`` bypasses it,
    which is a good end; ``wait`` keeps it waiting for a retry of a dead parent. ``failed`` is the opposite of ``fail``:
    the child runs only after a bad end, and is bypassed after a good one. ``dead``, for a parent that is a join: the
    child runs as soon as the first member is dead, and is bypassed if the join ends without a dead member."""


class Join(msgspec.Struct, frozen=True):
    """Makes a job a join: no worker runs it. It ends by itself when all of its members have ended.

    The members are the jobs that name it in ``NewJob.before``.
    """

    open: bool = False
    """Members may be added from anywhere. The join does not end before :meth:`Store.close_join`."""
    lenient: bool = False
    """It succeeds however its members end. Otherwise it is cancelled (parent) if a member ended badly."""


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


FLOW_KEEP = 2**52
"""As ``NewJob.keep``: the store keeps the job as long as its flow, and deletes it with the flow."""


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
    before: tuple[bytes, ...] = ()
    """Blocked jobs that wait for this job as well from now on: the joins that it is a member of."""
    join: Join | None = None
    buckets: tuple[Bucket, ...] = ()
    fair: FairKey | None = None
    unique: UniqueKey | None = None
    marks: tuple[str, ...] = ()
    """Texts by which a query finds the job: its tags, ``^`` with the hex id of its parent, and ``%`` with the hex id of
    its flow (of the join that the flow ends with)."""
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


class JoinRow(msgspec.Struct, frozen=True, kw_only=True):
    """A join as the store has it, live or ended. The numbers are of its members."""

    id: bytes
    open: bool
    total: int
    succeeded: int = 0
    dead: int = 0
    cancelled: int = 0
    """Without ``bypassed``."""
    bypassed: int = 0

    @property
    def pending(self) -> int:
        """Members that have not ended, or had not when the join ended."""
        return self.total - self.succeeded - self.dead - self.cancelled - self.bypassed


class FlowRetry(msgspec.Struct, frozen=True):
    """An ended job of a flow that waits or runs again: see :meth:`Store.retry_flow`."""

    id: bytes
    after: tuple[Edge, ...] = ()
    before: tuple[bytes, ...] = ()


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
    ran: int | None = None
    """Microseconds that the body of the last attempt ran, if the ack of that attempt ended the job."""
    deps: int = 0
    """The number of unresolved edges of a blocked job."""
    ordered: bool = False
    """A cancel order waits for the owner."""
    progress: bytes | None = None
    result: bytes | None = None
    error: bytes | None = None
    note: str | None = None
    """The reason that the canceller gave."""
    buckets: tuple[Bucket, ...] = ()
    """The buckets that the job needs capacity in, by name. An ended job has those of its last run."""
    record: bytes


class AttemptRow(msgspec.Struct, frozen=True, kw_only=True):
    """An ended attempt. The store keeps it under (job, token)."""

    token: int
    epoch: int
    attempt: int
    worker: str
    started: int
    """When the job was claimed."""
    ended: int
    """When the ack arrived, or the job was taken from a lost worker."""
    ran: int | None = None
    """Microseconds that the body ran, as its worker reported; None if its worker was lost."""
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


class JobBatch(msgspec.Struct, frozen=True, kw_only=True):
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
