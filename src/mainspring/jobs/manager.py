"""app.jobs: find, count and change many jobs at once. Every verb has its a-twin."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.client import blocking
from mainspring.codec import loads
from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption, JobNotFound
from mainspring.jobs import actions
from mainspring.jobs.actions import Which
from mainspring.jobs.info import JobInfo, info_of
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.options import checks
from mainspring.states import LIVE, Action, State

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.why import Why
    from mainspring.options.typed import Priority

LARGEST_PAGE = 10_000
RATE = 500.0
"""Jobs a second that a retry of many makes ready, unless told otherwise."""


class Page(msgspec.Struct, frozen=True):
    """Some jobs of a listing, newest first, without their attempts."""

    jobs: tuple[JobInfo, ...]
    cursor: str | None = None
    """Hand it to the next call to go on; None when there is no more."""


class Counts(dict[State, int]):
    """How many jobs are in each state; every state is a key: ``counts["ready"]``."""

    def __getitem__(self, state: State | str, /) -> int:
        return super().__getitem__(State(state))

    @property
    def total(self) -> int:
        return sum(self.values())

    @property
    def live(self) -> int:
        """Those that have not ended."""
        return sum(count for state, count in self.items() if state in LIVE)


class Jobs(Reserved):
    """Which jobs is said by a ``Query``, a ``Job`` or an id.

    What only looks takes None for every job. What changes jobs refuses an empty query: say
    ``Query.everything()``. It acts on those that are in a state for it and returns how many that were.
    """

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- ask ----------------------------------------------------------------------------------

    def get(self, id: UUID | str) -> Job[Any]:
        """The handle of a job that is there; its result is decoded by its task if that is known here."""
        return blocking.run("app.jobs.get", self.aget(id))

    async def aget(self, id: UUID | str) -> Job[Any]:
        query = Query.of(id)
        found = await (await self._app.client.store()).find(query, limit=1)
        if not found.jobs:
            raise JobNotFound(id)
        row = found.jobs[0]
        return Job(UUID(bytes=row.id), row.task, self._app.client, self._decoder(row.task), created=False)

    def why(self, id: UUID | str) -> Why:
        """What keeps this job from running."""
        return blocking.run("app.jobs.why", self.awhy(id))

    async def awhy(self, id: UUID | str) -> Why:
        return await (await self.aget(id)).awhy()

    def list(self, query: Which | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Up to ``limit`` jobs, newest first; ``cursor`` of the page before goes on after it.

        A job that fits while the pages are read is on one of them, and on one only.
        """
        return blocking.run("app.jobs.list", self.alist(query, limit=limit, cursor=cursor))

    async def alist(self, query: Which | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        return await page(self._app, actions.asked(query), limit, cursor)

    def iterate(self, query: Which | None = None) -> Iterator[JobInfo]:
        """All of them, newest first, read page by page."""
        return blocking.each("app.jobs.iterate", self._pages(actions.asked(query)))

    def aiterate(self, query: Which | None = None) -> AsyncIterator[JobInfo]:
        return blocking.ItemStream(self._pages(actions.asked(query)))

    def count(self, query: Which | None = None) -> Counts:
        """Exact numbers by state: in one snapshot, but perhaps of many jobs by tag, parent or time."""
        return blocking.run("app.jobs.count", self.acount(query))

    async def acount(self, query: Which | None = None) -> Counts:
        return Counts(await (await self._app.client.store()).count(actions.asked(query)))

    # ---- do -----------------------------------------------------------------------------------

    def cancel(self, query: Which, reason: str = "") -> int:
        """Cancel live jobs: those that wait never start, those that run are told within 2 s."""
        return blocking.run("app.jobs.cancel", self.acancel(query, reason))

    async def acancel(self, query: Which, reason: str = "") -> int:
        return await self._act(Action.CANCEL, query, reason=checks.words(reason, "reason"))

    def retry(self, query: Which, *, rate: float | None = RATE) -> int:
        """Run ended jobs again, each once, in a new epoch; at most ``rate`` jobs a second, None for no limit.

        A job whose unique key is held by another is left as it is.
        """
        return blocking.run("app.jobs.retry", self.aretry(query, rate=rate))

    async def aretry(self, query: Which, *, rate: float | None = RATE) -> int:
        return await retry(self._app, actions.named(query), rate)

    def run_now(self, query: Which) -> int:
        """Make jobs ready that wait for their time or their next attempt."""
        return blocking.run("app.jobs.run_now", self.arun_now(query))

    async def arun_now(self, query: Which) -> int:
        named = actions.named(query)
        return await actions.act_once(await self._app.client.store(), Action.RUN_NOW, named)

    def delete(self, query: Which) -> int:
        """Remove jobs and all that is kept of them; those that run stay."""
        return blocking.run("app.jobs.delete", self.adelete(query))

    async def adelete(self, query: Which) -> int:
        return await self._act(Action.DELETE, query)

    def reprioritise(self, query: Which, priority: Priority) -> int:
        """Give waiting jobs another priority."""
        return blocking.run("app.jobs.reprioritise", self.areprioritise(query, priority))

    async def areprioritise(self, query: Which, priority: Priority) -> int:
        return await self._act(Action.REPRIORITISE, query, priority=checks.priority(priority, "priority"))

    # ---- private ------------------------------------------------------------------------------

    async def _act(self, action: Action, query: Which, *, reason: str = "", priority: int = 0) -> int:
        named = actions.named(query)
        return await actions.act(await self._app.client.store(), action, named, reason=reason, priority=priority)

    async def _pages(self, query: Query) -> AsyncGenerator[tuple[JobInfo, ...]]:
        async for rows in actions.pages(await self._app.client.store(), query):
            yield tuple(info_of(row) for row in rows)

    def _decoder(self, task: str) -> Any:
        """Looks for the task when there is a result to decode, not before."""

        def decode(data: bytes) -> Any:
            known = self._app.tasks.find(task)
            return loads(data) if known is None else known.spec().signature.decode_result(data)

        return decode


async def page(app: Mainspring, query: Query, limit: int, cursor: str | None) -> Page:
    """One page of a listing."""
    if type(limit) is not int or not 1 <= limit <= LARGEST_PAGE:
        raise InvalidOption("limit", limit, f"is a number from 1 to {LARGEST_PAGE:,}")
    if cursor is not None and (not isinstance(cursor, str) or not cursor):
        raise InvalidOption("cursor", cursor, "is not a cursor that a page has given")
    store = await app.client.store()
    jobs: list[JobInfo] = []
    while len(jobs) < limit:
        found = await store.find(query, limit=limit - len(jobs), cursor=cursor)
        jobs += [info_of(row) for row in found.jobs]
        cursor = found.cursor
        if cursor is None:
            break
    return Page(tuple(jobs), cursor)


async def retry(app: Mainspring, query: Query, rate: float | None) -> int:
    """Run ended jobs again, no faster than asked."""
    actions.check_rate(rate)
    return await actions.act_once(await app.client.store(), Action.RETRY, query, rate=rate)
