"""A schedule as it stands in the store: what was declared, and how far it has got."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainspring.jobs.records import NewJob
from mainspring.limits.records import Limit
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.rules import RuleWindow
from mainspring.states import Reason, State

Mode = Literal["scheduled", "triggered", "continuous"]
Overlap = Literal["skip", "queue", "allow", "cancel_previous"]
Misfire = Literal["skip", "once", "all"]
Off = Literal["", "operator", "failures", "orphaned"]
What = Literal["fired", "triggered", "backfilled", "skipped", "coalesced", "missed", "rejected"]


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What somebody declared. Durations and moments in microseconds."""

    job: NewJob
    """What each run is made of; the id is filled in."""
    limits: tuple[Limit, ...] = ()
    """Those that the job names, for a store that does not know them yet."""
    mode: Mode = "scheduled"
    rule: RuleWindow | None = None
    """As it was declared, before it was anchored. Only of mode ``scheduled``."""
    immediate: bool = False
    jitter: int = 0
    overlap: Overlap = "skip"
    misfire: Misfire = "once"
    depends_on: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    """Schedules that were put at run time and name this one in their ``blocks``."""
    group: str = ""
    max_failures: int = 5
    """So many runs that failed in a row disable it; 0: never."""
    reenable_after: int = 600_000_000
    """From then until it is tried again, and twice as long each further time; 0: somebody has to enable it."""
    min_pause: int = 0
    """Of mode ``continuous``: from the end of a run to the next."""
    history: int = 100


class OpenRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run of which it is not known yet how it ended."""

    at: int
    job: bytes
    made: int
    """When its job was enqueued."""
    what: What = "fired"


class LastOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last run that ended."""

    at: int
    job: bytes
    state: State | None = None
    """None: the job was deleted before anybody looked."""
    ended: int = 0


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The row of a schedule."""

    definition: Definition
    rule: RuleWindow | None = None
    """As it was anchored when it was stored."""
    owner: Literal["code", "user"] = "user"
    version: str = ""
    """Of the code that declared it."""
    gone_in: str | None = None
    """The version of the code that does not declare it any more; None: it is declared."""
    enabled: bool = True
    off: Off = ""
    """Why it is not enabled."""
    note: str = ""
    """The words of whoever disabled it, or what failed last."""
    off_at: int = 0
    back_at: int | None = None
    """When it is enabled on trial."""
    trial: bool = False
    """It was disabled by failures, and the next run decides."""
    trips: int = 0
    """How often failures have disabled it since a run succeeded."""
    watermark: int = 0
    """Nothing at or before this moment fires again, except by backfill."""
    due: int | None = None
    """The next occurrence; of mode ``continuous`` when the next run may begin."""
    asked: int = 0
    """The latest moment that a run which somebody asked for stands under."""
    forgotten: int = 0
    """Of occurrences before this moment records may have been dropped, when fewer were kept than now."""
    open: tuple[OpenRun, ...] = ()
    failures: int = 0
    """Runs that failed since one succeeded."""
    last: LastOutcome | None = None
    succeeded: int | None = None
    """When a run succeeded last."""
    failed: int | None = None
    error: str = ""
    """What the last run that failed said."""


class OccurrenceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an occurrence, as it is kept under it."""

    what: What
    made: int = 0
    """When that was decided."""
    note: str = ""
    state: State | None = None
    """How the job ended."""
    reason: Reason | None = None
    started: int | None = None
    ended: int | None = None
    error: str = ""
    count: int = 1
    """Of occurrences that were missed and stand in this record together; the earliest of them is its own."""


_encode = msgspec.json.Encoder().encode
_plan = msgspec.json.Decoder(SchedulePlan).decode
_record = msgspec.json.Decoder(OccurrenceRecord).decode


def encode(plan: SchedulePlan) -> bytes:
    return _encode(plan)


def decode(doc: bytes) -> SchedulePlan:
    return _plan(doc)


def run_of(at: int, record: OccurrenceRecord, job: bytes | None = None) -> ScheduleRun:
    """The record as a store keeps it."""
    return ScheduleRun(at=at, job=job, doc=_encode(record))


def record_of(run: ScheduleRun) -> OccurrenceRecord:
    return _record(run.doc)
