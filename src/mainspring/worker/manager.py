"""app.workers: who is at work. Every verb has its a-twin."""

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
    """A worker when the store was asked."""

    id: str
    host: str
    pid: int
    version: str
    """Version of the app's code, as given to ``Mainspring(version=)``."""
    queues: tuple[str, ...]
    tasks: tuple[str, ...]
    labels: tuple[str, ...]
    """What it has that tasks may need."""
    running: int
    jobs: tuple[UUID, ...]
    """The jobs that it runs."""
    started: datetime
    seen: datetime
    """Its last beat."""
    age: timedelta
    """Time since its last beat, by the store's clock."""
    lease: timedelta
    """Silent for longer than this, its jobs are given to others."""
    claiming: bool
    """Its turns with the store come through; its beats alone say nothing of that."""
    lost: bool
    """It was silent for longer than its lease; its jobs were taken, or are there for whoever comes first."""


WorkerInfos = list[WorkerInfo]


class Workers(Reserved):
    """The fleet of this store."""

    LATER = frozenset({"drain", "restart", "stop"})

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def list(self, *, lost: bool = False) -> WorkerInfos:
        """Who is at work, the longest first; with ``lost`` also those that went silent, while they are remembered."""
        return blocking.run("app.workers.list", self.alist(lost=lost))

    async def alist(self, *, lost: bool = False) -> WorkerInfos:
        store = await self._app.client.store()
        running: dict[str | None, list[UUID]] = defaultdict(list)
        async for rows in actions.pages(store, Query.where(states=[State.RUNNING])):
            for row in rows:
                running[row.worker].append(UUID(bytes=row.id))
        workers = sorted(await store.workers(), key=lambda row: row.started)
        now = await actions.store_now(store)
        infos = [_info(row, tuple(running[row.id]), now) for row in workers]
        return [info for info in infos if lost or not info.lost]


def _info(row: WorkerRow, jobs: tuple[UUID, ...], now: int) -> WorkerInfo:
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
        lost=row.lost or now - row.seen > row.lease,
    )
