"""Checks stored jobs against the code of this process: can the code read them? Also opens one job, to run it here.

Nothing here changes a stored job.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from mainspring.client import blocking
from mainspring.errors import JobNotFound, MainspringError, Undecodable, UnknownTask
from mainspring.flows.shape import BUILT_IN
from mainspring.jobs import actions
from mainspring.jobs.query import Query
from mainspring.states import LIVE, State
from mainspring.tasks.spec import find_bad_signatures
from mainspring.worker.run.executor import decode_record
from mainspring.worker.run.flows.inputs import read_inputs, supplied_names
from mainspring.worker.secret_arguments import remember_all

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.records import JobRow
    from mainspring.tasks.spec import TaskSpec
    from mainspring.tasks.task import BaseTask


class RefusedJob(msgspec.Struct, frozen=True):
    """A live job that this code cannot run, with the reason."""

    id: UUID
    task: str
    queue: str
    state: State
    why: str


class BadTask(msgspec.Struct, frozen=True):
    """A task whose annotations cannot be resolved, with the reason: none of its jobs can be enqueued or run."""

    task: str
    why: str


class CheckReport(msgspec.Struct, frozen=True):
    """The number of live jobs that were checked, the jobs that this code cannot run, bad tasks and bad schedules."""

    looked: int
    refused: tuple[RefusedJob, ...]
    bad_tasks: tuple[BadTask, ...] = ()
    bad_schedules: tuple[str, ...] = ()
    """A sentence for each schedule of the code that declares nothing."""


class StoredCall(NamedTuple):
    """A stored job, decoded by the code of this process: the task and its arguments."""

    task: BaseTask[Any, Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def check(app: Mainspring, *, limit: int | None = None) -> CheckReport:
    """Resolve the annotations of all tasks, and decode live jobs as a worker with this code would: newest first, at
    most ``limit`` jobs."""
    return blocking.run("check", partial(acheck, app, limit=limit))


async def acheck(app: Mainspring, *, limit: int | None = None) -> CheckReport:
    """Async version of ``check``."""
    looked = 0
    refused: list[RefusedJob] = []
    checker = _Checker(app)
    bad_tasks = tuple(BadTask(each.task, each.message) for each in find_bad_signatures(app.tasks.specs().values()))
    bad_schedules = tuple(app.tasks.unused_schedules())
    async for rows in actions.pages(await app.client.store(), Query.where(states=LIVE)):
        for row in rows:
            if limit is not None and looked >= limit:
                return CheckReport(looked, tuple(refused), bad_tasks, bad_schedules)
            looked += 1
            if why := checker.why_not(row):
                refused.append(RefusedJob(UUID(bytes=row.id), row.task, row.queue, row.state, why))
    return CheckReport(looked, tuple(refused), bad_tasks, bad_schedules)


def open_stored(app: Mainspring, id: UUID | str) -> StoredCall:
    """Return the task and arguments of a stored job; ``Undecodable`` or ``UnknownTask`` if this code cannot run it.

    The values of its secret arguments are hidden from now on: this process runs the job.
    """
    row, inputs = blocking.run("open_stored", partial(_read, app, id))
    task = app.tasks.find(row.task)
    if task is None:
        raise UnknownTask(row.task, app.tasks)
    remember_all(task.spec(), row.record, inputs)
    opened = decode_record(task.spec(), row.record, inputs)
    return StoredCall(task, opened.args, opened.kwargs)


async def _read(app: Mainspring, id: UUID | str) -> tuple[JobRow, dict[str, bytes] | None]:
    """The job, and its arguments that are results of other jobs."""
    store = await app.client.store()
    found = await store.find(Query.of(id), limit=1)
    if not found.jobs:
        raise JobNotFound(id)
    row = found.jobs[0]
    if row.task in BUILT_IN:
        why = "belongs to a flow, and has no code of yours"
        raise Undecodable(f"job of task {row.task!r}", why, hint="mainspring flows show ID shows the jobs of the flow.")
    names = supplied_names(row)
    if names and row.state is State.BLOCKED:
        why = f"its argument {names[0]!r} is the result of a job that has not ended"
        raise Undecodable(f"job of task {row.task!r}", why, hint="job.why() names the jobs that it waits for.")
    return row, await read_inputs(store, row.task, row.record) if names else None


class _Checker:
    """Decodes stored jobs with the code of an app."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app
        self._specs: dict[tuple[str, tuple[str, ...]], TaskSpec] = {}

    def why_not(self, row: JobRow) -> str:
        """Why this code cannot run the job; empty if it can. The results that the job waits for may be anything."""
        if row.task in BUILT_IN:
            return ""
        task = self._app.tasks.find(row.task)
        if task is None:
            return UnknownTask(row.task, self._app.tasks).message
        names = supplied_names(row)
        if names and task.spec().upgrade is not None:
            return ""  # only the upgrade function knows which results fit
        spec = self._spec(task.spec(), names) if names else task.spec()
        try:
            decode_record(spec, row.record, dict.fromkeys(names, b"null"))
        except MainspringError as error:
            return error.message
        return ""

    def _spec(self, spec: TaskSpec, names: tuple[str, ...]) -> TaskSpec:
        found = self._specs.get((spec.name, names))
        if found is None:
            found = self._specs[spec.name, names] = spec._replace(signature=spec.signature.taking_any(names))
        return found
