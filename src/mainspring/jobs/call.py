"""Call: a task with its arguments, checked and encoded, not yet enqueued."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainspring.codec import loads
from mainspring.common.handles import Handle
from mainspring.common.ids import id_of, raw_id
from mainspring.common.redact import spelled
from mainspring.errors import NotBuilt
from mainspring.jobs.job import Job
from mainspring.jobs.new_job import CallTarget, JobBuilder, JobOrigin, key_of
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Limit
from mainspring.options.table import overlay_options

if TYPE_CHECKING:
    from typing import Self, Unpack

    from mainspring.app import Mainspring
    from mainspring.client.client import Client
    from mainspring.jobs.batch import PreparedBatch
    from mainspring.jobs.keys import Key
    from mainspring.options.table import JobOptions

R_co = TypeVar("R_co", covariant=True)


class Call(Handle, Generic[R_co]):
    """Immutable: every change makes a new one. ``task.s(...)`` and ``app.call(...)`` make it."""

    __slots__ = ("_app", "_arguments", "_options", "_target")

    LATER = frozenset({"each", "then", "undo"})
    INSTEAD = "Send task.name and the arguments; app.call(name, ...) makes the call again."

    def __init__(self, app: Mainspring, target: CallTarget, arguments: bytes, given: Mapping[str, Any]) -> None:
        self._app = app
        self._target = target
        self._arguments = arguments
        self._options = given

    def options(self, **o: Unpack[JobOptions]) -> Self:
        """The same call with these job options; tags add up and meta is merged, the rest replaces."""
        given = overlay_options(o, task=self._target.options, before=self._options, subject=f"task {self.task!r}")
        return type(self)(self._app, self._target, self._arguments, given)

    def enqueue(self) -> Job[R_co]:
        """Create the job. It exists, durably, when this returns."""
        return self._app.enqueue_one(self)

    async def aenqueue(self) -> Job[R_co]:
        return await self._app.aenqueue_one(self)

    def enqueue_child(self, origin: JobOrigin) -> Job[R_co]:
        """Create it as the child of a job, for ``ctx.spawn``; one of that id that is there already is found."""
        made = self._child(origin)
        [job] = made.answered(self._app.client.enqueue_now(made.batch, made.connection))
        return job

    async def aenqueue_child(self, origin: JobOrigin) -> Job[R_co]:
        made = self._child(origin)
        if made.connection is not None:
            [job] = made.answered(self._app.client.enqueue_now(made.batch, made.connection))
        else:
            [job] = made.answered(await self._app.client.enqueue(made.batch))
        return job

    # ---- inspect ------------------------------------------------------------------------------

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._target.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by name as plain JSON values, without those left to their default.

        Positional ones of a call by name, whose signature is not known here, are under ``@``.
        """
        found: dict[str, Any] = loads(self._arguments)
        return found

    @property
    def identity(self) -> bytes:
        """The same for calls of one task with the same arguments."""
        return self.task.encode() + b"\0" + self._arguments

    @property
    def given(self) -> Mapping[str, Any]:
        """The job options that were given, in normal form: durations in microseconds, a key as a ``Key``."""
        return dict(self._options)

    @property
    def target(self) -> CallTarget:
        """What it knows of its task."""
        return self._target

    @property
    def app(self) -> Mainspring:
        """Whose call it is."""
        return self._app

    @property
    def own_key(self) -> Key | None:
        """The unique key that its job wants."""
        return key_of(self._options, self._target.options)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What the store must know before its job can be limited by it."""
        return tuple([bound.limit for bound in self._target.bounds]) if self._target.bounds else ()

    @property
    def connection(self) -> Any:
        """The caller's connection to enqueue through, if one was given."""
        return self._options.get("connection")

    def __repr__(self) -> str:
        return f"<Call {self.task}({spelled(self.arguments, self._target.hide)[:80]})>"

    if not TYPE_CHECKING:  # a type checker must not believe that it is there

        def __or__(self, other: Any) -> Any:
            raise NotBuilt("Call", "|")

    # ---- become a job -------------------------------------------------------------------------

    def new_job(
        self, code: str | None, client: Client, origin: JobOrigin | None = None, id: bytes | None = None
    ) -> tuple[NewJob, Job[R_co]]:
        """The record to insert, and the handle of it. Whoever makes many has their ids."""
        target = self._target
        if id is None:
            id = raw_id() if origin is None else origin.id
        job = Job(id, target.name, client, target.decode)
        plain = target.plain and target.queue not in self._app.tasks.fair
        if self._options or code is not None or origin is not None or not plain:
            return self.making(code).job(id_of(id), origin), job
        new = NewJob(
            id=id,
            task=target.name,
            queue=target.queue,
            kind=target.kind,
            priority=target.priority,
            expires_in=target.expires,
            crashes=target.crashes,
            early=target.early,
            record=b'{"args":%b}' % self._arguments,  # what encoding such a body gives, at a tenth of the cost
        )
        return new, job

    def retargeted(self, target: CallTarget) -> Self:
        """The same call with other facts of its task."""
        return type(self)(self._app, target, self._arguments, self._options)

    def _child(self, origin: JobOrigin) -> PreparedBatch[R_co]:
        from mainspring.jobs.batch import child_of

        return child_of(self, origin)

    def making(self, code: str | None, schedule: str | None = None) -> JobBuilder:
        """What makes its record."""
        return JobBuilder(self._app, self._target, self._arguments, self._options, code, schedule)
