"""The options as typed dictionaries, for type checkers: ``**o: Unpack[TaskOptions]``.

``python -m tools.reference`` writes the dictionaries from the table; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypedDict
from uuid import UUID

from mainspring.breakers.declare import DeclaredBreaker
from mainspring.common.backoff import Backoff, BackoffFunction
from mainspring.common.duration import Duration
from mainspring.jobs.keys import Key
from mainspring.limits.declare import AnyLimit
from mainspring.options.checks import Part, ScheduleGroup
from mainspring.queues.fairness import FairBy, FairWeights
from mainspring.queues.queue import Queue

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from mainspring.common.sizes import Size
    from mainspring.jobs.call import Call
    from mainspring.pools.declare import ProcessPool

Priority = int | Literal["low", "normal", "high", "critical"]
By: TypeAlias = "str | Callable[[Any], Hashable] | None"
"""An attribute path of the item, such as ``tenant`` or ``customer.region``, or a function of the item."""
ErrorClasses = type[Exception] | Sequence[type[Exception]]
FollowUp: TypeAlias = "TakesJobId | Call[Any] | str"
"""A task that takes the id of the job that ended, a complete call, or the name of such a task."""


class TakesJobId(Protocol):
    """A task with one argument, the id of a job."""

    name: str

    def s(self, job: UUID, /) -> Call[Any]: ...


# ---- written by `python -m tools.reference` from the table -------------------------------------------


class JobOptions(TypedDict, total=False):
    """Options of one job: ``task.options(...)``."""

    queue: str | Queue
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
    key: str | Key | None
    tags: Sequence[str]
    meta: Mapping[str, Any]
    delay: Duration | None
    run_at: datetime | None
    connection: Any


class TaskOptions(TypedDict, total=False):
    """Options of a task: ``@app.task(...)``."""

    queue: str | Queue
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
    key: str | Key | None
    tags: Sequence[str]
    meta: Mapping[str, Any]
    name: str | None
    aliases: Sequence[str]
    executor: Literal["async", "thread", "process"] | None
    pool: str | ProcessPool | None
    soft_timeout: Duration | None
    backoff: Backoff | Duration | BackoffFunction
    retry_on: ErrorClasses
    never_retry_on: ErrorClasses
    retry_if: Callable[[BaseException], bool] | None
    crashes: int
    ack: Literal["late", "early"]
    fence: Literal["auto", "strict"]
    result: Literal["store", "ignore"]
    retention: Duration | None
    on_success: FollowUp | None
    on_dead: FollowUp | None
    on_cancel: FollowUp | None
    limit: AnyLimit | Sequence[AnyLimit] | None
    breaker: DeclaredBreaker | BreakerOptions | None
    sensitive: Sequence[str]
    needs: Collection[str]
    pin_version: bool


class WorkerOptions(TypedDict, total=False):
    """Options of a worker: ``app.run(...)``, ``app.worker(...)`` and the command line."""

    queues: Sequence[str] | str | None
    processes: int
    async_slots: int
    thread_slots: int
    process_slots: int
    concurrency: int | Mapping[str, int]
    lease: Duration
    drain: Duration
    burst: bool
    until_empty: bool
    poll: Duration
    sweep: Duration
    grace: Duration
    roles: Sequence[str] | str
    labels: Collection[str] | str


class QueueOptions(TypedDict, total=False):
    """Options of a queue: ``app.queue(...)``."""

    limit: AnyLimit | Sequence[AnyLimit] | None
    weight: float
    max_depth: int | None
    on_full: Literal["error", "wait", "drop_oldest"]
    order: Literal["fifo", "lifo"]
    fair_by: FairBy | None
    fair_weights: FairWeights | None


class PoolOptions(TypedDict, total=False):
    """Options of a pool of child processes: ``app.pool(...)``."""

    min: int
    max: int
    max_jobs_per_child: int | None
    max_memory_per_child: Size | None
    max_age: Duration | None


class BreakerOptions(TypedDict, total=False):
    """Options of a breaker: ``app.breaker(...)``, or ``breaker=`` of a task."""

    failures: int
    rate: float | None
    minimum: int
    over: Duration
    open_for: Duration
    probes: int
    trip_on: ErrorClasses
    fallback: Callable[..., Any] | None


class ScheduleOptions(TypedDict, total=False):
    """Options of a schedule: ``@app.schedule(...)``, ``app.schedules.put(...)``; they replace the task's options."""

    queue: str | Queue
    priority: Priority
    expires: Duration | None
    retries: int
    timeout: Duration | None
    tags: Sequence[str]
    meta: Mapping[str, Any]
    on_success: FollowUp | None
    on_dead: FollowUp | None
    on_cancel: FollowUp | None
    mode: Literal["scheduled", "triggered", "continuous"]
    tz: str | ZoneInfo | None
    start: datetime | None
    end: datetime | None
    jitter: Duration | None
    overlap: Literal["skip", "queue", "allow", "cancel_previous"]
    misfire: Literal["skip", "once", "all"]
    depends_on: Part | Sequence[Part]
    blocks: Part | Sequence[Part]
    max_failures: int
    reenable_after: Duration | None
    group: str | ScheduleGroup | None
    min_pause: Duration
    history: int
    immediate: bool
