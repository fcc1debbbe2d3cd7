"""app.jobs: find, count and change jobs. Every method ``x`` has an async version ``ax``."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, overload
from uuid import UUID

from mainspring.client import blocking
from mainspring.codec import loads
from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption, JobNotFound
from mainspring.jobs import actions
from mainspring.jobs.actions import Which
from mainspring.jobs.info import JobInfo, build_info
from mainspring.jobs.job import Job
from mainspring.jobs.known_names import warn_of_names
from mainspring.jobs.query import Query
from mainspring.options import checks
from mainspring.states import LIVE, Action, State

if TYPE_CHECKING:
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.jobs.query import AllConditions, Conditions
    from mainspring.jobs.why import Why
    from mainspring.options.typed import Priority

MAX_PAGE = 10_000
RATE = 500.0
"""Jobs per second that ``retry`` makes ready by default."""


class Page(Sequence[JobInfo]):
    """One page of a listing: a sequence of jobs, newest first, without their attempts."""

    __slots__ = ("cursor", "jobs")

    def __init__(self, jobs: tuple[JobInfo, ...], cursor: str | None = None) -> None:
        self.jobs = jobs
        """The jobs as a tuple."""
        self.cursor = cursor
        """Pass it to the next call to get the next page; None on the last page."""

    @overload
    def __getitem__(self, index: int) -> JobInfo: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[JobInfo, ...]: ...
    def __getitem__(self, index: int | slice) -> JobInfo | tuple[JobInfo, ...]:
        return self.jobs[index]

    def __len__(self) -> int:
        return len(self.jobs)

    def __repr__(self) -> str:
        few = ", ".join(f"{job.task} {job.id} {job.state}" for job in self.jobs[:3])
        more = f", and {len(self.jobs) - 3} more" if len(self.jobs) > 3 else ""
        after = "" if self.cursor is None else "; more with cursor="
        return f"<Page of {len(self.jobs)}: {few}{more}{after}>" if self.jobs else "<Page: no jobs>"


class Counts(dict[State, int]):
    """The number of jobs in each state. Every state is a key: ``counts["ready"]``."""

    def __getitem__(self, state: State | str, /) -> int:
        return super().__getitem__(State(state))

    @property
    def total(self) -> int:
        return sum(self.values())

    @property
    def live(self) -> int:
        """The number of jobs that have not ended."""
        return sum(count for state, count in self.items() if state in LIVE)


class Jobs(Reserved):
    """The jobs of the store. Conditions, a ``Query``, a ``Job`` or an id select jobs.

    The conditions are keywords: ``app.jobs.list(state="dead", queue="email", since="1h")``; ``Query.where`` takes the
    same. A method that only reads returns every job without them. A method that changes jobs refuses that: pass
    ``Query.everything()`` for every job. It changes the jobs whose state allows it, and returns their number. It raises
    ``NotFound`` for a task or a queue that neither the code nor the store knows.
    """

    _PATH = "app.jobs"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- read ---------------------------------------------------------------------------------

    async def aget(self, id: UUID | str) -> Job[Any]:
        """Return the handle of a stored job. Its result is decoded by its task, if this process knows the task."""
        query = Query.of(id)
        found = await (await self._app.client.store()).find(query, limit=1)
        if not found.jobs:
            raise JobNotFound(id)
        row = found.jobs[0]
        return Job(UUID(bytes=row.id), row.task, self._app.client, self._decoder(row.task), created=False)

    get = blocking.twin(aget)

    async def awhy(self, id: UUID | str) -> Why:
        """Return what prevents this job from running now."""
        return await (await self.aget(id)).awhy()

    why = blocking.twin(awhy)

    async def alist(
        self, query: Which | None = None, *, limit: int = 100, cursor: str | None = None,
        **where: Unpack[AllConditions],
    ) -> Page:  # fmt: skip
        """Return up to ``limit`` jobs, newest first. Pass ``cursor`` of a page to get the next page.

        A job that matches while you read all pages is on exactly one of them.
        """
        named = await actions.query_to_read(self._app, "app.jobs.list", query, where)
        return await load_page(self._app, named, limit, cursor)

    list = blocking.twin(alist)

    def aiterate(self, query: Which | None = None, **where: Unpack[AllConditions]) -> AsyncIterator[JobInfo]:
        """Iterate over all jobs of the query, newest first. They are read page by page."""
        actions.check_conditions("app.jobs.iterate", query, where)
        return blocking.ItemStream(self._pages(query, where))

    iterate = blocking.iterator_twin(aiterate)

    async def acount(self, query: Which | None = None, **where: Unpack[AllConditions]) -> Counts:
        """Return the exact number of jobs in each state, from one snapshot.

        A query by tag, parent or time may have to read many jobs.
        """
        named = await actions.query_to_read(self._app, "app.jobs.count", query, where)
        counts = Counts(await (await self._app.client.store()).count(named))
        if not counts.total:
            await warn_of_names(self._app, named)
        return counts

    count = blocking.twin(acount)

    # ---- change -------------------------------------------------------------------------------

    async def acancel(self, query: Which | None = None, reason: str = "", **where: Unpack[Conditions]) -> int:
        """Cancel live jobs. A waiting job never starts; the worker of a running job gets the order within 2 s."""
        return await self._act(Action.CANCEL, query, where, reason=checks.words(reason, "reason"))

    cancel = blocking.twin(acancel)

    async def aretry(
        self, query: Which | None = None, *, rate: float | None = RATE, **where: Unpack[AllConditions]
    ) -> int:
        """Run ended jobs again, each once, in a new epoch; at most ``rate`` jobs per second, None for no limit.

        A job whose unique key another job holds is not changed.
        """
        named = await actions.query_to_change(self._app, "app.jobs.retry", query, where)
        return await retry(self._app, named, rate)

    retry = blocking.twin(aretry)

    async def arun_now(self, query: Which | None = None, **where: Unpack[AllConditions]) -> int:
        """Make jobs ready that wait for their time or for their next attempt."""
        named = await actions.query_to_change(self._app, "app.jobs.run_now", query, where)
        return await actions.act_once(await self._app.client.store(), Action.RUN_NOW, named)

    run_now = blocking.twin(arun_now)

    async def adelete(self, query: Which | None = None, **where: Unpack[AllConditions]) -> int:
        """Delete jobs and everything that is stored about them. Running jobs are not deleted."""
        return await self._act(Action.DELETE, query, where)

    delete = blocking.twin(adelete)

    async def areprioritise(
        self, query: Which | None = None, priority: Priority | None = None, **where: Unpack[AllConditions]
    ) -> int:
        """Change the priority of waiting jobs. ``priority`` must be given."""
        return await self._act(Action.REPRIORITISE, query, where, priority=checks.priority(priority, "priority"))

    reprioritise = blocking.twin(areprioritise)

    # ---- private ------------------------------------------------------------------------------

    async def _act(
        self, action: Action, query: Which | None, where: Mapping[str, Any], *, reason: str = "", priority: int = 0
    ) -> int:
        named = await actions.query_to_change(self._app, f"app.jobs.{action}", query, where)
        return await actions.act(await self._app.client.store(), action, named, reason=reason, priority=priority)

    async def _pages(self, query: Which | None, where: Mapping[str, Any]) -> AsyncGenerator[tuple[JobInfo, ...]]:
        named = await actions.query_to_read(self._app, "app.jobs.iterate", query, where)
        async for rows in actions.pages(await self._app.client.store(), named):
            yield tuple(build_info(row) for row in rows)

    def _decoder(self, task: str) -> Any:
        """Return a decoder that looks up the task when it decodes a result, not earlier."""

        def decode(data: bytes) -> Any:
            known = self._app.tasks.find(task)
            return loads(data) if known is None else known.spec().signature.decode_result(data)

        return decode


async def load_page(app: Mainspring, query: Query, limit: int, cursor: str | None) -> Page:
    """Load one page of a listing."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidOption("limit", limit, f"must be a whole number from 1 to {MAX_PAGE:,}")
    if cursor is not None and (not isinstance(cursor, str) or not cursor):
        raise InvalidOption("cursor", cursor, "is not a cursor of a page", hint="Pass page.cursor.")
    store = await app.client.store()
    jobs: list[JobInfo] = []
    first = cursor is None
    while len(jobs) < limit:
        found = await store.find(query, limit=limit - len(jobs), cursor=cursor)
        jobs += [build_info(row) for row in found.jobs]
        cursor = found.cursor
        if cursor is None:
            break
    if first and not jobs:
        await warn_of_names(app, query)
    return Page(tuple(jobs), cursor)


async def retry(app: Mainspring, query: Query, rate: float | None) -> int:
    """Run ended jobs again, at most ``rate`` jobs per second."""
    actions.check_rate(rate)
    done = await actions.act_once(await app.client.store(), Action.RETRY, query, rate=rate)
    if not done:
        await warn_of_names(app, query)
    return done
