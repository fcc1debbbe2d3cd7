"""Many calls in one enqueue: all of them become jobs, or none."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from mainspring.common.ids import raw_id, raw_ids
from mainspring.errors import InvalidOption, KeyConflict, KeyTaken
from mainspring.jobs.call import Call
from mainspring.jobs.job import Job
from mainspring.jobs.records import Batch

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.new_job import JobOrigin
    from mainspring.jobs.records import Enqueued
    from mainspring.limits.records import Limit
    from mainspring.tasks.middleware import Middleware

R = TypeVar("R")


class PreparedBatch(NamedTuple, Generic[R]):
    """A batch with the handles of its jobs."""

    batch: Batch
    jobs: list[Job[R]]
    connection: Any

    def answered(self, replies: Sequence[Enqueued]) -> list[Job[R]]:
        """The handles, after the store has said which jobs it made and which it found."""
        return [job if reply.created else found(job, reply) for job, reply in zip(self.jobs, replies, strict=True)]

    def explained(self, error: KeyTaken | KeyConflict) -> KeyTaken | KeyConflict:
        """The same error; if the key is taken by another call of this batch, it says so."""
        if all(job.id != error.holder for job in self.jobs):
            return error
        if isinstance(error, KeyConflict):
            why = "two calls of this batch have the same key and other arguments; none was enqueued"
            return KeyConflict(error.task, error.holder, error.job, why=why)
        hint = 'None of them was made; on_conflict="return" would make one.'
        return KeyTaken(error.task, error.holder, why="two calls of this batch want the same unique key", hint=hint)


def batch_of(app: Mainspring, calls: Iterable[Call[R]], connection: Any) -> PreparedBatch[R]:
    """The batch of these calls. They must be of this app, and go through one connection if through any."""
    ours: list[Call[R]] = []
    limits: dict[str, Limit] = {}
    connections = {} if connection is None else {id(connection): connection}
    for each in _each(calls):
        if not isinstance(each, Call):
            hint = "A call is task.s(...), with the arguments of one job, or app.call(name, ...)."
            raise InvalidOption("calls", each, "is not a call", subject="enqueue_many", hint=hint)
        if each.app is not app:
            raise InvalidOption(
                "calls", each, "is a call of another app", subject="enqueue_many",
                hint="One enqueue goes into one store: enqueue it through its own app.",
            )  # fmt: skip
        call = app.through(each)
        ours.append(call)
        limits.update((each.name, each) for each in call.limits)
        own = call.connection
        if own is not None or connection is None:
            connections[id(own)] = own
    if len(connections) > 1:
        raise InvalidOption(
            "connection", f"{len(connections)} of them", "must be the same for all calls", subject="enqueue_many",
            hint="They are enqueued all or none, so in one transaction: enqueue_many(calls, connection=...).",
        )  # fmt: skip
    version, client = app.settings.version, app.client
    pairs = [call.new_job(version, client, None, id) for id, call in zip(raw_ids(len(ours)), ours, strict=True)]
    batch = Batch(id=raw_id(), jobs=tuple([new for new, _ in pairs]), limits=tuple(limits.values()))
    return PreparedBatch(
        app.tasks.declared_queues.told(batch), [job for _, job in pairs], next(iter(connections.values()), None)
    )


def _each(calls: Iterable[Call[R]]) -> Iterator[Call[R]]:
    try:
        return iter(calls)
    except TypeError:
        hint = "app.enqueue_many([task.s(1), task.s(2)]); one call is enqueued by task.s(1).enqueue()."
        raise InvalidOption("calls", calls, "must be several calls", subject="enqueue_many", hint=hint) from None


def child_of(call: Call[R], origin: JobOrigin) -> PreparedBatch[R]:
    """The batch of one job that another makes. Sent as a repeat: an earlier attempt may have made it.

    Part of work that was accepted: no queue is too full for it."""
    app = call.app
    call = app.through(call)
    new, job = call.new_job(app.settings.version, app.client, origin)
    batch = Batch(id=new.id, jobs=(new,), retry=True, limits=call.limits, accepted=True)
    return PreparedBatch(app.tasks.declared_queues.told(batch), [job], call.connection)


def found(job: Job[R], reply: Enqueued) -> Job[R]:
    """The handle of what the store answered: the job itself, or the one that holds its unique key."""
    return job if reply.id == job.id.bytes else job.holder(reply.id)


def through(middleware: Middleware, call: Call[R]) -> Call[R]:
    """What the middleware makes of a call."""
    changed = middleware.enqueue(call)
    if not isinstance(changed, Call) or changed.app is not call.app:
        raise InvalidOption(
            "middleware", changed, "enqueue must return a call of the same app",
            subject=type(middleware).__name__, hint="return call.options(...), or the call itself.",
        )  # fmt: skip
    return changed
