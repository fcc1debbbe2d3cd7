"""Job: the handle of one job. Attributes do no I/O. Every method ``x`` has an async version ``ax``."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from mainspring.client import blocking
from mainspring.codec import loads
from mainspring.common.current import current, importing
from mainspring.common.handles import Handle
from mainspring.common.ids import id_of
from mainspring.common.pause import PollPause
from mainspring.errors import (
    JobCancelled,
    JobDead,
    JobNotFound,
    KeyTaken,
    ResultGone,
    ResultTimeout,
    ResultTooLarge,
    StoreError,
    WouldDeadlock,
    WrongState,
    mask_url,
)
from mainspring.flows.members import find_cause, find_refused
from mainspring.flows.results import ReplacedBy, is_join, read_result
from mainspring.jobs.info import build_info, build_log_entry, decode_error
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


SAY_AFTER = 10.0
"""Seconds after which a caller of ``result()`` or ``join()`` without a timeout learns what the job waits for."""


class Job(Handle, Generic[R_co]):
    """The handle of a job that any process has enqueued. Its ``id`` is enough to make the handle again."""

    __slots__ = ("_client", "_decode", "_id", "created", "task")

    _INSTEAD = "Send job.id; app.jobs.get(id) or task.job(id) makes the handle again."
    _PATH = "job"
    _INTERNAL = frozenset({"holder"})

    def __init__(
        self, id: UUID | bytes, task: str, client: Client, decode: Callable[[bytes], R_co], created: bool = True
    ) -> None:
        self._id = id
        self.task = task
        self.created = created
        """False if the enqueue made no job, because another job holds the unique key."""
        self._client = client
        self._decode = decode

    @property
    def id(self) -> UUID:
        """The id. It is built from bytes at the first access: a bulk enqueue makes many handles and few are read."""
        id = self._id
        if isinstance(id, bytes):
            id = self._id = id_of(id)
        return id

    def holder(self, id: bytes) -> Job[R_co]:
        """Return the handle of the job that holds the unique key of this call."""
        return Job(id, self.task, self._client, self._decode, created=False)

    # ---- read ---------------------------------------------------------------------------------

    async def ainfo(self) -> JobInfo:
        """Return the state of the job, its attempts with every error, its progress and its times."""
        return await self._info(await self._row())

    info = blocking.twin(ainfo)

    async def alogs(self, after: int = 0) -> list[LogEntry]:
        """Return the log lines of all attempts, oldest first; only lines with a number above ``after``."""
        checks.line_number(after, "after")
        store = await self._client.store()
        lines = await store.logs(self.id.bytes, after)
        if not lines:
            await self._row()  # raises if the job does not exist
        return [build_log_entry(line) for line in lines]

    logs = blocking.twin(alogs)

    async def awhy(self) -> Why:
        """Return what prevents the job from running now, by the rules of the claim. No obstacles: it starts next."""
        return await self._explain(await self._row())

    why = blocking.twin(awhy)

    # ---- wait ---------------------------------------------------------------------------------

    async def aresult(self, timeout: Duration | None = None) -> R_co:
        """Wait until the job has ended, and return the value that the task returned.

        Raises ``JobDead``, ``JobCancelled``, ``ResultTimeout`` (the job continues), ``ResultTooLarge`` or
        ``ResultGone``. Without a timeout, a log line says after 10 s what the job waits for.
        """
        row = await self._wait_for_end(timeout)
        if row.state is State.DEAD:
            error = decode_error(row.error)
            raise JobDead(
                self.id,
                error.message if error else "",
                type_name=error.type if error else "",
                reason=row.reason or "",
            )
        if row.state is State.CANCELLED:
            cause = row.note or await find_cause(await self._client.store(), row)
            raise JobCancelled(self.id, cause or row.reason or "")
        if row.result is None and is_join(row):
            return self._decode(await read_result(await self._client.store(), row))
        if row.result is None:
            note = decode_error(row.error)
            too_large = ResultTooLarge.from_message(note.message, self.id) if note else None
            raise too_large or ResultGone(self.id, note.message if note else "none was kept")
        if (other := ReplacedBy.decode(row.result)) is not None:
            return await Job(other.job, self.task, self._client, self._decode).aresult(timeout)
        return self._decode(row.result)

    result = blocking.twin(aresult)

    async def ajoin(self, timeout: Duration | None = None) -> JobInfo:
        """Wait until the job has ended, in whatever state, and return its info.

        Without a timeout, a log line says after 10 s what the job waits for.
        """
        return await self._info(await self._wait_for_end(timeout))

    join = blocking.twin(ajoin)

    def awatch(self, timeout: Duration | None = None) -> AsyncIterator[JobInfo]:
        """Iterate over the job: now, and after each change of state, attempt or progress, until it has ended.

        The store is read at least every 0.1 s; two changes between two reads are seen as one. ``ResultTimeout`` if the
        job has not ended ``timeout`` after the call.
        """
        return blocking.ItemStream(self._changes(PollPause(timeout)))

    watch = blocking.iterator_twin(awatch)

    def astream(self, timeout: Duration | None = None) -> AsyncIterator[Any]:
        """Iterate over the values that the handler sends with ``ctx.send``, from the first, until the job has ended.

        Each position of the stream is returned once. If a later attempt sends another value at a position that was
        read already, this value is left out. ``ResultTimeout`` if the job has not ended ``timeout`` after the call.
        """
        return blocking.ItemStream(self._items(PollPause(timeout)))

    stream = blocking.iterator_twin(astream)

    # ---- change -------------------------------------------------------------------------------

    async def acancel(self, reason: str = "") -> bool:
        """Cancel the job. A waiting job never starts; the worker of a running job gets the order within 2 s.

        Return False if the job had ended already. Cancelled is final, whatever the handler does afterwards.
        """
        return bool((await self._act(Action.CANCEL, reason=checks.words(reason, "reason"))).done)

    cancel = blocking.twin(acancel)

    async def aretry(self) -> None:
        """Run an ended job again, in a new epoch. Its earlier attempts stay in its history.

        Raises ``WrongState`` while the job is live, ``KeyTaken`` if another job holds its unique key. A job of a flow
        that has gone on without it is refused with ``WrongState``: use ``app.flows.retry``.
        """
        await self._refuse_by_flow(Action.RETRY)
        acted = await self._act(Action.RETRY)
        for _, holder in acted.held:
            raise KeyTaken(self.task, UUID(bytes=holder), hint="Wait for that job, or cancel it, then retry this one.")
        self._refuse_wrong_state(acted, Action.RETRY)

    retry = blocking.twin(aretry)

    async def arun_now(self) -> bool:
        """Make a job ready that waits for its time or its next attempt. Return False if it did not wait for that."""
        return bool((await self._act(Action.RUN_NOW)).done)

    run_now = blocking.twin(arun_now)

    async def adelete(self) -> None:
        """Delete the job and everything that is stored about it.

        ``WrongState`` while it runs, and while its flow is open: cancel the job, or the flow, first.
        """
        await self._refuse_by_flow(Action.DELETE)
        self._refuse_wrong_state(await self._act(Action.DELETE), Action.DELETE)

    delete = blocking.twin(adelete)

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
        return build_info(row, await store.attempts(row.id))

    async def _act(self, action: Action, reason: str = "") -> ActResult:
        store = await self._client.store()
        acted = await store.act(action, Query.of(self.id), reason=reason)
        if not (acted.done or acted.refused or acted.held):
            raise JobNotFound(self.id)
        return acted

    async def _refuse_by_flow(self, action: Action) -> None:
        for error in (await find_refused(await self._client.store(), action, [await self._row()])).values():
            raise error

    def _refuse_wrong_state(self, acted: ActResult, action: Action) -> None:
        for _, state in acted.refused:
            raise WrongState(self.id, action, state, sources(action))

    async def _wait_for_end(self, timeout: Duration | None) -> JobRow:
        """Wait. Inside a job the slot of that job runs other jobs meanwhile."""
        row = await self._row()
        attempt = current.get(None)
        if row.state not in FINAL and importing.get():
            raise WouldDeadlock(
                f"the code waits for a job of task {self.task!r} while a worker imports it, "
                "and the worker runs no job before the import has ended",
                hint='Put the wait into a function, or under if __name__ == "__main__":, which an import does not run.',
            )
        if attempt is None or row.state in FINAL:
            return await self._poll_until_end(row, timeout)
        lender = attempt.environment.lender
        shared = lender.shared_limits(attempt, row)
        lender.begin_wait(attempt, row, await self._narrow_limits(shared) if shared else ())
        try:
            return await self._poll_until_end(row, timeout)
        finally:
            lender.end_wait(attempt)

    async def _narrow_limits(self, names: set[str]) -> list[str]:
        """The limits among these whose size is 1 now: an operator may have changed the declared size."""
        stored = await (await self._client.store()).limits()
        return [
            each.limit.name
            for each in stored
            if each.limit.name in names and (each.limit.size if each.size is None else each.size) == 1
        ]

    async def _poll_until_end(self, row: JobRow, timeout: Duration | None) -> JobRow:
        pace = PollPause(timeout)
        say_at = time.monotonic() + SAY_AFTER if timeout is None else None
        while row.state not in FINAL:
            if say_at is not None and time.monotonic() >= say_at:
                say_at = None
                await self._say_what_it_waits_for(row)
            await self._pause(pace, row)
            row = await self._row()
        return row

    async def _say_what_it_waits_for(self, row: JobRow) -> None:
        """Log what a caller waits for. A job that runs is no reason for a warning."""
        if (why := await self._why_now(row)) is not None:
            import logging

            level = logging.INFO if why.state in (State.RUNNING, *FINAL) else logging.WARNING
            logging.getLogger("mainspring.jobs").log(
                level, "job %s (%s) is still %s (store: %s)", self.id, self.task, why.text, self._shown_url
            )

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
            row = await self._row()  # read before the items: when a job has ended, all its items are stored
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
            raise ResultTimeout(self.id, pace.limit, row.state, why=await self._why_now(row), url=self._shown_url)

    async def _explain(self, row: JobRow) -> Why:
        from mainspring.jobs.why import explain

        store = await self._client.store()
        return await explain(store, row, await store.now())

    async def _why_now(self, row: JobRow) -> Why | None:
        """What a caller waits for; None if the store does not answer: the caller learns that from its next look."""
        try:
            return await self._explain(row)
        except StoreError:
            return None

    @property
    def _shown_url(self) -> str:
        return mask_url(self._client.address.url)
