"""Whether a task or a queue that a call names exists: an unknown name is most likely misspelt, and finds no job.

A name is known if the code of this process, a job, a live worker or another document of the store has it. Tags, errors
and ids are not checked: a tag such as ``customer:42`` is right before its first job.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mainspring.errors import NotFound, UnknownTask, did_you_mean
from mainspring.jobs.query import Query
from mainspring.states import LIVE, State
from mainspring.stores.shared.programs import PROGRAMS, tasks_of_programs

if TYPE_CHECKING:
    from mainspring.app import Mainspring

log = logging.getLogger("mainspring.jobs")

_MAX_SEEN = 1_000
"""Queries that an app remembers: it looks at no more names after that."""
_QUEUES = "app.queues.list(), or mainspring queues ls, shows every queue."
_TASKS = "The name is neither that of a task of this app nor of a stored job or a live worker."


async def warn_of_names(app: Mainspring, query: Query) -> None:
    """Log a warning for a queue, a task or an error type of a query that found no job, if the name is unknown; once
    for each query of these names.

    An unknown error type is named only if the dead jobs have one with nearly this name: the right name of an error that
    has not happened finds nothing too.
    """
    names, seen = (query.queues, query.tasks, query.errors), app.client.named_in_vain
    if not any(names) or names in seen or len(seen) >= _MAX_SEEN:
        return
    seen.add(names)
    try:
        await check_names(app, query)
    except NotFound as error:
        log.warning("no job was found: %s", error)
    if query.errors:
        store = await app.client.store()
        known = {row.value for row in await store.tally(Query(states=(State.DEAD,)), "error")}
        for error_type in {*query.errors} - known:
            if not hasattr(builtins, error_type) and (near := did_you_mean(error_type, known)):
                log.warning("no job was found: no dead job has the error %r%s", error_type, near)


async def check_names(app: Mainspring, query: Query) -> None:
    """Raise ``NotFound`` for a queue of the query that nothing has, ``UnknownTask`` for such a task."""
    await check_queues(app, query.queues)
    await check_tasks(app, query.tasks)


async def check_queues(app: Mainspring, names: Iterable[str], *, hint: str = _QUEUES) -> None:
    """Raise ``NotFound`` for a queue that neither the code nor the store knows."""
    store, unknown = await app.client.store(), [*names]
    known = {*app.tasks.queues()}
    if not known.issuperset(unknown):
        known.update(row.name for row in await store.queues())
    if not known.issuperset(unknown):
        known.update(queue for worker in await store.workers() for queue in worker.queues)
    for queue in unknown:
        if queue not in known and not (await store.find(Query(queues=(queue,)), limit=1)).jobs:
            app.import_included()  # a module that is not imported yet may name it
            known.update(
                app.tasks.queues(), (row.value for row in await store.tally(Query.where(states=LIVE), "queue"))
            )
            if queue not in known:
                raise NotFound("queue", queue, known, hint=hint)


async def check_tasks(app: Mainspring, names: Iterable[str]) -> None:
    """Raise ``UnknownTask`` for a task that neither the code nor the store knows."""
    store = await app.client.store()
    for task in names:
        if app.tasks.find(task) is not None or (await store.find(Query(tasks=(task,)), limit=1)).jobs:
            continue
        others = tasks_of_programs(await store.documents(PROGRAMS))
        if others is None:
            return  # a program has more tasks than its document names
        known = others.union(app.tasks, *(worker.tasks for worker in await store.workers()))
        if task not in known:
            raise UnknownTask(task, known, hint=_TASKS)
