"""app.workers: the live workers of the fleet. Every method ``x`` has an async version ``ax``."""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.client import blocking
from mainspring.common.clock import to_datetime
from mainspring.common.handles import Reserved
from mainspring.jobs import actions
from mainspring.jobs.query import Query
from mainspring.states import State
from mainspring.worker.records import WorkerRow

if TYPE_CHECKING:
    from mainspring.app import Mainspring


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, at the time of the call."""

    id: str
    host: str
    pid: int
    version: str
    """The version of the code: ``Mainspring(version=)``."""
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    """The labels that it has; tasks may require them with ``needs=``."""
    running: int
    """The number of jobs that it runs."""
    jobs: tuple[UUID, ...]
    """The jobs that it runs now."""
    started: datetime
    seen: datetime
    """Its last heartbeat."""
    age: timedelta
    """Time since its last heartbeat, by the clock of the store."""
    lease: timedelta
    """After this time without a heartbeat, other workers take over its jobs."""
    claiming: bool
    """Whether its turns reach the store. A worker can send heartbeats and still fail to claim jobs."""
    lost: bool
    """It sent no heartbeat for longer than its lease. Other workers have taken over its jobs, or will do so."""


WorkerInfos = list[WorkerInfo]


class Workers(Reserved):
    """The workers of this store."""

    _PATH = "app.workers"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def alist(self, *, lost: bool = False) -> WorkerInfos:
        """Return the live workers, oldest first. ``lost`` also returns lost workers that the store still remembers."""
        store = await self._app.client.store()
        running: dict[str | None, list[UUID]] = defaultdict(list)
        async for rows in actions.pages(store, Query.where(states=[State.RUNNING])):
            for row in rows:
                running[row.worker].append(UUID(bytes=row.id))
        workers = sorted(await store.workers(), key=lambda row: row.started)
        now = await store.now()
        infos = [_build_info(row, tuple(running[row.id]), now) for row in workers]
        return [info for info in infos if lost or not info.lost]

    list = blocking.twin(alist)


def _build_info(row: WorkerRow, jobs: tuple[UUID, ...], now: int) -> WorkerInfo:
    said: dict[str, Any] = msgspec.json.decode(row.info)
    return WorkerInfo(
        id=row.id,
        host=str(said.get("host", "")),
        pid=int(said.get("pid", 0)),
        version=str(said.get("version", "")),
        queues=row.queues,
        tasks=row.tasks,
        labels=tuple(said.get("labels", ())),
        running=row.running,
        jobs=jobs,
        started=to_datetime(row.started),
        seen=to_datetime(row.seen),
        age=timedelta(microseconds=max(0, now - row.seen)),
        lease=timedelta(microseconds=row.lease),
        claiming=bool(said.get("claiming", True)),
        lost=row.is_silent(now),
    )
