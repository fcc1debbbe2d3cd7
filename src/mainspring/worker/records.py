"""Records of workers that the core and a store exchange: turns, claims, heartbeats, rescues.

An id is the 16 bytes of a UUID. Times and durations are in microseconds; times count from 1970, on the store's clock.
"""

from __future__ import annotations

import msgspec

from mainspring.breakers.records import BreakerSwap, StoredBreaker
from mainspring.jobs.outcomes import Ack


class Want(msgspec.Struct, frozen=True):
    """A request for up to ``n`` jobs from these base lanes and the lanes beside them.

    The jobs come by their order keys, see :func:`mainspring.jobs.records.order_key`. A turn has its wants for free
    slots before its wants with ``ahead``, and the reply has the claims in the order of the wants.
    """

    lanes: tuple[str, ...]
    n: int
    ahead: bool = False
    """The jobs will wait for a slot, and a job that waits uses capacity without running. So they are jobs without
    limits, or jobs whose limits are all plentiful: see :data:`mainspring.limits.records.PLENTIFUL`."""


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
    breakers: tuple[StoredBreaker, ...] = ()
    """The breakers that the turn names, as they are after it; without those that are not declared."""
    passed: bool = False
    """A want with ``ahead`` passed over jobs that may start, but only in a free slot."""


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


class LeadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to :meth:`Store.lead`: what this worker leads, and when the services of the fleet have work."""

    now: int
    services: tuple[str, ...] = ()
    """The services that this worker leads, for the span of the call."""
    fleet: int = 1
    """About how many workers the store has."""
    next_due: int | None = None
    """When a promotion has work: see ``PromoteResult.next_due``. In the past if it is late."""
    next_look: int | None = None
    """The first ``look`` of the schedules that are not always due. In the past if that schedule is late."""
    always_due: bool = False
    """Whether there is a schedule with ``look=ALWAYS_DUE``: an occurrence waits, for example for other schedules."""


class RescueResult(msgspec.Struct, frozen=True):
    """The jobs that a rescue or a retirement moved, by their new state. ``taken`` is False if the compare failed."""

    taken: bool
    ready: tuple[bytes, ...] = ()
    retrying: tuple[bytes, ...] = ()
    dead: tuple[bytes, ...] = ()
    cancelled: tuple[bytes, ...] = ()


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
    """How many suspects may be among the claims: 0 if the worker holds a job that crashed before
    (:func:`mainspring.jobs.lanes.excludes_suspects`)."""
    holds: tuple[tuple[bytes, int], ...] | None = None
    """From time to time, all leases that the worker believes to have. ``gone`` of the reply names the invalid ones."""
    breakers: tuple[BreakerSwap, ...] = ()
    """The breakers that this turn writes or reads: those whose work has ended or begun to probe, each once."""
