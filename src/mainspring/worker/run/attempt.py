"""One claimed job on its way through this worker."""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from mainspring.jobs.lanes import is_limited, limit_label, limits_in

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from mainspring.jobs.outcomes import Lease
    from mainspring.jobs.records import JobBody, LogLine
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.records import Claim
    from mainspring.worker.run.slots.thread_slots import Runner
    from mainspring.worker.run.stream import Stream

NEVER = float("inf")


class Ending(IntEnum):
    """Why this worker asked a body to end. A higher one replaces a lower one."""

    NONE = 0
    STOP = 1
    """The worker stops: handed back without blame."""
    FENCE = 2
    """The lease can no longer be proven: handed back without blame."""
    HARD = 3
    """The hard time limit passed."""
    CANCEL = 4
    """A cancel order came."""
    GONE = 5
    """The store gave the job to somebody else: nothing is reported."""


class AttemptHost(Protocol):
    """What the attempts of one worker share."""

    state: Any
    """What the lifespans gave."""
    code: str
    """The version of the code that runs here."""

    @property
    def runs(self) -> dict[bytes, str]:
        """Of the jobs that it holds, those that are runs of a schedule, each with its name."""
        ...

    @property
    def worker(self) -> str:
        """The worker's name in the store."""
        ...

    def told(self, attempt: RunningAttempt, *, soon: bool = False) -> None:
        """The attempt has news (progress, log lines, items) to be sent; ``soon`` for items. Any thread."""
        ...

    def store_now(self) -> int:
        """The store's time as well as it is known here, in microseconds."""
        ...


def _names_more(lane: str, spec: TaskSpec) -> bool:
    """Whether the jobs of a limited lane name more than the breaker of their task: a queue may have limits too."""
    if len(spec.bounds) > 1:
        return True
    guard = limit_label(spec.bounds[0].limit.name)
    return any(label != guard and "*" not in label for label in limits_in(lane))


class RunningAttempt:
    """A claim, and what became of it here. Times are boottime seconds.

    Owned by the loop's thread, except ``started``, ``slot``, ``next_at`` and ``begun`` of a thread
    body, which its own thread writes before the body starts.
    """

    many = False
    """It stands for the jobs of one call of a bulk task."""

    __slots__ = (
        "asked_at",
        "begun",
        "body",
        "claim",
        "context",
        "early",
        "ending",
        "home",
        "lease",
        "limited",
        "logs",
        "news",
        "next_at",
        "over",
        "progress",
        "reason",
        "received",
        "retries",
        "runner",
        "short",
        "slot",
        "soft_at",
        "soft_due",
        "soft_pending",
        "spec",
        "spent",
        "started",
        "stream",
        "stuck",
        "task",
        "timeout",
        "told",
    )

    def __init__(self, claim: Claim, spec: TaskSpec, lease: Lease, received: float, home: AttemptHost) -> None:
        self.home = home
        self.claim = claim
        self.spec = spec
        self.lease = lease
        self.received = received
        self.early = claim.early or spec.early
        """It began once and must not begin again; a producer that knew only the task's name did not say so."""
        self.limited = (
            "#" in claim.lane and is_limited(claim.lane) and (spec.breaker is None or _names_more(claim.lane, spec))
        )
        """The job holds a place in a limit while it is claimed, or in several; a breaker alone is none."""
        self.short = False
        """The place is one of few: nobody else has it while the job waits for a slot."""
        self.body: JobBody | None = None
        """The record of the job, once it was opened."""
        self.begun = False
        """The body has started."""
        self.over = False
        """The body has ended, or never will start."""
        self.ending = Ending.NONE
        self.reason = ""
        self.stuck = False
        self.started = 0.0
        self.retries = spec.retries
        self.timeout = 0
        """The hard limit in force, microseconds; 0 for none."""
        self.soft_at = NEVER
        self.soft_due = False
        """The soft limit was told to the body."""
        self.soft_pending = False
        """The next cancel of the task means SoftTimeout."""
        self.next_at = NEVER
        """When this attempt needs to be looked at again."""
        self.asked_at = 0.0
        """When the body was first asked to end."""
        self.slot = -1
        self.task: asyncio.Task[None] | None = None
        self.runner: Runner | None = None
        self.context: Any = None
        self.news = False
        """It is in line to have its news sent."""
        self.told = False
        """It has had news."""
        self.progress: bytes | None = None
        self.logs: deque[LogLine] | None = None
        self.stream: Stream | None = None
        self.spent: dict[str, int] | None = None
        """What it really cost, by limit, if the handler said so."""

    @property
    def jobs(self) -> Sequence[RunningAttempt]:
        """The attempts that end with it: itself."""
        return (self,)

    @property
    def pressing(self) -> bool:
        """Must not wait for a slot: it counts as begun, is under suspicion, or keeps others out."""
        return self.claim.early or self.claim.crashes > 0 or self.short

    @property
    def guarded(self) -> bool:
        """Must never overlap with a re-run: the body ends before the lease does."""
        return self.early or self.spec.strict or self.limited

    @property
    def trace(self) -> str:
        """32 hex digits that all jobs which come of one share."""
        return (self.body.trace if self.body is not None else None) or self.claim.id.hex()

    @property
    def fields(self) -> dict[str, Any]:
        """What a log record says of the job."""
        claim = self.claim
        return {
            "job_id": str(UUID(bytes=claim.id)),
            "task": claim.task,
            "queue": claim.queue,
            "attempt": claim.attempt,
            "worker": self.home.worker,
            "trace_id": self.trace,
        }

    @property
    def deadline(self) -> float:
        """When the hard limit is; ``NEVER`` without one."""
        return self.started + self.timeout / 1e6 if self.timeout else NEVER

    def run_us(self, now: float) -> int:
        return int((now - self.started) * 1e6) if self.begun else 0

    def __repr__(self) -> str:
        return f"<Attempt {self.claim.attempt} of {self.claim.task} {self.claim.id.hex()}>"
