"""Stored jobs under the code of here: can it read them, and what do they do when it runs one of them.

Nothing here changes a job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from mainspring import acting, sync
from mainspring.errors import JobNotFound, MainspringError, UnknownTask
from mainspring.query import Query
from mainspring.states import LIVE, State
from mainspring.worker.opening import open_record

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.records import JobRow
    from mainspring.task import BaseTask


class Refused(msgspec.Struct, frozen=True):
    """A live job that this code cannot run, and why."""

    id: UUID
    task: str
    queue: str
    state: State
    why: str


class Checked(msgspec.Struct, frozen=True):
    """How many live jobs were looked at, and those that were refused."""

    looked: int
    refused: tuple[Refused, ...]


class Stored(NamedTuple):
    """A stored job opened by the code of here, ready to be called."""

    task: BaseTask[Any, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def check(app: Mainspring, *, limit: int | None = None) -> Checked:
    """Open every live job as a worker with this code would, the newest first, at most ``limit`` of them."""
    return sync.run("check", acheck(app, limit=limit))


async def acheck(app: Mainspring, *, limit: int | None = None) -> Checked:
    looked = 0
    refused: list[Refused] = []
    async for rows in acting.pages(await app.client.store(), Query.where(states=LIVE)):
        for row in rows:
            if limit is not None and looked >= limit:
                return Checked(looked, tuple(refused))
            looked += 1
            if why := _why_not(app, row):
                refused.append(Refused(UUID(bytes=row.id), row.task, row.queue, row.state, why))
    return Checked(looked, tuple(refused))


def open_stored(app: Mainspring, id: UUID | str) -> Stored:
    """The call that a stored job stands for; ``Undecodable`` or ``UnknownTask`` if this code cannot run it."""
    return _open(app, sync.run("open_stored", _row(app, id)))


async def _row(app: Mainspring, id: UUID | str) -> JobRow:
    found = await (await app.client.store()).find(Query.of(id), limit=1)
    if not found.jobs:
        raise JobNotFound(id)
    return found.jobs[0]


def _open(app: Mainspring, row: JobRow) -> Stored:
    task = app.tasks.find(row.task)
    if task is None:
        raise UnknownTask(row.task, app.tasks)
    opened = open_record(task.spec(), row.record)
    return Stored(task, opened.args, opened.kwargs)


def _why_not(app: Mainspring, row: JobRow) -> str:
    try:
        _open(app, row)
    except MainspringError as error:
        return error.message
    return ""
