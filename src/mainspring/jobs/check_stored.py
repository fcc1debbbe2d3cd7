"""Checks stored jobs against the code of this process: can the code read them? Also opens one job, to run it here.

Nothing here changes a stored job.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from mainspring.client import blocking
from mainspring.errors import JobNotFound, MainspringError, UnknownTask
from mainspring.jobs import actions
from mainspring.jobs.query import Query
from mainspring.states import LIVE, State
from mainspring.worker.run.executor import decode_record
from mainspring.worker.secret_arguments import remember_all

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.records import JobRow
    from mainspring.tasks.task import BaseTask


class RefusedJob(msgspec.Struct, frozen=True):
    """A live job that this code cannot run, with the reason."""

    id: UUID
    task: str
    queue: str
    state: State
    why: str


class CheckReport(msgspec.Struct, frozen=True):
    """The number of live jobs that were checked, and the jobs that this code cannot run."""

    looked: int
    refused: tuple[RefusedJob, ...]


class StoredCall(NamedTuple):
    """A stored job, decoded by the code of this process: the task and its arguments."""

    task: BaseTask[Any, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def check(app: Mainspring, *, limit: int | None = None) -> CheckReport:
    """Decode live jobs as a worker with this code would, newest first; at most ``limit`` jobs."""
    return blocking.run("check", partial(acheck, app, limit=limit))


async def acheck(app: Mainspring, *, limit: int | None = None) -> CheckReport:
    """Async version of ``check``."""
    looked = 0
    refused: list[RefusedJob] = []
    async for rows in actions.pages(await app.client.store(), Query.where(states=LIVE)):
        for row in rows:
            if limit is not None and looked >= limit:
                return CheckReport(looked, tuple(refused))
            looked += 1
            if why := _why_not(app, row):
                refused.append(RefusedJob(UUID(bytes=row.id), row.task, row.queue, row.state, why))
    return CheckReport(looked, tuple(refused))


def open_stored(app: Mainspring, id: UUID | str) -> StoredCall:
    """Return the task and arguments of a stored job; ``Undecodable`` or ``UnknownTask`` if this code cannot run it.

    The values of its secret arguments are hidden from now on: this process runs the job.
    """
    row = blocking.run("open_stored", partial(_row, app, id))
    if (task := app.tasks.find(row.task)) is not None:
        remember_all(task.spec(), row.record)
    return _open(app, row)


async def _row(app: Mainspring, id: UUID | str) -> JobRow:
    found = await (await app.client.store()).find(Query.of(id), limit=1)
    if not found.jobs:
        raise JobNotFound(id)
    return found.jobs[0]


def _open(app: Mainspring, row: JobRow) -> StoredCall:
    task = app.tasks.find(row.task)
    if task is None:
        raise UnknownTask(row.task, app.tasks)
    opened = decode_record(task.spec(), row.record)
    return StoredCall(task, opened.args, opened.kwargs)


def _why_not(app: Mainspring, row: JobRow) -> str:
    try:
        _open(app, row)
    except MainspringError as error:
        return error.message
    return ""
