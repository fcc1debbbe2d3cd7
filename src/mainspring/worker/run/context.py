"""What a handler can read and do about its own run: ``Context`` for ``def``, ``AsyncContext`` for ``async def``.

Only ``spawn`` waits: progress, log lines and stream items are buffered, and sent by ``progress.py``.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Iterator
from contextvars import copy_context
from datetime import UTC, datetime
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar
from uuid import UUID

from mainspring.codec import loads
from mainspring.common import current as current_attempt
from mainspring.common.callables import name_of
from mainspring.common.clock import boottime, to_datetime
from mainspring.common.handles import Reserved
from mainspring.common.ids import derived_id, new_id
from mainspring.errors import InvalidOption, NotOpen, SoftTimeout
from mainspring.jobs.records import Edge
from mainspring.worker.run import context_reports
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt
from mainspring.worker.run.classify import ending_error
from mainspring.worker.run.context_reports import Track

if TYPE_CHECKING:
    from contextvars import ContextVar

    from mainspring.flows.flow import Flow
    from mainspring.jobs.job import Job
    from mainspring.jobs.records import JobBody
    from mainspring.limits.declare import LimitSet
    from mainspring.tasks.spec import TaskSpec

A = TypeVar("A")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

current: ContextVar[RunningAttempt] = current_attempt.current
"""The attempt whose body runs here. It is set before the arguments of the attempt are decoded."""


class SpawnedChild(NamedTuple):
    """The identity of a child job and its parent: the fields of ``jobs.new_job.JobOrigin``, a higher layer."""

    id: bytes
    parent: UUID
    trace: str


class FlowPart(NamedTuple):
    """Where a new part of a flow goes: the fields of ``flows.start.FlowMembership``, a higher layer."""

    id: bytes
    flow: bytes
    before: tuple[bytes, ...]
    after: tuple[Edge, ...]
    accepted: bool = True
    undoable: bool = False


class FlowHandle:
    """The flow of the running job: ``ctx.flow``."""

    __slots__ = ("_body", "_context", "_flow")

    def __init__(self, context: Context, flow: str, body: JobBody) -> None:
        self._context = context
        self._flow = flow
        self._body = body

    @property
    def id(self) -> UUID:
        """The id of the flow."""
        return UUID(hex=self._flow)

    def add(self, call: Flow[R], *, after: Iterable[Job[Any]] = ()) -> Job[R]:
        """Add a part to the flow, beside this job: what waits for this job waits for the part as well.

        ``after``: jobs of the flow that it waits for. A retried attempt that adds the same part again gets the job that
        is there.
        """
        job: Job[R] = call.enqueue_member(self._place(call, after))
        return job

    def _place(self, call: Flow[Any], after: Iterable[Job[Any]]) -> FlowPart:
        child = self._context.next_child(call)
        edges = tuple(Edge(each.id.bytes) for each in after)
        before = tuple(map(bytes.fromhex, (*self._body.before, *self._body.next) or (self._flow,)))
        return FlowPart(child.id, bytes.fromhex(self._flow), before, edges, undoable=self._body.undoable)


class AsyncFlowHandle(FlowHandle):
    """The flow of the running job, in an ``async def`` handler."""

    __slots__ = ()

    def add(  # type: ignore[override]  # awaited
        self, call: Flow[R], *, after: Iterable[Job[Any]] = ()
    ) -> Coroutine[Any, Any, Job[R]]:
        """Add a part to the flow, beside this job; see :meth:`FlowHandle.add`."""
        return self._context.expect_await("ctx.flow.add", self._add, call, after)

    async def _add(self, call: Flow[R], after: Iterable[Job[Any]]) -> Job[R]:
        job: Job[R] = await call.aenqueue_member(self._place(call, after))
        return job


class Context(Reserved):
    """The run of a ``def`` handler; see :class:`AsyncContext` for ``async def``.

    Attributes do no I/O. ``Context.current()`` returns the context of the running job in any function that the handler
    calls; :meth:`bind` makes it available in threads that the handler starts.
    """

    __slots__ = ("_attempt", "_job_id", "_logger", "_meta", "_spawn_counts", "_task", "_unawaited")

    _INTERNAL = frozenset({"expect_await", "local", "next_child"})

    def __init__(self, attempt: RunningAttempt | None, task: str) -> None:
        self._attempt = attempt
        self._task = task
        self._job_id: UUID | None = None
        self._logger: context_reports.JobLogger | None = None
        self._meta: dict[str, Any] | None = None
        self._spawn_counts: dict[bytes, itertools.count[int]] | None = None
        self._unawaited: dict[object, str] | None = None
        """The calls of this run that made a coroutine which has not started."""

    @classmethod
    def local(cls, task: str) -> Self:
        """The context of a plain call of the function: reports are not stored, and nothing ends the call."""
        return cls(None, task)

    @classmethod
    def current(cls) -> Self:
        """The context of the job that runs here. Raises ``NotOpen`` outside of a job."""
        attempt = current.get(None)
        if attempt is None:
            raise NotOpen(
                f"{cls.__name__}.current(): no job runs here",
                hint="In a thread that you start yourself use ctx.bind(fn); a plain call has no current context.",
            )
        found = context_of(attempt)
        if not isinstance(found, cls):
            raise NotOpen(
                f"{cls.__name__}.current(): the running task {attempt.claim.task!r} has a {type(found).__name__}",
                hint=f"Use {type(found).__name__}.current() there.",
            )
        return found

    # ---- the job -----------------------------------------------------------------------------

    @property
    def job_id(self) -> UUID:
        """The id of the job."""
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
        """The fencing token: it grows with every run of this job. Pass it to systems that compare fencing tokens."""
        return 0 if self._attempt is None else self._attempt.claim.token

    @property
    def queue(self) -> str:
        """The queue that the job waited in."""
        return "" if self._attempt is None else self._attempt.claim.queue

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of the job."""
        body = None if self._attempt is None else self._attempt.body
        return () if body is None else body.tags

    @property
    def meta(self) -> dict[str, Any]:
        """The value of ``meta=``; a copy that belongs to this run."""
        if self._meta is None:
            body = None if self._attempt is None else self._attempt.body
            self._meta = loads(body.meta, dict[str, Any]) if body is not None and body.meta else {}
        return self._meta

    @property
    def schedule(self) -> str | None:
        """The name of the schedule that started this job; None for other jobs."""
        body = None if self._attempt is None else self._attempt.body
        return None if body is None else body.schedule

    @property
    def occurrence(self) -> datetime | None:
        """The moment that this run of a schedule is for; None for other jobs.

        It is the moment when the run was due by the rule, however late the run starts; for a triggered run, the moment
        of the trigger; for a backfill, the moment that the backfill repeats.
        """
        body = None if self._attempt is None else self._attempt.body
        return None if body is None or body.occurrence is None else to_datetime(body.occurrence)

    @property
    def trace_id(self) -> str:
        """32 hex digits, the same for a job and all its descendants: a valid W3C trace id."""
        return self.job_id.hex if self._attempt is None else self._attempt.trace

    @property
    def deadline(self) -> datetime | None:
        """When the hard time limit passes, by this machine's clock; None without a limit."""
        if self._attempt is None or self._attempt.deadline == NEVER:
            return None
        left = self._attempt.deadline - boottime()
        return to_datetime(int(datetime.now(UTC).timestamp() * 1e6 + left * 1e6))

    @property
    def state(self) -> Any:
        """The value that the app's lifespan yields; with several lifespans, a namespace by function name."""
        return None if self._attempt is None else self._attempt.environment.state

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records have the fields of :func:`log_fields`."""
        if self._logger is None:
            fields = {"job_id": str(self.job_id), "task": self._task, "attempt": 1, "trace_id": self.trace_id}
            self._logger = context_reports.JobLogger(fields if self._attempt is None else self._attempt.log_fields)
        return self._logger

    @property
    def jobs(self) -> tuple[Self, ...]:
        """The contexts of the jobs in this call: for a bulk task one per item, in order; otherwise only this one."""
        return (self,)

    # ---- the end of the run ------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Whether this job was cancelled."""
        return self._attempt is not None and self._attempt.ending is Ending.CANCEL

    def check(self) -> None:
        """Raise ``JobCancelled`` or ``SoftTimeout`` if this run should end. For loops in ``def`` handlers."""
        attempt = self._attempt
        if attempt is None:
            return
        if attempt.ending:
            raise ending_error(attempt)
        if attempt.soft_at <= boottime():
            attempt.soft_at, attempt.soft_raised = NEVER, True
            raise SoftTimeout(attempt.spec.soft_timeout / 1e6)

    def cost(self, units: int, limiter: LimitSet | None = None) -> None:
        """Set how many units this attempt really uses of the job's rate limits, or only of those of ``limiter``.

        The last call counts. It takes effect when the attempt ends: if the cost of the job was too low, the difference
        is then taken from the rate; if it was too high, the difference is given back.
        """
        context_reports.report_cost(self._attempt, self._task, units, limiter)

    # ---- reports -----------------------------------------------------------------------------

    def progress(self, done: float, total: float | None = None, note: str = "", **meta: Any) -> None:
        """Report how far the work is. Every process sees it within about a second. The last call counts.

        A ``note`` of more than 500 characters is cut, with a mark at its end. ``meta`` is JSON of up to 16,000 bytes.
        """
        context_reports.report_progress(self._attempt, self._task, done, total, note, meta)

    def track(self, items: Iterable[A], note: str = "", total: int | None = None) -> Iterator[A]:
        """Iterate over ``items``, report the progress, and call :meth:`check` at each item."""
        return Track(self, items, note, total)

    def log(self, text: str, level: str = "info", **fields: Any) -> None:
        """Store a log line with the job, which keeps its newest 1,000 lines, and send it to :attr:`logger`.

        ``level`` is debug, info, warning, error or critical. A line of more than 4,000 characters is cut, with a mark.
        """
        context_reports.report_line(self._attempt, self.logger, text, level, fields)

    def send(self, item: Any) -> None:
        """Add an item to the job's stream: ``for item in job.stream()`` receives it, in any process, within a second.

        A retried attempt starts again at the first place of the stream, and a reader receives each place once. A stream
        holds 10,000 items and 8 MB; beyond that this raises ``StreamFull``.
        """
        context_reports.report_item(self._attempt, self._task, item)

    # ---- children ----------------------------------------------------------------------------

    def spawn(self, call: Flow[R]) -> Job[R]:
        """Enqueue a call or a flow now, as a child of this job: ``Query.where(parent=job.id)`` finds it.

        A retried attempt that spawns the same call again gets the existing child. A call with a key that got another
        job is not such a child: it makes one when the key is free. In a plain call of the function there is no parent
        job: the call is enqueued without a parent.
        """
        child = self._next_child(call)
        return call.enqueue() if child is None else call.enqueue_child(child)

    @property
    def flow(self) -> FlowHandle:
        """The flow of this job. Raises ``NotOpen`` if it belongs to none."""
        return FlowHandle(self, *self._flow_and_body())

    def _flow_and_body(self) -> tuple[str, JobBody]:
        body = None if self._attempt is None else self._attempt.body
        if body is None or body.flow is None:
            raise NotOpen(
                f"ctx.flow: the job of task {self._task!r} belongs to no flow",
                hint="Enqueue it as a part of a flow or batch; ctx.spawn(flow) enqueues a flow as a child of any job.",
            )
        return body.flow, body

    def next_child(self, call: Any) -> Any:
        """The identity of the next child of this job."""
        return self._next_child(call)

    def expect_await(self, what: str, fn: Callable[..., Coroutine[Any, Any, R]], *args: Any) -> Coroutine[Any, Any, R]:
        """A coroutine of ``fn``. :func:`warn_of_unawaited` reports it if it never started."""
        mark = object()
        unawaited = self._unawaited = self._unawaited or {}
        unawaited[mark] = what

        async def call() -> R:
            unawaited.pop(mark, None)
            return await fn(*args)

        call.__qualname__ = what
        return call()

    def _next_child(self, call: Flow[Any]) -> Any:
        """The identity of the next child. The id depends on the call, so a retried attempt computes the same id.

        Equal calls of one attempt are counted: the second one is another child.
        """
        _refuse_no_call(call)
        attempt = self._attempt
        if attempt is None:
            return None
        if self._spawn_counts is None:
            self._spawn_counts = {}
        claim, identity = attempt.claim, getattr(call, "identity", b"flow")
        number = next(self._spawn_counts.setdefault(identity, itertools.count(1)))
        child = derived_id(claim.id, b"spawn", b"%d" % claim.epoch, b"%d" % number, identity)
        return SpawnedChild(child, UUID(bytes=claim.id), attempt.trace)

    # ---- other threads -----------------------------------------------------------------------

    def bind(self, fn: F) -> F:
        """A wrapper of ``fn`` in which :meth:`current` works, whatever thread it runs in."""
        attempt, here = self._attempt, copy_context()

        if iscoroutinefunction(fn):

            @wraps(fn)
            async def bound_async(*args: Any, **kwargs: Any) -> Any:
                if attempt is not None:
                    current.set(attempt)
                return await fn(*args, **kwargs)

            return bound_async  # type: ignore[return-value]  # the wrapper has fn's signature

        @wraps(fn)
        def bound_plain(*args: Any, **kwargs: Any) -> Any:
            return here.copy().run(fn, *args, **kwargs)

        return bound_plain  # type: ignore[return-value]  # the wrapper has fn's signature

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._task} {self.job_id}>"


class AsyncContext(Context):
    """The run of an ``async def`` handler: like :class:`Context`, but ``spawn`` is awaited, and ``track`` also works in
    ``async for``."""

    __slots__ = ()

    def track(self, items: Iterable[A] | AsyncIterable[A], note: str = "", total: int | None = None) -> Track[A]:
        """Iterate over ``items`` with ``for`` or ``async for``, and report the progress; see :meth:`Context.track`."""
        return Track(self, items, note, total)

    @property
    def flow(self) -> AsyncFlowHandle:
        """The flow of this job. Raises ``NotOpen`` if it belongs to none."""
        return AsyncFlowHandle(self, *self._flow_and_body())

    def spawn(self, call: Flow[R]) -> Coroutine[Any, Any, Job[R]]:  # type: ignore[override]  # awaited
        """Enqueue a call or a flow now, as a child of this job; see :meth:`Context.spawn`."""
        return self.expect_await("ctx.spawn", self._spawn, call)

    async def _spawn(self, call: Flow[R]) -> Job[R]:
        child = self._next_child(call)
        return await (call.aenqueue() if child is None else call.aenqueue_child(child))


def _refuse_no_call(call: Any) -> None:
    """Refuse a task, a function or the name of a task in the place of a call."""
    if callable(getattr(call, "enqueue_member", None)):
        return
    name = name_of(call.fn if hasattr(call, "fn") else call) if callable(call) else "task"
    hint = f"Write ctx.spawn({name}.s(...)), with the arguments of the child; by name, ctx.spawn(app.call(name, ...))."
    raise InvalidOption("call", call, "is not a call", subject="ctx.spawn", hint=hint)


def warn_of_unawaited(attempt: RunningAttempt) -> None:
    """Log the calls of a run that has ended whose ``await`` is missing: they did nothing."""
    context: Context | None = attempt.context
    if context is None or not context._unawaited:  # noqa: SLF001 - the same module
        return
    for what in context._unawaited.values():  # noqa: SLF001
        logging.getLogger("mainspring.worker").error(
            "job %s of task %r called %s(...) without await: it enqueued nothing. Write await %s(...)",
            context.job_id, attempt.claim.task, what, what,
        )  # fmt: skip


def _make_context(attempt: RunningAttempt) -> Context:
    spec: TaskSpec = attempt.spec
    if attempt.is_bulk:
        from mainspring.worker.run.bulk.context import AsyncBulkContext, BulkContext

        return (AsyncBulkContext if spec.kind == "async" else BulkContext)(attempt, attempt.claim.task)
    return (AsyncContext if spec.kind == "async" else Context)(attempt, attempt.claim.task)


def log_fields() -> dict[str, Any] | None:
    """The fields that log records get in the running job; None outside of a job."""
    attempt = current.get(None)
    return None if attempt is None else attempt.log_fields


def context_of(attempt: RunningAttempt) -> Context:
    """The context of an attempt. It is created once."""
    if attempt.context is None:
        attempt.context = _make_context(attempt)
    found: Context = attempt.context
    return found
