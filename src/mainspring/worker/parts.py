"""What a worker is made of. The app hands it over; the worker room knows no app."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from mainspring.spec import TaskSpec


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

    @property
    def beat(self) -> int:
        return self.lease // 3


class StoreAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Enough to open the same store again, in another process or on another loop."""

    url: str
    namespace: str = "default"
    durability: str = "full"


class Parts(NamedTuple):
    """Everything a worker process needs to know."""

    store: StoreAddress
    tasks: Mapping[str, TaskSpec]
    """By every name a job may carry: task names and aliases."""
    settings: WorkerSettings
    lifespans: tuple[Callable[..., Any], ...] = ()
    """(Async) generator functions run once around the jobs of this process, in this order; ended in reverse."""
    version: str = ""
