"""The records that travel between the core and a store.

Ids are the 16 bytes of a UUID, times are microseconds since 1970 by the store's clock,
durations are microseconds. ``record`` is opaque to every store: it travels whole, so old
and new workers can run side by side.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from mainspring.outcomes import Outcome
from mainspring.states import Reason, State

RECORD_VERSION = 1


class Body(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The opaque part of a job: what the producer wrote and only a worker reads."""

    v: int = RECORD_VERSION
    args: msgspec.Raw = msgspec.Raw(b"{}")
    retries: int | None = None
    timeout: int | None = None
    """Microseconds; 0 switches the time limit off; None leaves it to the task."""
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


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """How much the buckets of its name let through, for the whole fleet."""

    name: str
    """Without ``=``. That of a breaker, and no other, ends in ``:breaker``."""
    kind: Literal["concurrency", "rate", "smooth", "breaker"] = "concurrency"
    """``concurrency``: ``size`` running jobs at any instant. ``rate``: starts that cost ``size`` in any window of
    ``per``. ``smooth``: one unit each ``per / size``, up to ``burst`` at once: at most ``size + burst`` in a window.
    ``breaker``: opens after ``burst`` failures in a row for ``per``, then lets ``size`` at once through as probes."""
    size: int
    per: int = 0
    """Microseconds."""
    burst: int = 0
    share: int = 0
    """Of a breaker, in millionths: if it is not 0, it opens when this share of at least ``burst`` ends within ``span``
    are failures."""
    span: int = 0
    """Microseconds."""


class Bucket(msgspec.Struct, frozen=True):
    """What a job needs room in: a limit (then the bucket is a *gate*), or the part of a limit that belongs to a key."""

    limit: str
    key: str = ""
    cost: int = 1
    """What a start uses up of a rate."""

    @property
    def name(self) -> str:
        return f"{self.limit}={self.key}" if self.key else self.limit


BREAKER = ":breaker"
"""What the name of a breaker ends in."""
FOREVER = 1 << 52
"""A breaker that is open until then is open until somebody resets it."""


def is_breaker(bucket: str) -> bool:
    return bucket.endswith(BREAKER) and "=" not in bucket


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as a claim would find it now."""

    name: str
    state: Literal["closed", "open", "half_open"] = "closed"
    failures: int = 0
    """In a row, or within the window; of one that is not closed, those that opened it."""
    calls: int = 0
    """Ends within the window, of one that goes by a share."""
    opened: int | None = None
    until: int | None = None
    """When it becomes, or has become, half open; None of one that is open until somebody resets it."""
    error: str = ""
    """What failed last, in a few words."""
    tripped: bool = False
    """Somebody opened it by hand."""


class Fair(msgspec.Struct, frozen=True):
    """Whose job it is, where the claims of a queue are shared between keys."""

    key: str
    weight: float = 1
    """Its part, beside those of the other keys."""


class BucketRow(msgspec.Struct, frozen=True, kw_only=True):
    """A bucket as a claim would find it now."""

    name: str
    limit: str
    kind: str
    size: int
    """Of its limit, or what somebody set in its place."""
    used: int
    """Running jobs and guests; of a rate, what was started within the window (``smooth``: what is not yet back)."""
    next_at: int | None = None
    """When a start that costs 1 fits; None if it fits now, or if nobody can know."""
    holders: tuple[bytes, ...] = ()
    """Running jobs that name it, ten at most, the oldest claims first; perhaps none of a closed breaker. An engine may
    look at the oldest 10,000 running jobs only."""
    breaker: BreakerRow | None = None
    """Of a breaker, more of how it stands; ``used`` are its probes then."""


class LimitRow(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it stands in the store."""

    limit: Limit
    """As it was declared last."""
    size: int | None = None
    """What somebody set in place of its size."""


REST = 1_000_000
"""Microseconds for which no place is kept for guests in a bucket to which one has given its place back."""


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to a guest."""

    ok: bool
    now: int
    until: int = 0
    """When the guest's places end unless it takes them again."""
    next_at: int | None = None
    """When to ask again; None: nobody knows, somebody has to give."""
    full: str = ""
    """The bucket that had no room."""
    kept: bool = False
    """The next place in each bucket that had none is kept for guests: look again soon."""
    breakers: tuple[BreakerRow, ...] = ()
    """Those that this guest is the first to probe."""
    token: int = 0
    """The number of its stay, if it is fenced."""


class GuestRow(msgspec.Struct, frozen=True, kw_only=True):
    """A guest in one of its buckets."""

    guest: bytes
    bucket: str
    token: int
    """0 of one that is not fenced."""
    since: int
    """When it took its places."""
    until: int
    left: int
    """Microseconds until then, when the store was asked."""
    info: bytes = b""


class Edge(msgspec.Struct, frozen=True):
    """The job waits for ``parent``. What happens when the parent ends badly is ``policy``."""

    parent: bytes
    policy: str = "fail"
    """``fail``: the child is cancelled (parent) unless the parent succeeded. ``ignore``: any end will do."""


class Unique(msgspec.Struct, frozen=True):
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


class Follow(msgspec.Struct, frozen=True):
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
    fair: Fair | None = None
    unique: Unique | None = None
    marks: tuple[str, ...] = ()
    """What the job can be found by: its tags, and ``^`` with the hex id of its parent."""
    keep: int | None = None
    """Microseconds for which the job is kept after it succeeded or was cancelled; None leaves it to retention."""
    follows: tuple[Follow, ...] = ()


class Enqueued(msgspec.Struct, frozen=True, gc=False):
    """What became of one job of an enqueue: made now, or found to be there already."""

    id: bytes
    """The job's own, or that of the job which holds its unique key."""
    created: bool


ROOMY = 100
"""A bucket without a key of a limit on how many run at once is *roomy* while beside the claim at least half of the size
and at least so much is left; and a breaker while it is closed. All others are *short*, rates too: a start counts at its
claim, and nothing may lie between the two."""


class Want(msgspec.Struct, frozen=True):
    """Up to ``n`` jobs from these base lanes and the lanes beside them.

    In order of (priority descending, seq), but the first ``oldest`` of them by seq alone:
    so the lowest priority never starves.
    """

    lanes: tuple[str, ...]
    n: int
    oldest: int = 0
    limited: int | None = None
    """At most so many of them hold a place in a *short* bucket, for what is claimed ahead of a free slot holds its
    places for nothing; None: any number. See :data:`ROOMY`."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A job handed to a worker."""

    id: bytes
    token: int
    task: str
    queue: str
    lane: str
    priority: int
    attempt: int
    """1 for the first attempt of an epoch; attempts that were given back do not count."""
    epoch: int
    crashes: int
    early: bool
    enqueued: int
    expires: int | None
    record: bytes
    turn: int
    """The turn that claimed it; a repeated turn shows the same number."""
    of_part: bool = False
    """It has the mark of a part."""


class Order(msgspec.Struct, frozen=True):
    """Something that the owner of a running job must do now; so far, only to cancel it."""

    id: bytes
    token: int
    reason: str = ""


class Turned(msgspec.Struct, frozen=True):
    """The reply to a turn."""

    now: int
    lost: bool = False
    claims: tuple[Claim, ...] = ()
    already: tuple[tuple[bytes, int], ...] = ()
    stale: tuple[tuple[bytes, int], ...] = ()
    unstorable: tuple[tuple[bytes, int], ...] = ()
    orders: tuple[Order, ...] = ()
    gone: tuple[tuple[bytes, int], ...] = ()
    more: bool = False
    """The lanes were not looked through: there may be work in them, and the next turn goes on from there."""
    full: bool = False
    """The store has no room, and gave no claims for that reason."""
    next_at: int | None = None
    """When a rate or breaker lets something through that this turn asked for and did not get, as far as it looked."""
    held: tuple[str, ...] = ()
    """Queues with a job that this turn asked for and that a limit without a key had no room for: not empty."""
    breakers: tuple[BreakerRow, ...] = ()
    """Those that this turn has opened, closed, or begun to probe."""
    short: tuple[bytes, ...] = ()
    """Those of the claims that hold a place in a short bucket: they must not wait for a slot. Of claims that a
    repeated turn shows again it says nothing."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker says of itself when it first beats."""

    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    lease: int = 15_000_000
    info: bytes = b"{}"
    """Opaque JSON: host, pid, version, ... for people to read."""


class Beat(msgspec.Struct, frozen=True):
    """A sign of life of one worker; ``register`` makes its row if there is none, else it renews ``info``."""

    worker: str
    register: Registration | None = None


class Beaten(msgspec.Struct, frozen=True):
    worker: str
    alive: bool
    number: int = 0


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the fleet."""

    id: str
    number: int
    turn: int
    lost: bool
    started: int
    seen: int
    running: int
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    lease: int
    info: bytes


class Rescued(msgspec.Struct, frozen=True):
    """What a rescue or a retirement moved. ``taken`` is False when the compare failed."""

    taken: bool
    ready: tuple[bytes, ...] = ()
    retrying: tuple[bytes, ...] = ()
    dead: tuple[bytes, ...] = ()
    cancelled: tuple[bytes, ...] = ()
    breakers: tuple[BreakerRow, ...] = ()
    """Those that this has opened or closed."""


class Promoted(msgspec.Struct, frozen=True):
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


class Report(msgspec.Struct, frozen=True, kw_only=True):
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


class Found(msgspec.Struct, frozen=True):
    jobs: tuple[JobRow, ...]
    cursor: str | None = None
    """Hand it to the next call to go on; None when there is no more."""


class Acted(msgspec.Struct, frozen=True):
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


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration would do, and what people may run by hand."""

    before: int
    after: int
    script: str = ""
    """What to run instead of ``migrate``; empty where there is nothing to run."""
    access: str = ""
    """What lets somebody with few rights use the store."""


class Mode(StrEnum):
    """What a queue does."""

    OPEN = "open"
    PAUSED = "paused"
    """Takes jobs and hands out none."""
    DRAINING = "draining"
    """Takes no more jobs and hands out what it has."""


class Disabled(StrEnum):
    """What a queue that is switched off does with new jobs; it hands out none, whichever it is."""

    HOLD = "hold"
    """Takes them: they wait."""
    SKIP = "skip"
    """Takes them and ends them at once as cancelled (skipped)."""
    REJECT = "reject"
    """Takes none."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a queue works. What is not set is left to what stands below it, at last to the defaults."""

    max_depth: int | msgspec.UnsetType = msgspec.UNSET
    """Most jobs that may wait in it; 0: any number, as if it were not set."""
    on_full: Literal["error", "wait", "drop_oldest"] | msgspec.UnsetType = msgspec.UNSET
    """What an enqueue that finds no room does; ``error`` if it is not set. To wait is the client's part."""
    order: Literal["fifo", "lifo"] | msgspec.UnsetType = msgspec.UNSET
    """Which of equal priority comes first: the oldest, or the newest; ``fifo`` if it is not set."""
    limits: tuple[tuple[str, int], ...] | msgspec.UnsetType = msgspec.UNSET
    """Limits without a key that every job of the queue names, each with what a start costs."""

    def over(self, below: QueueSettings) -> QueueSettings:
        """These, and where they say nothing those below."""
        said = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not msgspec.UNSET}
        return msgspec.structs.replace(below, **said)

    def __bool__(self) -> bool:
        return self != QueueSettings()


class QueueRow(msgspec.Struct, frozen=True):
    """A queue of which something is stored: a mode other than open, settings, or that it is disabled."""

    name: str
    mode: Mode
    since: int
    """When it was set to its mode; 0 for an open one."""
    declared: QueueSettings = QueueSettings()
    """As code declares them."""
    given: QueueSettings = QueueSettings()
    """What somebody set over those."""
    disabled: Disabled | None = None
    disabled_at: int = 0
    disabled_by: str = ""

    @property
    def settings(self) -> QueueSettings:
        """What holds."""
        return self.given.over(self.declared)


class Tally(msgspec.Struct, frozen=True):
    """How many jobs of a query share a value and a state."""

    value: str
    state: State
    count: int
    first: int
    """The earliest moment: of the enqueue for a live job, of its end for an ended one."""
    last: int


class Doc(msgspec.Struct, frozen=True):
    """A small versioned document; ``put`` never lets an older version overwrite a newer one."""

    kind: str
    name: str
    version: int
    data: bytes
