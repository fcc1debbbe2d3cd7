"""What a handler knows of its own run: ``Context`` for ``def``, ``AsyncContext`` for ``async def``.

Only ``spawn`` waits: progress, log lines and stream items are buffered and sent by the reporter.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from mainspring.codec import loads
from mainspring.common.clock import boottime, to_datetime
from mainspring.common.ids import new_id
from mainspring.errors import NotBuilt, NotOpen, SoftTimeout
from mainspring.worker.run import bind, context_reports
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt
from mainspring.worker.run.classify import ending_error
from mainspring.worker.run.spawn import Spawned
from mainspring.worker.run.track import Track

if TYPE_CHECKING:
    from mainspring.jobs.call import Call
    from mainspring.jobs.job import Job
    from mainspring.limits.declare import LimitSet
    from mainspring.tasks.spec import TaskSpec

A = TypeVar("A")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_LATER = frozenset({"step", "sleep", "wait_event", "transaction", "checkpoint", "resume", "flow"})

current: ContextVar[RunningAttempt] = ContextVar("mainspring_attempt")
"""The attempt whose body runs here."""


class Context:
    """The run of a ``def`` handler; see :class:`AsyncContext` for ``async def``.

    Attributes do no I/O. ``Context.current()`` gives the context of the running job anywhere below
    its handler; :meth:`bind` carries it into threads that the handler starts itself.
    """

    __slots__ = ("_attempt", "_job_id", "_logger", "_meta", "_spawned", "_task")

    def __init__(self, attempt: RunningAttempt | None, task: str) -> None:
        self._attempt = attempt
        self._task = task
        self._job_id: UUID | None = None
        self._logger: context_reports.JobLogger | None = None
        self._meta: dict[str, Any] | None = None
        self._spawned: Spawned | None = None

    @classmethod
    def local(cls, task: str) -> Self:
        """The context of a plain call: nothing is stored, nothing ends it."""
        return cls(None, task)

    @classmethod
    def current(cls) -> Self:
        """The context of the job that runs here; ``NotOpen`` outside of one."""
        attempt = current.get(None)
        if attempt is None:
            raise NotOpen(
                f"{cls.__name__}.current(): no job runs here",
                hint="In a thread of your own use ctx.bind(fn); a plain call has no current context.",
            )
        found = context_of(attempt)
        if not isinstance(found, cls):
            raise NotOpen(
                f"{cls.__name__}.current(): the running task {attempt.claim.task!r} has the other colour",
                hint=f"Use {type(found).__name__}.current() there.",
            )
        return found

    # ---- what it is --------------------------------------------------------------------------

    @property
    def job_id(self) -> UUID:
        if self._job_id is None:
            self._job_id = new_id() if self._attempt is None else UUID(bytes=self._attempt.claim.id)
        return self._job_id

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._task

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return 1 if self._attempt is None else self._attempt.claim.attempt

    @property
    def token(self) -> int:
        """The fencing token: grows with every run of this job; hand it to systems that compare it."""
        return 0 if self._attempt is None else self._attempt.claim.token

    @property
    def queue(self) -> str:
        return "" if self._attempt is None else self._attempt.claim.queue

    @property
    def tags(self) -> tuple[str, ...]:
        body = None if self._attempt is None else self._attempt.body
        return () if body is None else body.tags

    @property
    def meta(self) -> dict[str, Any]:
        """What was given as ``meta=``; a copy of this run's own."""
        if self._meta is None:
            body = None if self._attempt is None else self._attempt.body
            self._meta = loads(body.meta, dict[str, Any]) if body is not None and body.meta else {}
        return self._meta

    @property
    def schedule(self) -> str | None:
        """The schedule that this is a run of."""
        body = None if self._attempt is None else self._attempt.body
        return None if body is None else body.schedule

    @property
    def occurrence(self) -> datetime | None:
        """The moment that this run of a schedule stands for: when it was due by the rule, however late it is, or when
        somebody asked for it. Of a backfill, the moment that is made up for."""
        body = None if self._attempt is None else self._attempt.body
        return None if body is None or body.occurrence is None else to_datetime(body.occurrence)

    @property
    def trace_id(self) -> str:
        """32 hex digits, shared by all jobs that come of one: a valid trace id of the W3C."""
        return self.job_id.hex if self._attempt is None else self._attempt.trace

    @property
    def deadline(self) -> datetime | None:
        """When the hard time limit is, by this machine's clock; None without a limit."""
        if self._attempt is None or self._attempt.deadline == NEVER:
            return None
        left = self._attempt.deadline - boottime()
        return to_datetime(int(datetime.now(UTC).timestamp() * 1e6 + left * 1e6))

    @property
    def state(self) -> Any:
        """What the app's lifespan gave: its value; with several, a namespace by function name."""
        return None if self._attempt is None else self._attempt.home.state

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry what :func:`log_fields` gives."""
        if self._logger is None:
            fields = {"job_id": str(self.job_id), "task": self._task, "attempt": 1, "trace_id": self.trace_id}
            self._logger = context_reports.JobLogger(fields if self._attempt is None else self._attempt.fields)
        return self._logger

    @property
    def jobs(self) -> tuple[Self, ...]:
        """The context of each job that this call runs: of each item of a bulk task, in order; else this one alone."""
        return (self,)

    # ---- whether to go on --------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Somebody cancelled this job."""
        return self._attempt is not None and self._attempt.ending is Ending.CANCEL

    def check(self) -> None:
        """Raise ``JobCancelled`` or ``SoftTimeout`` if this run should end: for loops in threads."""
        attempt = self._attempt
        if attempt is None:
            return
        if attempt.ending:
            raise ending_error(attempt)
        if attempt.soft_at <= boottime():
            attempt.soft_at, attempt.soft_due = NEVER, True
            raise SoftTimeout(attempt.spec.soft_timeout / 1e6)

    def cost(self, units: int, limiter: LimitSet | None = None) -> None:
        """What this attempt really uses up of the rates that its job names, or of one limiter's; the last one counts.

        Told with the end of the attempt: what was reckoned too low counts from then on, too much is given back.
        """
        context_reports.cost(self._attempt, self._task, units, limiter)

    # ---- news --------------------------------------------------------------------------------

    def progress(self, done: float, total: float | None = None, note: str = "", **meta: Any) -> None:
        """How far the work is; seen by every process within about a second. The last one counts."""
        context_reports.progress(self._attempt, self._task, done, total, note, meta)

    def track(self, items: Iterable[A], note: str = "", total: int | None = None) -> Iterator[A]:
        """Go over ``items`` and report progress by itself; checks for the end at each."""
        return Track(self, items, note, total)

    def log(self, text: str, level: str = "info", **fields: Any) -> None:
        """Keep a line with the job (the newest 1,000) and send it to :attr:`logger`.

        ``level`` is debug, info, warning, error or critical.
        """
        context_reports.log(self._attempt, self.logger, text, level, fields)

    def send(self, item: Any) -> None:
        """Put an item into the job's stream: ``for item in job.stream()`` sees it, in any process, within moments.

        A retried attempt sends from the first place again, and no reader sees a place twice. A stream holds
        10,000 items and 8 MB; ``StreamFull`` beyond.
        """
        context_reports.send(self._attempt, self._task, item)

    # ---- children ----------------------------------------------------------------------------

    def spawn(self, call: Call[R]) -> Job[R]:
        """Enqueue a call now, as a child of this job: ``Query.where(parent=job.id)`` finds it.

        A retried attempt that spawns the same call again gets the child that is there already. In a
        plain call there is no job to be a child of: the call is enqueued as it is.
        """
        origin = self._origin(call)
        return call.enqueue() if origin is None else call.enqueue_child(origin)

    def _origin(self, call: Call[Any]) -> Any:
        attempt = self._attempt
        if attempt is None:
            return None
        if self._spawned is None:
            self._spawned = Spawned()
        return self._spawned.origin(attempt, call.identity)

    # ---- carried -----------------------------------------------------------------------------

    def bind(self, fn: F) -> F:
        """``fn``, such that :meth:`current` works inside it in whatever thread it runs."""
        return bind.bound(fn, self._attempt, current)

    def __getattr__(self, name: str) -> Any:
        if name in _LATER:
            raise NotBuilt(type(self).__name__, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._task} {self.job_id}>"


class AsyncContext(Context):
    """The run of an ``async def`` handler. The same names; ``spawn`` is awaited, ``track`` also takes ``async for``."""

    __slots__ = ()

    def track(self, items: Iterable[A] | AsyncIterable[A], note: str = "", total: int | None = None) -> Track[A]:
        """Go over ``items`` by ``for`` or ``async for`` and report progress by itself."""
        return Track(self, items, note, total)

    async def spawn(self, call: Call[R]) -> Job[R]:  # type: ignore[override]  # awaited in this colour
        """Enqueue a call now, as a child of this job; see :meth:`Context.spawn`."""
        origin = self._origin(call)
        return await (call.aenqueue() if origin is None else call.aenqueue_child(origin))


def _made(attempt: RunningAttempt) -> Context:
    spec: TaskSpec = attempt.spec
    if attempt.many:
        from mainspring.worker.run.bulk.context import AsyncBulkContext, BulkContext

        return (AsyncBulkContext if spec.kind == "async" else BulkContext)(attempt, attempt.claim.task)
    return (AsyncContext if spec.kind == "async" else Context)(attempt, attempt.claim.task)


def log_fields() -> dict[str, Any] | None:
    """What every log record made here should carry: whose job it is. None outside of one."""
    attempt = current.get(None)
    return None if attempt is None else attempt.fields


def context_of(attempt: RunningAttempt) -> Context:
    """The context of an attempt, made once."""
    if attempt.context is None:
        attempt.context = _made(attempt)
    found: Context = attempt.context
    return found
