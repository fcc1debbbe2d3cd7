"""The stored document of a schedule: its definition, its next occurrence, its open runs and its failures."""

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
What = Literal["fired", "triggered", "backfilled", "waiting", "skipped", "coalesced", "missed", "rejected"]


class Definition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A schedule as it was declared. Durations and moments are microseconds."""

    job: NewJob
    """The template of each run. Each run gets its own id."""
    limits: tuple[Limit, ...] = ()
    """The limits that the job names, for a store that does not know them yet."""
    mode: Mode = "scheduled"
    rule: RuleWindow | None = None
    """The rule as declared, before it was anchored. Only for mode ``scheduled``."""
    immediate: bool = False
    jitter: int = 0
    overlap: Overlap = "skip"
    misfire: Misfire = "once"
    depends_on: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    blocked_by: tuple[str, ...] = ()
    """Schedules that were put at run time and name this schedule in their ``blocks``."""
    group: str = ""
    max_failures: int = 5
    """The number of failed runs in a row that disables the schedule; 0: never."""
    reenable_after: int = 600_000_000
    """The pause until the schedule is enabled on trial, doubled each further time; 0: an operator must enable it."""
    min_pause: int = 0
    """For mode ``continuous``: the pause between the end of a run and the next start."""
    history: int = 100
    """The number of occurrences whose records are kept."""


class OpenRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run whose end no scheduler has seen yet."""

    at: int
    """The occurrence."""
    job: bytes
    made: int
    """When the job was enqueued."""
    what: What = "fired"


class EndedRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run that ended. A retry by hand starts it again, in a new epoch of its job."""

    run: OpenRun
    epoch: int
    """The epoch of the job that ended."""


class WaitingOccurrence(msgspec.Struct, frozen=True, omit_defaults=True):
    """An occurrence that waits for the success of other schedules. Its job does not exist yet."""

    at: int
    since: int
    """When a scheduler first looked at it."""


class LastSuccess(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last success of a schedule, for the schedules that depend on it."""

    number: int
    """Greater than the number of each earlier success: the time when it was recorded, or one more than the last."""
    ended: int
    """The latest end of a successful run."""


class UnseenStart(msgspec.Struct, frozen=True, omit_defaults=True):
    """A start of a schedule with dependencies, until a scheduler has seen that one of its jobs started."""

    jobs: tuple[bytes, ...]
    """The job of the run, or those of a backfill, which are one start. Jobs that will never start are left out."""
    made: int
    """When the jobs were made."""
    used: dict[str, int] = {}
    """``SchedulePlan.used`` before this start: it holds again if none of the jobs starts."""


class LastOutcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last run that ended."""

    at: int
    job: bytes
    state: State | None = None
    """None: the job was deleted before a scheduler saw its end."""
    ended: int = 0


class SchedulePlan(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that the store keeps for a schedule in its row."""

    definition: Definition
    rule: RuleWindow | None = None
    """The rule of the definition, anchored when it was stored."""
    owner: Literal["code", "user"] = "user"
    version: str = ""
    """The version of the code that declared the schedule."""
    program: str = ""
    """The name of the app that declared the schedule, if it was given one."""
    gone_in: str | None = None
    """The version of the code that no longer declares the schedule; None: the code declares it."""
    enabled: bool = True
    off: Off = ""
    """Why the schedule is disabled; empty if it is enabled."""
    note: str = ""
    """The reason that the operator gave, or the last error."""
    off_at: int = 0
    back_at: int | None = None
    """When the schedule is enabled on trial."""
    trial: bool = False
    """The schedule was disabled by failures and is enabled on trial: the next run decides."""
    trips: int = 0
    """How often failures have disabled the schedule since its last successful run."""
    watermark: int = 0
    """No occurrence at or before this moment fires again, except by backfill."""
    due: int | None = None
    """The next occurrence; for mode ``continuous``, when the next run may start."""
    asked: int = 0
    """The latest moment that a triggered run is kept under."""
    forgotten: int = 0
    """Records of occurrences before this moment may be gone, because ``history`` was smaller at that time."""
    open: tuple[OpenRun, ...] = ()
    needed: bool = False
    """Whether a schedule has named this one in its ``depends_on``."""
    ended: tuple[EndedRun, ...] = ()
    """If the schedule is needed: the last runs that ended, the newest last. A retry by hand may end them again."""
    success: LastSuccess | None = None
    waiting: WaitingOccurrence | None = None
    used: dict[str, int] = {}
    """For each schedule that this one depends on: the number of its success that the last start has used, or that it
    had when it became a dependency. A start needs a greater number."""
    starts: tuple[UnseenStart, ...] = ()
    """In the order in which they were made."""
    failures: int = 0
    """The number of failed runs since the last successful run."""
    last: LastOutcome | None = None
    succeeded: int | None = None
    """When the last successful run ended."""
    failed: int | None = None
    """When the last failed run ended."""
    error: str = ""
    """The error of the last failed run."""


class OccurrenceRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history record of one occurrence."""

    what: What
    made: int = 0
    """When the scheduler decided it."""
    note: str = ""
    state: State | None = None
    """The final state of the job."""
    reason: Reason | None = None
    started: int | None = None
    ended: int | None = None
    ran: int | None = None
    """Microseconds that the body of the job ran."""
    error: str = ""
    count: int = 1
    """The number of missed occurrences in this record, which is kept under the earliest of them."""


_encode = msgspec.json.Encoder().encode
_plan = msgspec.json.Decoder(SchedulePlan).decode
_record = msgspec.json.Decoder(OccurrenceRecord).decode


def encode(plan: SchedulePlan) -> bytes:
    """Encode the row's document as JSON."""
    return _encode(plan)


def decode(doc: bytes) -> SchedulePlan:
    """Decode the row's document; ``ValueError`` if this version cannot read it."""
    return _plan(doc)


def encode_run(at: int, record: OccurrenceRecord, job: bytes | None = None) -> ScheduleRun:
    """Encode the history record of the occurrence ``at`` for the store."""
    return ScheduleRun(at=at, job=job, doc=_encode(record))


def decode_run(run: ScheduleRun) -> OccurrenceRecord:
    """Decode the history record of a stored run."""
    return _record(run.doc)
