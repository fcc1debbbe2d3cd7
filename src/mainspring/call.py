"""Call: a task with its arguments, checked and encoded, not yet enqueued."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from mainspring import options
from mainspring.errors import NotBuilt, did_you_mean
from mainspring.ids import new_id
from mainspring.job import Job
from mainspring.records import Body, NewJob

if TYPE_CHECKING:
    from typing import Self, Unpack

    from mainspring.app import Mainspring
    from mainspring.client import Client
    from mainspring.options import JobOptions

R_co = TypeVar("R_co", covariant=True)

LATER = frozenset({"each", "then", "undo"})
"""Verbs of the public API that are reserved, and refused until they work."""

_encode_body = msgspec.json.Encoder().encode


class Target(msgspec.Struct, frozen=True):
    """What a call needs to know of its task; for a call by name, all that is known of it."""

    name: str
    kind: str
    options: Mapping[str, Any]
    """Resolved task options; durations in microseconds."""
    decode: Callable[[bytes], Any]


class Call(Generic[R_co]):
    """Immutable: every change makes a new one. ``task.s(...)`` and ``app.call(...)`` make it."""

    __slots__ = ("_app", "_arguments", "_options", "_target")

    def __init__(self, app: Mainspring, target: Target, arguments: bytes, given: Mapping[str, Any]) -> None:
        self._app = app
        self._target = target
        self._arguments = arguments
        self._options = given

    @property
    def task(self) -> str:
        """The name of the task."""
        return self._target.name

    def options(self, **o: Unpack[JobOptions]) -> Self:
        """The same call with these job options."""
        given = options.overlay(o, task=self._target.options, before=self._options, subject=f"task {self.task!r}")
        return type(self)(self._app, self._target, self._arguments, given)

    def enqueue(self) -> Job[R_co]:
        """Create the job. It exists, durably, when this returns."""
        return self._app.enqueue_one(self)

    async def aenqueue(self) -> Job[R_co]:
        job: Job[R_co]
        [job] = await self._app.aenqueue_many([self])
        return job

    def __repr__(self) -> str:
        return f"<Call {self.task} {self._arguments[:80].decode(errors='replace')}>"

    if not TYPE_CHECKING:  # a type checker must not believe that every name is there

        def __or__(self, other: Any) -> Any:
            raise NotBuilt("Call", "|")

        def __getattr__(self, name: str) -> Any:
            if name in LATER:
                raise NotBuilt("Call", name)
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            raise AttributeError(f"'Call' object has no attribute {name!r}{did_you_mean(name, known)}")

    @property
    def app(self) -> Mainspring:
        """Whose call it is."""
        return self._app

    @property
    def connection(self) -> Any:
        """The caller's connection to enqueue through, if one was given."""
        return self._options.get("connection")

    def new_job(self, code: str | None, client: Client) -> tuple[NewJob, Job[R_co]]:
        """The record to insert, and the handle of it."""
        target = self._target
        job = Job(new_id(), target.name, client, target.decode)
        if self._options or code is not None:
            return self._with_options(job, code), job
        task = target.options
        new = NewJob(
            id=job.id.bytes,
            task=target.name,
            queue=task["queue"],
            kind=target.kind,
            priority=task["priority"],
            expires_in=task["expires"],
            crashes=task["crashes"],
            early=task["ack"] == "early",
            record=b'{"args":%b}' % self._arguments,  # what encoding such a body gives, at a tenth of the cost
        )
        return new, job

    def _with_options(self, job: Job[R_co], code: str | None) -> NewJob:
        own, task = self._options, self._target.options
        body = Body(
            args=msgspec.Raw(self._arguments),
            retries=own.get("retries"),
            timeout=(own["timeout"] or 0) if "timeout" in own else None,
            code=code,
        )
        return NewJob(
            id=job.id.bytes,
            task=self.task,
            queue=own.get("queue") or task["queue"],
            kind=self._target.kind,
            priority=own.get("priority", task["priority"]),
            delay=own.get("delay") or 0,
            run_at=own.get("run_at"),
            expires_in=own.get("expires", task["expires"]),
            crashes=task["crashes"],
            early=task["ack"] == "early",
            record=_encode_body(body),
        )
