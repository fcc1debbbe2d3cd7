"""One claimed job while it runs in this worker, and what all attempts of the worker share."""

from __future__ import annotations

import os
from collections import deque
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.common.clock import boottime
from mainspring.common.ids import id_text, worker_id
from mainspring.jobs.lanes import is_limited, limit_label, limits_in
from mainspring.worker.secret_arguments import find_secrets

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from mainspring.jobs.outcomes import Lease
    from mainspring.jobs.records import JobBody, LogLine
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.job_lines import JobLines
    from mainspring.worker.records import Claim
    from mainspring.worker.run.context_reports import Stream
    from mainspring.worker.run.progress import ReportSender
    from mainspring.worker.run.slots.lending import SlotLender
    from mainspring.worker.run.slots.thread_slots import SlotThread

NEVER = float("inf")


class BodyInChild(Protocol):
    """A child process that runs bodies of this worker."""

    def end(self, attempt: RunningAttempt, ending: Ending, reason: str) -> None:
        """Ask the body of ``attempt`` to end."""
        ...


class Ending(IntEnum):
    """Why this worker asked a body to end. A higher value replaces a lower one."""

    NONE = 0
    STOP = 1
    """The worker stops: the job is handed back without blame."""
    FENCE = 2
    """The worker can no longer prove its lease: the job is handed back without blame."""
    HARD = 3
    """The hard time limit passed."""
    CANCEL = 4
    """A cancel order came."""
    GONE = 5
    """The store gave the job to another worker: nothing is reported."""


class RunEnvironment:
    """What all attempts of one worker share. The turn loop writes it, any thread reads it."""

    reports: ReportSender
    """Sends the progress, the log lines and the stream items of attempts."""
    lender: SlotLender
    """Lends the slots of bodies that wait for other jobs."""

    def __init__(self, code: str) -> None:
        self.job_lines: JobLines | None = None
        """Logs one line for each attempt; None if the worker logs only failures."""
        self.worker = worker_id()
        """The worker's id in the store. The worker takes a new id after the store declared it lost."""
        self.code = code
        """The version of the code that runs here."""
        self.pid = os.getpid()
        """The process of the worker. A body that forks makes another one: see ``forked.py``."""
        self.state: Any = None
        """The value of the lifespans: ``ctx.state``."""
        self.app: Any = None
        """The app of the worker, which a flow without a task takes; None if the worker was made without one."""
        self.store_ahead = 0
        """The store's clock minus boottime, in microseconds."""
        self.store_replied = 0
        """The store's time in the last reply of a turn, in microseconds."""
        self.schedule_runs: dict[bytes, str] = {}
        """The held jobs that are runs of a schedule, each with the name of the schedule. Any thread adds to it."""

    def store_now(self) -> int:
        """The store's time, as far as this worker knows it, in microseconds: never before the claim of a held job."""
        return max(int(boottime() * 1e6) + self.store_ahead, self.store_replied)


def _has_more_limits(lane: str, spec: TaskSpec) -> bool:
    """Whether the jobs of a limited lane have limits besides the breaker of their task: a queue may have limits too."""
    if len(spec.bounds) > 1:
        return True
    breaker = limit_label(spec.bounds[0].limit.name)
    return any(label != breaker and "*" not in label for label in limits_in(lane))


class RunningAttempt:
    """A claim and the state of its run. Times are boottime seconds.

    The loop's thread owns it, except ``started``, ``slot``, ``check_at`` and ``begun`` of a thread body: the thread of
    the body writes these before the body starts.
    """

    is_bulk = False
    """Whether this attempt is one call of a bulk task and so includes all its jobs."""

    __slots__ = (
        "_secrets",
        "actual_cost",
        "begun",
        "body",
        "check_at",
        "child",
        "claim",
        "context",
        "early",
        "ending",
        "ending_reason",
        "ending_since",
        "environment",
        "finished",
        "has_reports",
        "inputs",
        "late_report",
        "lease",
        "limited",
        "logs",
        "progress",
        "received",
        "report_queued",
        "retries",
        "slot",
        "soft_at",
        "soft_pending",
        "soft_raised",
        "spec",
        "started",
        "stream",
        "stuck",
        "takes_capacity",
        "task",
        "thread",
        "timeout",
    )

    def __init__(
        self, claim: Claim, spec: TaskSpec, lease: Lease, received: float, environment: RunEnvironment
    ) -> None:
        self.environment = environment
        self.claim = claim
        self.spec = spec
        self.lease = lease
        self.received = received
        self.early = claim.early or spec.early
        """``ack="early"``: once begun, it must not begin again. A job enqueued by name alone does not carry this."""
        self.limited = (
            "#" in claim.lane
            and is_limited(claim.lane)
            and (spec.breaker is None or _has_more_limits(claim.lane, spec))
        )
        """The job holds capacity of one or more limits while it is claimed. A breaker alone does not count."""
        self.takes_capacity = False
        """The job was claimed for a free slot and has limits: while it waits, another job could use the capacity."""
        self.body: JobBody | None = None
        """The record of the job, once it was decoded."""
        self.inputs: dict[str, bytes] | None = None
        """The arguments that are results of other jobs, as JSON."""
        self.begun = False
        """The body has started."""
        self.finished = False
        """The body has ended, or will never start."""
        self.ending = Ending.NONE
        self.ending_reason = ""
        """The reason of a cancel order; for a hard time limit, the place of the body."""
        self.ending_since = 0.0
        """When the body was first asked to end."""
        self.stuck = False
        """The body was asked to end and did not end within the grace."""
        self.started = 0.0
        self.retries = spec.retries
        self.timeout = 0
        """The hard time limit in microseconds; 0 for none."""
        self.soft_at = NEVER
        self.soft_raised = self.soft_pending = False
        """``SoftTimeout`` was raised in the body; the next cancellation of the task means ``SoftTimeout``."""
        self.check_at = NEVER
        """When the time limits of this attempt must be checked again."""
        self.slot = -1
        self.task: asyncio.Task[None] | None = None
        self.thread: SlotThread | None = None
        self.child: BodyInChild | None = None
        """The child process in which the body runs, or waits for its turn."""
        self.context: Any = None
        self.report_queued = self.has_reports = False
        """It waits for its reports to be sent; it has reported progress, log lines or items."""
        self.late_report = False
        """A report after the end of the body was dropped, and a warning was logged."""
        self.progress: bytes | None = None
        self.logs: deque[LogLine] | None = None
        self.stream: Stream | None = None
        self.actual_cost: dict[str, int] | None = None
        """What the attempt really cost, by limit, if the handler called ``ctx.cost()``."""

    @property
    def jobs(self) -> Sequence[RunningAttempt]:
        """The attempts that end together with it: itself."""
        return (self,)

    @property
    def needs_slot_now(self) -> bool:
        """It must not wait for a slot: it counts as begun, is a suspect, or takes capacity of a limit."""
        return self.claim.early or self.claim.crashes > 0 or self.takes_capacity

    @property
    def guarded(self) -> bool:
        """It must never overlap with a re-run: its body must end before the lease ends."""
        return self.early or self.spec.strict or self.limited

    @property
    def trace(self) -> str:
        """The trace id: 32 hex digits, the same for a job and all its descendants."""
        return (self.body.trace if self.body is not None else None) or self.claim.id.hex()

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts to hide in the errors and log lines of the job."""
        try:
            return self._secrets
        except AttributeError:  # found when first needed: __init__ does not set it, because most jobs need it never
            self._secrets: tuple[str, ...] = find_secrets(self.spec, self.claim.record, self.inputs)
            return self._secrets

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of log records about the job."""
        claim = self.claim
        return {
            "job_id": id_text(claim.id),
            "task": claim.task,
            "queue": claim.queue,
            "attempt": claim.attempt,
            "worker": self.environment.worker,
            "trace_id": self.trace,
        }

    @property
    def deadline(self) -> float:
        """When the hard limit passes; ``NEVER`` without one."""
        return self.started + self.timeout / 1e6 if self.timeout else NEVER

    def run_us(self, now: float) -> int:
        """Microseconds since the body started; 0 if it did not."""
        return int((now - self.started) * 1e6) if self.begun else 0

    def __repr__(self) -> str:
        return f"<Attempt {self.claim.attempt} of {self.claim.task} {id_text(self.claim.id)}>"
