"""Enqueue: calls become the records of one batch, the store inserts the batch, and each call gets a job handle.

Every enqueue goes this way: one call or many, blocking or async, a child of a running job or not. ``prepare`` makes the
batch without touching the store; ``enqueue`` and ``aenqueue`` send it. All calls of a batch become jobs, or none does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from mainspring.client import blocking
from mainspring.common.ids import raw_id, raw_ids
from mainspring.errors import InvalidOption, KeyConflict, KeyTaken
from mainspring.jobs.job import Job
from mainspring.jobs.records import Batch
from mainspring.tasks.middleware import wrap_call

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call
    from mainspring.jobs.new_job import JobOrigin
    from mainspring.jobs.records import Enqueued, NewJob
    from mainspring.limits.records import Limit

R = TypeVar("R")


class PreparedBatch(Struct, Generic[R]):
    """A batch, the handles of its jobs, and the connection of the caller to insert it through."""

    batch: Batch
    jobs: list[Job[R]]
    connection: Any

    def answer(self, replies: Sequence[Enqueued]) -> list[Job[R]]:
        """The handles of the jobs that the store inserted, or found as the holders of their unique keys."""
        found = self.jobs
        for n, reply in enumerate(replies):
            if not reply.created and reply.id != found[n].id.bytes:
                found[n] = found[n].holder(reply.id)
        return found

    def explain(self, error: KeyTaken | KeyConflict) -> KeyTaken | KeyConflict:
        """The error to raise: if another call of this batch has the same key, the message says so."""
        if all(job.id != error.holder for job in self.jobs):
            return error
        if isinstance(error, KeyConflict):
            why = "two calls of this batch have the same key and different arguments; no job was enqueued"
            return KeyConflict(error.task, error.holder, error.job, why=why)
        hint = 'No job was enqueued. With on_conflict="return" both calls would get the same job.'
        return KeyTaken(error.task, error.holder, why="two calls of this batch want the same unique key", hint=hint)


def enqueue(
    app: Mainspring, calls: Sequence[Call[R]], connection: Any = None, origin: JobOrigin | None = None
) -> list[Job[R]]:
    """Enqueue calls of ``app`` in this thread; ``origin`` makes the one call a child of a running job."""
    if origin is None and blocking.in_loop():
        blocking.warn_blocking("enqueue")
    made = prepare(app, calls, connection, origin)
    try:
        return made.answer(app.client.enqueue_now(made.batch, made.connection))
    except (KeyTaken, KeyConflict) as error:
        raise made.explain(error) from None


async def aenqueue(
    app: Mainspring, calls: Sequence[Call[R]], connection: Any = None, origin: JobOrigin | None = None
) -> list[Job[R]]:
    """Async version of :func:`enqueue`."""
    made = prepare(app, calls, connection, origin)
    try:
        if made.connection is not None:  # one insert in the caller's own transaction does not wait
            return made.answer(app.client.enqueue_now(made.batch, made.connection))
        return made.answer(await app.client.enqueue(made.batch))
    except (KeyTaken, KeyConflict) as error:
        raise made.explain(error) from None


def prepare(
    app: Mainspring, calls: Sequence[Call[R]], connection: Any = None, origin: JobOrigin | None = None
) -> PreparedBatch[R]:
    """The batch of these calls, after the middleware; all go through one connection, or none does.

    The child of a running job is sent as a repeat, because an earlier attempt may have made it, and as accepted work:
    no queue is too full for it.
    """
    if app.enqueue_middleware:
        calls = [wrap_call(app.enqueue_middleware, call) for call in calls]
    ids = (origin.id,) if origin is not None else (raw_id(),) if len(calls) == 1 else raw_ids(len(calls))
    code, client = app.settings.version, app.client
    records: list[NewJob] = []
    jobs: list[Job[R]] = []
    limits: dict[str, Limit] = {}
    for id, call in zip(ids, calls):  # noqa: B905 - both are of one length, and the check costs time
        target = call.target
        records.append(call.new_job(code, origin, id))
        jobs.append(Job(id, target.name, client, target.decode))
        if target.bounds:
            limits.update((limit.name, limit) for limit in call.limits)
        if call.connection is not connection:
            connection = _shared_connection(calls, connection)
    batch = Batch(id=ids[0], jobs=tuple(records), limits=tuple(limits.values()) if limits else ())
    if origin is not None:
        batch = replace(batch, retry=True, accepted=True)
    return PreparedBatch(app.tasks.declared_queues.add_settings(batch), jobs, connection)


def _shared_connection(calls: Sequence[Call[Any]], connection: Any) -> Any:
    """The one connection that all calls go through: their own, or the given one for calls without their own."""
    found = {id(own): own for call in calls if (own := call.connection) is not None or connection is None}
    if connection is not None:
        found[id(connection)] = connection
    if len(found) > 1:
        raise InvalidOption(
            "connection", f"{len(found)} connections", "must be the same for all calls", subject="enqueue_many",
            hint="All calls are enqueued in one transaction: enqueue_many(calls, connection=...).",
        )  # fmt: skip
    return next(iter(found.values()))
