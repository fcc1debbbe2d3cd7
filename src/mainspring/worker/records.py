"""Records of workers that the core and a store exchange: turns, claims, heartbeats, rescues.

An id is the 16 bytes of a UUID. Times and durations are in microseconds; times count from 1970, on the store's clock.
"""

from __future__ import annotations

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.jobs.outcomes import Ack


class Want(msgspec.Struct, frozen=True):
    """A request for up to ``n`` jobs from these base lanes and the lanes beside them.

    The jobs come in the order of (priority descending, seq), but the first ``oldest`` jobs by seq alone. So the lowest
    priority never starves.
    """

    lanes: tuple[str, ...]
    n: int
    oldest: int = 0
    limited: int | None = None
    """At most this many of the jobs use a *scarce* bucket, because a job that is claimed ahead of a free slot uses
    capacity without running; None means any number. See :data:`mainspring.limits.records.PLENTIFUL`."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A job that the store hands to a worker."""

    id: bytes
    token: int
    task: str
    queue: str
    lane: str
    priority: int
    attempt: int
    """1 for the first attempt of an epoch. Attempts that were given back do not count."""
    epoch: int
    crashes: int
    early: bool
    enqueued: int
    expires: int | None
    record: bytes
    turn: int
    """The number of the turn that claimed the job. A repeated turn returns the same number."""
    of_part: bool = False
    """The job is a run of a schedule: it has the mark of :func:`mainspring.schedules.records.part_mark`."""


class CancelOrder(msgspec.Struct, frozen=True):
    """An order to the owner of a running job: cancel the job."""

    id: bytes
    token: int
    reason: str = ""


class TurnResult(msgspec.Struct, frozen=True):
    """The reply to a turn."""

    now: int
    lost: bool = False
    claims: tuple[Claim, ...] = ()
    already: tuple[tuple[bytes, int], ...] = ()
    stale: tuple[tuple[bytes, int], ...] = ()
    unstorable: tuple[tuple[bytes, int], ...] = ()
    orders: tuple[CancelOrder, ...] = ()
    gone: tuple[tuple[bytes, int], ...] = ()
    more: bool = False
    """The turn did not examine all lanes: there may be work in them. The next turn continues."""
    full: bool = False
    """The store has no space left, and therefore gave no claims."""
    next_at: int | None = None
    """When a rate or breaker lets a job through that this turn asked for and did not get, as far as it examined."""
    held: tuple[str, ...] = ()
    """Queues with a job that this turn asked for and for which an unkeyed limit had no capacity: they are not empty."""
    breakers: tuple[BreakerRow, ...] = ()
    """The breakers that this turn has opened, closed, or begun to probe."""
    short: tuple[bytes, ...] = ()
    """The ids of the claims that use a scarce bucket: they must not wait for a slot. Claims that a repeated turn
    returns again are not among them."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """The data that a worker registers with its first beat."""

    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    lease: int = 15_000_000
    info: bytes = b"{}"
    """Opaque JSON for people: host, pid, version, ..."""


class Beat(msgspec.Struct, frozen=True):
    """A heartbeat of one worker. ``register`` makes its row if there is none, else it replaces ``info``."""

    worker: str
    register: Registration | None = None


class BeatResult(msgspec.Struct, frozen=True):
    """The reply to a beat."""

    worker: str
    alive: bool
    number: int = 0


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the store has it."""

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

    def is_silent(self, now: int) -> bool:
        """Whether it is marked lost, or has sent no heartbeat for longer than its lease: it claims no jobs."""
        return self.lost or now - self.seen > self.lease


class RescueResult(msgspec.Struct, frozen=True):
    """The jobs that a rescue or a retirement moved, by their new state. ``taken`` is False if the compare failed."""

    taken: bool
    ready: tuple[bytes, ...] = ()
    retrying: tuple[bytes, ...] = ()
    dead: tuple[bytes, ...] = ()
    cancelled: tuple[bytes, ...] = ()
    breakers: tuple[BreakerRow, ...] = ()
    """The breakers that this call has opened or closed."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A numbered report and request of one worker. At most one turn of a worker is under way."""

    worker: str
    number: int
    """One more than the number of the last turn, or the same number if that turn is repeated."""
    seen: int
    """The highest number whose reply this worker has received."""
    acks: tuple[Ack, ...] = ()
    wants: tuple[Want, ...] = ()
    suspects: int = 1
    """How many suspects may be among the claims: 0 if the worker runs a job with a crash."""
    holds: tuple[tuple[bytes, int], ...] | None = None
    """From time to time, all leases that the worker believes to have. ``gone`` of the reply names the invalid ones."""
    good: tuple[tuple[str, int], ...] = ()
    """For breakers with a share: the number of successes that the worker has not reported before."""
