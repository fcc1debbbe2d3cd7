"""The configuration of a worker process. The app builds it; the worker does not import the app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.jobs.records import Retention
from mainspring.limits.records import Limit
from mainspring.pools.settings import PoolSettings
from mainspring.queues.records import QueueSettings
from mainspring.stores.connect import StoreAddress
from mainspring.tasks.hooks import Hooks
from mainspring.tasks.middleware import Middleware
from mainspring.tasks.routing import Routes
from mainspring.tasks.spec import TaskSpec

if TYPE_CHECKING:
    from mainspring.schedules.sync import CodeSchedules


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved worker options. Durations in microseconds."""

    queues: tuple[str, ...] = ("default",)
    processes: int = 1
    async_slots: int = 64
    thread_slots: int = 8
    process_slots: int = 1
    """The largest number of children of the default pool, unless the app declares this pool."""
    concurrency: dict[str, int] = {}
    """The largest number of jobs of a queue that this worker runs at the same time, by queue."""
    max_jobs: int | None = None
    """The largest number of jobs that this worker runs at the same time, in all its slots."""
    lease: int = 15_000_000
    sweep: int = 3_000_000
    poll: int = 2_000_000
    drain: int = 25_000_000
    grace: int = 5_000_000
    until_empty: bool = False
    """End when no job is left, also none that is scheduled or retrying."""
    burst: bool = False
    """End when no job is ready or running."""
    roles: frozenset[str] = frozenset({"worker", "scheduler"})
    """``worker`` runs jobs; ``scheduler`` runs the services that serve the whole fleet."""
    labels: tuple[str, ...] = ()
    """Capabilities of this worker, such as ``gpu``, that tasks may need."""

    @property
    def ends_when_empty(self) -> bool:
        return self.until_empty or self.burst

    @property
    def beat(self) -> int:
        """Microseconds between two heartbeats."""
        return self.lease // 3


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a process logs."""

    level: str = "info"
    format: str = "auto"
    """``text``, ``json``, or ``auto``: JSON in Kubernetes, else text."""
    file: str | None = None
    """A path, ``stdout`` or ``stderr``. None means ``stderr``."""
    redact: tuple[str, ...] = ()
    """Names of further fields whose values are hidden."""
    jobs: str = "debug"
    """The level of the lines that name each job that ended; see ``job_lines``."""


class ReplacedCap(NamedTuple):
    """A cap of a queue in the settings that ``concurrency`` of a stronger place replaces."""

    queue: str
    cap: int
    where: str
    """The place of the cap."""
    replaced_by: str
    """The stronger place; empty for an option of this worker, such as ``-c 8``."""


class WorkerConfig(NamedTuple):
    """Everything that a worker process needs to know."""

    store: StoreAddress
    tasks: Mapping[str, TaskSpec]
    """By every name that a job may carry: task names and aliases."""
    settings: WorkerSettings
    lifespans: tuple[Callable[..., Any], ...] = ()
    """(Async) generator functions. They start in this order before the first job, and end in reverse order."""
    version: str = ""
    hooks: Hooks = Hooks()
    """The event hooks that this process calls."""
    middleware: tuple[Middleware, ...] = ()
    """Middleware around each run, outermost first."""
    retention: Retention = Retention()
    logs: LogSettings = LogSettings()
    learn: Callable[[str], TaskSpec | None] | None = None
    """Finds a task that was declared after the worker was built."""
    weights: Mapping[str, float] = MappingProxyType({})
    """The weights of queues. A queue that is not in this mapping has weight 1."""
    queues: Mapping[str, QueueSettings] = MappingProxyType({})
    """The settings of declared queues, which the worker stores when it starts."""
    limits: tuple[Limit, ...] = ()
    """The limits of these queues and of schedule groups."""
    chosen_queues: bool = False
    """The queues were given, instead of all queues that the program names."""
    known_queues: tuple[str, ...] = ()
    """The queues that the program names: those of its tasks, its routes and ``app.queue``."""
    schedules: CodeSchedules | None = None
    """The schedules that the code declares."""
    program: str = ""
    """The name of the program; empty if it has none."""
    routes: Routes = Routes()
    """The queues of tasks, by name and pattern. The specs of the tasks have their queues already."""
    replaced_caps: tuple[ReplacedCap, ...] = ()
    """``concurrency`` by queue in the settings of the app that has no effect in this worker."""
    pools: Mapping[str, PoolSettings] = MappingProxyType({})
    """The pools of process slots that the app declares, by name."""
    pools_in_threads: tuple[str, ...] = ()
    """Pools whose jobs run in threads of this process, in tests."""
    find_target: Callable[[], str] | None = None
    """Finds the name by which a child process imports the app; raises if it cannot be imported."""
    app: Any = None
    """The app that made this configuration, for flows without a task; the worker itself does not use it."""
