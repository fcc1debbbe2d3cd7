"""Calls, and the batches they are enqueued in.

A ``Call`` is a task with its arguments, checked and encoded, not yet enqueued. To enqueue, calls become the records of
one batch, the store inserts the batch, and each call gets a job handle. Every enqueue goes this way: one call or many,
blocking or async, a child of a running job or not. ``prepare`` makes the batch without touching the store; ``enqueue``
and ``aenqueue`` send it. All calls of a batch become jobs, or none does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from msgspec import Struct
from msgspec.structs import replace

from mainspring.client import blocking
from mainspring.codec import loads
from mainspring.codec.signature import Supplied
from mainspring.common.ids import id_of, raw_id, raw_ids
from mainspring.common.redact import spelled
from mainspring.common.text import cut
from mainspring.errors import InvalidOption, KeyConflict, KeyTaken
from mainspring.flows.flow import Flow
from mainspring.jobs.job import Job
from mainspring.jobs.new_job import CallTarget, JobBuilder, JobOrigin, key_of
from mainspring.jobs.records import JobBatch, NewJob
from mainspring.limits.records import Limit
from mainspring.options.table import inherit_options, overlay_options
from mainspring.tasks.middleware import wrap_call

if TYPE_CHECKING:
    from typing import Self, Unpack

    from mainspring.app import Mainspring
    from mainspring.jobs.keys import Key
    from mainspring.jobs.records import Enqueued
    from mainspring.options.typed import JobOptions

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Call(Flow[R_co]):
    """A task with its arguments, not enqueued: no job exists before ``.enqueue()``.

    ``task.s(...)`` and ``app.call(...)`` make calls. A call is immutable: every change returns a new call.
    """

    __slots__ = ("_arguments", "_options", "app", "target")

    app: Mainspring

    _INSTEAD = "Send task.name and the arguments; app.call(name, ...) makes the call again."
    _INTERNAL = frozenset({
        "aenqueue_child", "app", "build", "connection", "enqueue_child", "given", "identity", "inheriting", "limits",
        "new_job", "own_key", "retargeted", "target",
    })  # fmt: skip

    def __init__(self, app: Mainspring, target: CallTarget, arguments: bytes, given: Mapping[str, Any]) -> None:
        self.app = app
        """The app of the call."""
        self.target = target
        """What the call knows about its task."""
        self._arguments = arguments
        self._options = given

    def options(self, **o: Unpack[JobOptions]) -> Self:
        """The same call with these job options; tags are added, meta is merged, other options are replaced."""
        self.app.tasks.declared_queues.check_own(o, f"task {self.task!r}")
        given = overlay_options(o, task=self.target.options, before=self._options, subject=f"task {self.task!r}")
        return type(self)(self.app, self.target, self._arguments, given)

    def inheriting(self, given: Mapping[str, Any]) -> Self:
        """The same call with these job options, in normal form, where it has no option itself."""
        if not given:
            return self
        merged = inherit_options(self._options, task=self.target.options, before=given, subject=f"task {self.task!r}")
        return type(self)(self.app, self.target, self._arguments, merged)

    def enqueue(self) -> Job[R_co]:
        """Create the job. The store has it, durably, when this returns."""
        return enqueue(self.app, (self,))[0]

    async def aenqueue(self) -> Job[R_co]:
        """Async version of ``enqueue``: create the job. The store has it, durably, when this returns."""
        return (await aenqueue(self.app, (self,)))[0]

    def enqueue_child(self, origin: JobOrigin) -> Job[R_co]:
        """Create the job as the child of a running job, for ``ctx.spawn``; a child that exists already is found."""
        return enqueue(self.app, (self,), origin=origin)[0]

    async def aenqueue_child(self, origin: JobOrigin) -> Job[R_co]:
        """Async version of ``enqueue_child``: create the job as the child of a running job."""
        return (await aenqueue(self.app, (self,), origin=origin))[0]

    # ---- inspect ------------------------------------------------------------------------------

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.target.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The given arguments by name as plain JSON values, without defaults.

        Positional arguments of a call by name, whose signature is not known here, are under ``@``.
        """
        found: dict[str, Any] = loads(self._arguments)
        return found

    @property
    def identity(self) -> bytes:
        """Bytes that are equal for calls of one task with equal arguments."""
        return self.task.encode() + b"\0" + self._arguments

    @property
    def given(self) -> Mapping[str, Any]:
        """The job options that were given, in normal form: durations in microseconds, a key as a ``Key``."""
        return dict(self._options)

    @property
    def own_key(self) -> Key | None:
        """The unique key of its job."""
        return key_of(self._options, self.target.options)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits of its job, which the store must know before the job can wait for them."""
        return tuple([bound.limit for bound in self.target.bounds]) if self.target.bounds else ()

    @property
    def connection(self) -> Any:
        """The caller's connection to enqueue through, if one was given."""
        return self._options.get("connection")

    def __repr__(self) -> str:
        return f"<Call {self.task}({cut(spelled(self.arguments, self.target.hide), 80)})>"

    # ---- become a job -------------------------------------------------------------------------

    def new_job(self, code: str | None = None, origin: JobOrigin | None = None, id: bytes | None = None) -> NewJob:
        """The record to insert; ``code`` is the version of the app. Without an ``id`` a new one is made.

        The jobs of a plain task differ only in their ids and arguments: they are copies of the task's template.
        """
        if id is None:
            id = raw_id() if origin is None else origin.id
        target = self.target
        template = target.template
        if template and not (self._options or code or origin or target.queue in self.app.tasks.fair):
            return replace(template, id=id, record=b'{"args":%b}' % self._arguments)
        return self.build(code).job(id_of(id), origin)

    def build(self, code: str | None, schedule: str | None = None) -> JobBuilder:
        """The builder of the record, for a call that has options or whose task is not plain."""
        return JobBuilder(self.app, self.target, self._arguments, self._options, code, schedule)

    def retargeted(self, target: CallTarget) -> Self:
        """The same call with other facts about its task."""
        return type(self)(self.app, target, self._arguments, self._options)

    def with_undo(self, step: Step[Any]) -> Self:
        """The same call with this compensation."""
        return cast("Self", Step(self.app, self.target, self._arguments, self._options, undo_step=step))


class Step(Call[R_co]):
    """A call in a flow: some of its arguments may be results of other jobs, and it may have a compensation."""

    __slots__ = ("inputs", "undo_step")

    _INTERNAL = frozenset({"inputs", "undo_step"})

    def __init__(
        self, app: Mainspring, target: CallTarget, arguments: bytes, given: Mapping[str, Any], *,
        inputs: Mapping[str, Supplied] | None = None, undo_step: Step[Any] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(app, target, arguments, given)
        self.inputs: Mapping[str, Supplied] = inputs or {}
        """The parameters that get a result, and where it comes from."""
        self.undo_step = undo_step

    def options(self, **o: Unpack[JobOptions]) -> Self:
        return self._copied(super().options(**o))

    def inheriting(self, given: Mapping[str, Any]) -> Self:
        return self._copied(super().inheriting(given))

    def enqueue(self) -> Job[R_co]:
        return Flow.enqueue(self)

    async def aenqueue(self) -> Job[R_co]:
        return await Flow.aenqueue(self)

    def _copied(self, call: Call[R_co]) -> Self:
        return type(self)(
            call.app, call.target, call._arguments, call._options,  # noqa: SLF001 - the slots of its base class
            inputs=self.inputs, undo_step=self.undo_step,
        )  # fmt: skip

    def with_undo(self, step: Step[Any]) -> Self:
        """The same call with this compensation."""
        return type(self)(self.app, self.target, self._arguments, self._options, inputs=self.inputs, undo_step=step)


UPSTREAM = Supplied()
"""The result of the part of a flow before a step."""


def checked_calls(app: Mainspring, calls: Iterable[Call[R]]) -> list[Call[R]]:
    """The calls as a list, for ``enqueue_many``; ``InvalidOption`` unless each is a call of this app."""
    try:
        each = iter(calls)  # only this: a TypeError out of the caller's generator is not ours
    except TypeError:
        hint = "app.enqueue_many([task.s(1), task.s(2)]); one call is enqueued by task.s(1).enqueue()."
        raise InvalidOption("calls", calls, "must be several calls", subject="enqueue_many", hint=hint) from None
    found = list(each)
    for call in found:
        if not isinstance(call, Call):
            hint = "A call is task.s(...), with the arguments of one job, or app.call(name, ...)."
            raise InvalidOption("calls", call, "is not a call", subject="enqueue_many", hint=hint)
        if call.app is not app:
            hint = "One enqueue goes into one store: enqueue the call through its own app."
            raise InvalidOption("calls", call, "is a call of another app", subject="enqueue_many", hint=hint)
    return found


def inheriting_calls(app: Mainspring, calls: Iterable[Call[R]], given: Mapping[str, Any]) -> list[Call[R]]:
    """The calls for ``task.options(...).enqueue_many``: each with the options that it does not have itself.

    The connection is left out: it belongs to the batch.
    """
    found = checked_calls(app, calls)
    key: Key | None = given.get("key")
    if key is not None and key.value is not None:
        counts = Counter(call.task for call in found if "key" not in call.given)
        if counts and (most := max(counts.values())) > 1:
            raise InvalidOption(
                "key", key, f"would be the key of {most} calls, of which only one would become a job",
                subject="enqueue_many",
                hint='key=Key.arguments("order") gives each call its own key; so does task.s(...).options(key=...).',
            )  # fmt: skip
    inherited = {name: value for name, value in given.items() if name != "connection"}
    return [call.inheriting(inherited) for call in found]


# ---- batches ----------------------------------------------------------------------------------


class PreparedBatch(Struct, Generic[R]):
    """A batch, the handles of its jobs, and the connection of the caller to insert it through."""

    batch: JobBatch
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
    app: Mainspring, calls: Sequence[Call[R]], connection: Any = None, origin: JobOrigin | None = None, *,
    verb: str = "enqueue",
) -> list[Job[R]]:  # fmt: skip
    """Enqueue calls of ``app`` in this thread; ``origin`` makes the one call a child of a running job.

    ``verb`` is the method that the user called.
    """
    if origin is None and blocking.in_loop():
        blocking.warn_blocking(verb)
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
    differs = False
    for id, call in zip(ids, calls):  # noqa: B905 - both are of one length, and the check costs time
        target = call.target
        records.append(call.new_job(code, origin, id))
        jobs.append(Job(id, target.name, client, target.decode))
        if target.bounds:
            limits.update((limit.name, limit) for limit in call.limits)
        if call._options or connection is not None:  # noqa: SLF001 - a property costs a tenth of the whole call
            differs = differs or call.connection is not connection
    if differs:
        connection = _shared_connection(calls, connection)
    batch = JobBatch(id=ids[0], jobs=tuple(records), limits=tuple(limits.values()) if limits else ())
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
