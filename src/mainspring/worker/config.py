"""What a worker is made of. The app hands it over; the worker room knows no app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from mainspring.jobs.records import Retention
from mainspring.limits.records import Limit
from mainspring.queues.records import QueueSettings
from mainspring.schedules.sync import CodeSchedules
from mainspring.stores.connect import StoreAddress
from mainspring.tasks.hooks import Hooks
from mainspring.tasks.middleware import Middleware
from mainspring.tasks.spec import TaskSpec


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Resolved worker options. Durations in microseconds."""

    queues: tuple[str, ...] = ("default",)
    processes: int = 1
    async_slots: int = 64
    thread_slots: int = 8
    concurrency: dict[str, int] = {}
    """Most jobs of a queue that this worker runs at once."""
    lease: int = 15_000_000
    sweep: int = 3_000_000
    poll: int = 1_000_000
    drain: int = 25_000_000
    grace: int = 5_000_000
    until_empty: bool = False
    roles: frozenset[str] = frozenset({"worker", "scheduler"})
    """``worker`` runs jobs; ``scheduler`` runs the services that serve the whole fleet."""
    labels: tuple[str, ...] = ()
    """What it has that tasks may need."""

    @property
    def beat(self) -> int:
        return self.lease // 3


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a process logs."""

    level: str = "info"
    format: str = "auto"
    """``pretty``, ``json``, or ``auto``: pretty on a terminal, else JSON."""
    file: str | None = None
    """A path, ``stdout`` or ``stderr``; None for the last."""
    redact: tuple[str, ...] = ()
    """More names of fields whose values are hidden."""


class WorkerConfig(NamedTuple):
    """Everything a worker process needs to know."""

    store: StoreAddress
    tasks: Mapping[str, TaskSpec]
    """By every name a job may carry: task names and aliases."""
    settings: WorkerSettings
    lifespans: tuple[Callable[..., Any], ...] = ()
    """(Async) generator functions run once around the jobs of this process, in this order; ended in reverse."""
    version: str = ""
    hooks: Hooks = Hooks()
    """What is told of each event, in this process."""
    middleware: tuple[Middleware, ...] = ()
    """What wraps each run, outermost first."""
    retention: Retention = Retention()
    logs: LogSettings = LogSettings()
    learn: Callable[[str], TaskSpec | None] | None = None
    """Looks for a task that was declared after the worker was made."""
    weights: Mapping[str, float] = MappingProxyType({})
    """The weights of queues; 1 for those that are not here."""
    queues: Mapping[str, QueueSettings] = MappingProxyType({})
    """What the store should keep of the queues that were declared."""
    limits: tuple[Limit, ...] = ()
    """The limits of those queues, and of groups of schedules."""
    schedules: CodeSchedules | None = None
    """The schedules that the code declares."""
