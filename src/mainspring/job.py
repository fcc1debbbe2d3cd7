"""Job: the handle of one request to run a call. Attributes do no I/O; every verb has its a-twin."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from mainspring import sync
from mainspring.clock import to_datetime
from mainspring.codec import ErrorRecord, loads
from mainspring.duration import Duration, to_seconds
from mainspring.errors import JobCancelled, JobDead, JobNotFound, NotBuilt, ResultGone, ResultTimeout, did_you_mean
from mainspring.outcomes import Outcome
from mainspring.query import Query
from mainspring.records import AttemptRow, JobRow
from mainspring.states import FINAL, Action, Reason, State

if TYPE_CHECKING:
    from mainspring.client import Client

R_co = TypeVar("R_co", covariant=True)

LATER = frozenset({"delete", "logs", "retry", "run_now", "stream", "watch", "why"})
"""Verbs of the public API that are reserved, and refused until they work; so are their a-twins."""

FIRST_LOOK = 0.002
SLOWEST_LOOK = 0.1


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt of a job."""

    number: int
    epoch: int
    token: int
    worker: str
    started: datetime
    ended: datetime
    outcome: Outcome
    error: ErrorRecord | None = None


class JobInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knew of a job when it was asked."""

    id: UUID
    task: str
    queue: str
    state: State
    reason: Reason | None
    priority: int
    attempt: int
    """Attempts that count against ``retries``; those given back do not."""
    epoch: int
    crashes: int
    token: int
    worker: str | None
    enqueued: datetime
    due: datetime | None
    expires: datetime | None
    started: datetime | None
    finished: datetime | None
    cancelling: bool
    """A cancel order was given and the handler has not ended yet."""
    progress: dict[str, Any] | None
    error: ErrorRecord | None
    attempts: tuple[Attempt, ...]
    """Every ended attempt but a plain success, oldest first."""

    @property
    def final(self) -> bool:
        return self.state in FINAL


class Job(Generic[R_co]):
    """A job that was enqueued, here or anywhere: ``id`` is all it takes."""

    __slots__ = ("_client", "_decode", "id", "task")

    def __init__(self, id: UUID, task: str, client: Client, decode: Callable[[bytes], R_co]) -> None:  # the public name
        self.id = id
        self.task = task
        self._client = client
        self._decode = decode

    def info(self) -> JobInfo:
        """State, attempts with every error, progress and times, in one look at the store."""
        return sync.run("job.info", self.ainfo())

    async def ainfo(self) -> JobInfo:
        row = await self._row()
        store = await self._client.store()
        return _info(row, await store.attempts(row.id))

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job to end and return what the task returned.

        Raises ``JobDead``, ``JobCancelled``, ``ResultTimeout`` (the job goes on) or ``ResultGone``.
        """
        return sync.run("job.result", self.aresult(timeout))

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        row = await self._ended(timeout)
        if row.state is State.DEAD:
            error = _error(row.error)
            raise JobDead(
                self.id,
                error.message if error else "",
                type_name=error.type if error else "",
                reason=row.reason or "",
            )
        if row.state is State.CANCELLED:
            raise JobCancelled(self.id, row.reason or "")
        if row.result is None:
            note = _error(row.error)
            raise ResultGone(self.id, note.message if note else "none was kept")
        return self._decode(row.result)

    def join(self, timeout: Duration | None = None) -> JobInfo:
        """Wait for the job to end, however it ends."""
        return sync.run("job.join", self.ajoin(timeout))

    async def ajoin(self, timeout: Duration | None = None) -> JobInfo:
        row = await self._ended(timeout)
        store = await self._client.store()
        return _info(row, await store.attempts(row.id))

    def cancel(self, reason: str = "") -> bool:
        """Cancel the job: a waiting one never starts, a running one is told within 2 s.

        False when it had ended already. Cancelled is final, whatever the handler does afterwards.
        """
        return sync.run("job.cancel", self.acancel(reason))

    async def acancel(self, reason: str = "") -> bool:
        store = await self._client.store()
        acted = await store.act(Action.CANCEL, Query.of(self.id), reason=reason)
        if not acted.done and not acted.refused:
            raise JobNotFound(self.id)
        return bool(acted.done)

    def __repr__(self) -> str:
        return f"<Job {self.task} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    if not TYPE_CHECKING:  # a type checker must not believe that every name is there

        def __getattr__(self, name: str) -> Any:
            if name in LATER or name.removeprefix("a") in LATER:
                raise NotBuilt("Job", name)
            known = [each for each in dir(type(self)) if not each.startswith("_")]
            raise AttributeError(f"'Job' object has no attribute {name!r}{did_you_mean(name, known)}")

    async def _row(self) -> JobRow:
        store = await self._client.store()
        found = await store.find(Query.of(self.id), limit=1)
        if not found.jobs:
            raise JobNotFound(self.id)
        return found.jobs[0]

    async def _ended(self, timeout: Duration | None) -> JobRow:
        """Look until the job has ended: soon at first, then ten times a second."""
        limit = None if timeout is None else to_seconds(timeout, what="timeout")
        give_up = None if limit is None else time.monotonic() + limit
        pause = FIRST_LOOK
        while True:
            row = await self._row()
            if row.state in FINAL:
                return row
            if give_up is not None and limit is not None:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise ResultTimeout(self.id, limit, row.state)
                pause = min(pause, left)
            await asyncio.sleep(pause)
            pause = min(SLOWEST_LOOK, pause * 1.5)


def _moment(us: int | None) -> datetime | None:
    return None if us is None else to_datetime(us)


def _error(data: bytes | None) -> ErrorRecord | None:
    record: ErrorRecord | None = None if data is None else loads(data, ErrorRecord)
    return record


def _info(row: JobRow, attempts: list[AttemptRow]) -> JobInfo:
    return JobInfo(
        id=UUID(bytes=row.id),
        task=row.task,
        queue=row.queue,
        state=row.state,
        reason=row.reason,
        priority=row.priority,
        attempt=row.attempt,
        epoch=row.epoch,
        crashes=row.crashes,
        token=row.token,
        worker=row.worker,
        enqueued=to_datetime(row.enqueued),
        due=_moment(row.due),
        expires=_moment(row.expires),
        started=_moment(row.started),
        finished=_moment(row.finished),
        cancelling=row.ordered,
        progress=msgspec.json.decode(row.progress) if row.progress else None,
        error=_error(row.error),
        attempts=tuple(_attempt(one) for one in attempts),
    )


def _attempt(row: AttemptRow) -> Attempt:
    return Attempt(
        number=row.attempt,
        epoch=row.epoch,
        token=row.token,
        worker=row.worker,
        started=to_datetime(row.started),
        ended=to_datetime(row.ended),
        outcome=row.outcome,
        error=_error(row.error),
    )
