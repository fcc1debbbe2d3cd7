"""Records of workers that cross the store seam: turns, claims, heartbeats, rescues.

Ids are the 16 bytes of a UUID. Times and durations are microseconds; times count from 1970 on the clock of the store.
"""

from __future__ import annotations

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.jobs.outcomes import Ack


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


class CancelOrder(msgspec.Struct, frozen=True):
    """Something that the owner of a running job must do now; so far, only to cancel it."""

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


class BeatResult(msgspec.Struct, frozen=True):
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


class RescueResult(msgspec.Struct, frozen=True):
    """What a rescue or a retirement moved. ``taken`` is False when the compare failed."""

    taken: bool
    ready: tuple[bytes, ...] = ()
    retrying: tuple[bytes, ...] = ()
    dead: tuple[bytes, ...] = ()
    cancelled: tuple[bytes, ...] = ()
    breakers: tuple[BreakerRow, ...] = ()
    """Those that this has opened or closed."""


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One worker's numbered report and request. At most one is in flight per worker."""

    worker: str
    number: int
    """One more than the last turn, or the same number when that turn is repeated."""
    seen: int
    """The highest number whose reply this worker has read."""
    acks: tuple[Ack, ...] = ()
    wants: tuple[Want, ...] = ()
    suspects: int = 1
    """How many suspects may be among the claims: 0 when the worker holds a job with a crash."""
    holds: tuple[tuple[bytes, int], ...] | None = None
    """All leases the worker believes it has, now and then; the reply's ``gone`` names those it has not."""
    good: tuple[tuple[str, int], ...] = ()
    """Of breakers that go by a share: how many successes the worker has seen that it did not tell of before."""
