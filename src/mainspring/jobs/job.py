"""Job: the handle of one request to run a call. Attributes do no I/O; every verb has its a-twin."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from mainspring.client import blocking
from mainspring.codec import loads
from mainspring.common.handles import Handle
from mainspring.common.ids import id_of
from mainspring.common.pause import PollPause
from mainspring.errors import JobCancelled, JobDead, JobNotFound, KeyTaken, ResultGone, ResultTimeout, WrongState
from mainspring.jobs.info import error_of, info_of, log_of
from mainspring.jobs.query import Query
from mainspring.options import checks
from mainspring.states import FINAL, Action, State, sources

if TYPE_CHECKING:
    from mainspring.client.client import Client
    from mainspring.common.duration import Duration
    from mainspring.jobs.info import JobInfo, LogEntry
    from mainspring.jobs.records import ActResult, JobRow
    from mainspring.jobs.why import Why

R_co = TypeVar("R_co", covariant=True)


class Job(Handle, Generic[R_co]):
    """A job that was enqueued, here or anywhere: ``id`` is all it takes."""

    __slots__ = ("_client", "_decode", "_id", "created", "task")

    INSTEAD = "Send job.id; app.jobs.get(id) or task.job(id) makes the handle again."

    def __init__(
        self, id: UUID | bytes, task: str, client: Client, decode: Callable[[bytes], R_co], created: bool = True
    ) -> None:
        self._id = id
        self.task = task
        self.created = created
        """False when the enqueue found a job that holds the unique key, and made none."""
        self._client = client
        self._decode = decode

    @property
    def id(self) -> UUID:
        """Made of its bytes when somebody asks: of the many jobs of one enqueue few are asked."""
        id = self._id
        if isinstance(id, bytes):
            id = self._id = id_of(id)
        return id

    def holder(self, id: bytes) -> Job[R_co]:
        """The handle of the job that holds the unique key which this one wanted."""
        return Job(id, self.task, self._client, self._decode, created=False)

    # ---- ask ----------------------------------------------------------------------------------

    def info(self) -> JobInfo:
        """State, attempts with every error, progress and times."""
        return blocking.run("job.info", self.ainfo())

    async def ainfo(self) -> JobInfo:
        return await self._info(await self._row())

    def logs(self, after: int = 0) -> list[LogEntry]:
        """The lines that the handler logged, oldest first, of all attempts; only those numbered above ``after``."""
        return blocking.run("job.logs", self.alogs(after))

    async def alogs(self, after: int = 0) -> list[LogEntry]:
        checks.line_number(after, "after")
        store = await self._client.store()
        lines = await store.logs(self.id.bytes, after)
        if not lines:
            await self._row()  # a job that is not there is no job without lines
        return [log_of(line) for line in lines]

    def why(self) -> Why:
        """What keeps the job from running, by the rules of the claim; nothing when ``obstacles`` is empty."""
        return blocking.run("job.why", self.awhy())

    async def awhy(self) -> Why:
        from mainspring.jobs.actions import store_now
        from mainspring.jobs.why import why

        store = await self._client.store()
        return await why(store, await self._row(), await store_now(store))

    # ---- wait ---------------------------------------------------------------------------------

    def result(self, timeout: Duration | None = None) -> R_co:
        """Wait for the job to end and return what the task returned.

        Raises ``JobDead``, ``JobCancelled``, ``ResultTimeout`` (the job goes on) or ``ResultGone``.
        """
        return blocking.run("job.result", self.aresult(timeout))

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        row = await self._ended(timeout)
        if row.state is State.DEAD:
            error = error_of(row.error)
            raise JobDead(
                self.id,
                error.message if error else "",
                type_name=error.type if error else "",
                reason=row.reason or "",
            )
        if row.state is State.CANCELLED:
            raise JobCancelled(self.id, row.note or row.reason or "")
        if row.result is None:
            note = error_of(row.error)
            raise ResultGone(self.id, note.message if note else "none was kept")
        return self._decode(row.result)

    def join(self, timeout: Duration | None = None) -> JobInfo:
        """Wait for the job to end, however it ends."""
        return blocking.run("job.join", self.ajoin(timeout))

    async def ajoin(self, timeout: Duration | None = None) -> JobInfo:
        return await self._info(await self._ended(timeout))

    def watch(self, timeout: Duration | None = None) -> Iterator[JobInfo]:
        """The job as it is, and again at each change of state, attempt or progress, until it has ended.

        What changed twice between two looks (at most 0.1 s) is seen once. ``ResultTimeout`` when the
        job has not ended after ``timeout``, counted from the call.
        """
        return blocking.each("job.watch", self._changes(PollPause(timeout)))

    def awatch(self, timeout: Duration | None = None) -> AsyncIterator[JobInfo]:
        return blocking.aeach(self._changes(PollPause(timeout)))

    def stream(self, timeout: Duration | None = None) -> Iterator[Any]:
        """What the handler sends with ``ctx.send``, from the first on, until the job has ended.

        Each place of the stream is given once: what another attempt sends in the place of something
        that was read already is left out. ``ResultTimeout`` when the job has not ended after
        ``timeout``, counted from the call.
        """
        return blocking.each("job.stream", self._items(PollPause(timeout)))

    def astream(self, timeout: Duration | None = None) -> AsyncIterator[Any]:
        return blocking.aeach(self._items(PollPause(timeout)))

    # ---- do -----------------------------------------------------------------------------------

    def cancel(self, reason: str = "") -> bool:
        """Cancel the job: a waiting one never starts, a running one is told within 2 s.

        False when it had ended already. Cancelled is final, whatever the handler does afterwards.
        """
        return blocking.run("job.cancel", self.acancel(reason))

    async def acancel(self, reason: str = "") -> bool:
        return bool((await self._act(Action.CANCEL, reason=checks.words(reason, "reason"))).done)

    def retry(self) -> None:
        """Run an ended job again, whatever its end was, as a new epoch with all its attempts before it.

        Raises ``WrongState`` while it is live, ``KeyTaken`` when another job holds its unique key.
        """
        return blocking.run("job.retry", self.aretry())

    async def aretry(self) -> None:
        acted = await self._act(Action.RETRY)
        for _, holder in acted.held:
            raise KeyTaken(self.task, UUID(bytes=holder), hint="Wait for that job, or cancel it, then retry this one.")
        self._demand(acted, Action.RETRY)

    def run_now(self) -> bool:
        """Make a job ready that waits for its time or its next attempt. False if it did not wait for that."""
        return blocking.run("job.run_now", self.arun_now())

    async def arun_now(self) -> bool:
        return bool((await self._act(Action.RUN_NOW)).done)

    def delete(self) -> None:
        """Remove the job and all that is kept of it. ``WrongState`` while it runs: cancel it first."""
        return blocking.run("job.delete", self.adelete())

    async def adelete(self) -> None:
        self._demand(await self._act(Action.DELETE), Action.DELETE)

    def __repr__(self) -> str:
        return f"<Job {self.task} {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # ---- private ------------------------------------------------------------------------------

    async def _row(self) -> JobRow:
        store = await self._client.store()
        found = await store.find(Query.of(self.id), limit=1)
        if not found.jobs:
            raise JobNotFound(self.id)
        return found.jobs[0]

    async def _info(self, row: JobRow) -> JobInfo:
        store = await self._client.store()
        return info_of(row, await store.attempts(row.id))

    async def _act(self, action: Action, reason: str = "") -> ActResult:
        store = await self._client.store()
        acted = await store.act(action, Query.of(self.id), reason=reason)
        if not (acted.done or acted.refused or acted.held):
            raise JobNotFound(self.id)
        return acted

    def _demand(self, acted: ActResult, action: Action) -> None:
        for _, state in acted.refused:
            raise WrongState(self.id, action, state, sources(action))

    async def _ended(self, timeout: Duration | None) -> JobRow:
        pace = PollPause(timeout)
        while (row := await self._row()).state not in FINAL:
            await self._pause(pace, row)
        return row

    async def _changes(self, pace: PollPause) -> AsyncGenerator[tuple[JobInfo]]:
        seen = None
        while True:
            row = await self._row()
            look = (row.state, row.epoch, row.attempt, row.token, row.ordered, row.progress)
            if look != seen:
                seen = look
                pace.hurry()
                yield (await self._info(row),)
            if row.state in FINAL:
                return
            await self._pause(pace, row)

    async def _items(self, pace: PollPause) -> AsyncGenerator[list[Any]]:
        place = 0
        while True:
            row = await self._row()  # before the items: what a job sent is there when it has ended
            store = await self._client.store()
            while items := await store.items(self.id.bytes, place):
                place = items[-1][0]
                pace.hurry()
                yield [loads(data) for _, data in items]
            if row.state in FINAL:
                return
            await self._pause(pace, row)

    async def _pause(self, pace: PollPause, row: JobRow) -> None:
        if not await pace.pause():
            raise ResultTimeout(self.id, pace.limit, row.state)
