"""TestApp: the object that ``app.test()`` returns."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, TypedDict, cast

from mainspring.common.clock import MovableClock
from mainspring.common.duration import to_us
from mainspring.errors import InsideTest, InvalidOption, NotOpen, UnknownOption
from mainspring.flows.info import FlowInfo, read_flow
from mainspring.jobs.info import JobInfo, build_info
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobRow
from mainspring.stores.connect import StoreAddress, check_url
from mainspring.stores.door import Door
from mainspring.testing.app.client import PrivateClient
from mainspring.testing.app.drain import Drainer
from mainspring.testing.app.expect import Expected, describe
from mainspring.testing.app.flows import ExpectedFlow, is_own
from mainspring.testing.app.home import LoopHome, ThreadHome
from mainspring.testing.app.inline import Inline
from mainspring.testing.app.stage import Stage
from mainspring.testing.app.watched_store import Drained

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration
    from mainspring.flows.flow import Flow
    from mainspring.flows.manager import Flows
    from mainspring.jobs.dead import Dead
    from mainspring.jobs.manager import Jobs
    from mainspring.queues.manager import Queues
    from mainspring.schedules.manager import Schedules
    from mainspring.tasks.task import BaseTask
    from mainspring.worker.manager import Workers

PRIVATE = "sqlite://"


class TestOptions(TypedDict, total=False):
    """Keyword arguments of ``app.test``."""

    inline: bool
    """Run each job when it is enqueued, before the enqueue returns."""
    start: datetime | None
    """The first time of the clock; without it, now."""
    url: str | None
    """The URL of a store for this test; without it, a store in memory."""


class TestApp:
    """One app on a private store, for ``with`` or ``async with``; the block restores the app at its end.

    Jobs run when :meth:`drain` is called, by a real worker: on the loop of ``async with``, or in a thread.
    ``clock`` moves only when the test moves it.
    """

    __test__ = False  # else pytest takes it for a class of tests

    def __init__(self, app: Mainspring, **o: Unpack[TestOptions]) -> None:
        for name in o:
            if name not in TestOptions.__annotations__:
                raise UnknownOption("app.test", name, TestOptions.__annotations__)
        if not isinstance(inline := o.get("inline", False), bool):
            raise InvalidOption("inline", inline, "must be True or False", subject="app.test")
        url = o.get("url") or PRIVATE
        check_url(url)
        self.app = app
        self.clock = MovableClock(o.get("start"))
        self._inline = inline
        self._client = PrivateClient(
            StoreAddress(url=url, namespace=app.settings.namespace, durability="normal"),
            app.settings.full_wait,
            app.settings.enqueue_patience,
            self.clock,
        )
        self._stage = Stage(app)
        self._home: LoopHome | None = None
        self._drainer = Drainer(lambda: app.parts(roles="all"), self.clock)
        self._entered = False
        self._declared = 0
        """The stamp of the schedule declarations that are in the store."""

    # ---- use ----------------------------------------------------------------------------------

    def drain(self, limit: int | None = None, *, future: bool = False) -> Drained:
        """Run every ready job, and the jobs that these enqueue, until no job is ready or running.

        ``future`` moves the clock on to each next due time until no job is left. ``limit`` ends the drain after this
        number of attempts. Exceptions of jobs are stored with the jobs, not raised here.
        """
        return self._at_home.run("t.drain", self._drain(limit, future=future))

    async def adrain(self, limit: int | None = None, *, future: bool = False) -> Drained:
        return await self._at_home.arun(self._drain(limit, future=future))

    def advance(self, by: Duration) -> Drained:
        """Let time pass with a running worker: schedules fire and jobs run when they are due.

        ``clock.advance`` moves only the clock, as if no worker had run in this time.
        """
        return self._at_home.run("t.advance", self._advance(by))

    async def aadvance(self, by: Duration) -> Drained:
        return await self._at_home.arun(self._advance(by))

    def enqueued(self, task: BaseTask[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any) -> list[JobInfo]:
        """The enqueued jobs of this task with these arguments, in order of enqueue, in any state."""
        return self._at_home.run("t.enqueued", self._found(Expected(self.app, task, args, kwargs)))

    async def aenqueued(
        self, task: BaseTask[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any
    ) -> list[JobInfo]:
        return await self._at_home.arun(self._found(Expected(self.app, task, args, kwargs)))

    def assert_enqueued(self, task: BaseTask[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any) -> JobInfo:
        """The newest job of this task with these arguments; an AssertionError lists the enqueued jobs.

        Arguments that are not named may have any value.
        """
        return self._at_home.run("t.assert_enqueued", self._newest(Expected(self.app, task, args, kwargs)))

    async def aassert_enqueued(
        self, task: BaseTask[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any
    ) -> JobInfo:
        return await self._at_home.arun(self._newest(Expected(self.app, task, args, kwargs)))

    def assert_not_enqueued(self, task: BaseTask[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any) -> None:
        """Raise AssertionError if there is such a job."""
        self._at_home.run("t.assert_not_enqueued", self._none(Expected(self.app, task, args, kwargs)))

    async def aassert_not_enqueued(
        self, task: BaseTask[Any, Any] | str | None = None, /, *args: Any, **kwargs: Any
    ) -> None:
        await self._at_home.arun(self._none(Expected(self.app, task, args, kwargs)))

    def assert_flow(self, flow: Flow[Any]) -> FlowInfo:
        """The newest flow with the same jobs, arguments and dependencies; an AssertionError lists the enqueued flows.

        Options are not compared: read them from the jobs of the returned flow.
        """
        return self._at_home.run("t.assert_flow", self._flow(ExpectedFlow(flow)))

    async def aassert_flow(self, flow: Flow[Any]) -> FlowInfo:
        return await self._at_home.arun(self._flow(ExpectedFlow(flow)))

    # ---- point to -----------------------------------------------------------------------------

    @property
    def jobs(self) -> Jobs:
        """The jobs of the app, on the private store."""
        return self.app.jobs

    @property
    def dead(self) -> Dead:
        return self.app.dead

    @property
    def flows(self) -> Flows:
        return self.app.flows

    @property
    def queues(self) -> Queues:
        return self.app.queues

    @property
    def workers(self) -> Workers:
        return self.app.workers

    @property
    def schedules(self) -> Schedules:
        return self.app.schedules

    # ---- enter and leave ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        self._enter()
        self._home = ThreadHome()
        try:
            self._home.run("app.test().__enter__", self._declare())
        except BaseException:
            self._home.close()
            self._strike()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        home = self._at_home
        try:
            home.run("app.test().__exit__", self._leave())
        finally:
            home.close()
            self._strike()

    async def __aenter__(self) -> Self:
        self._enter()
        self._home = LoopHome(asyncio.get_running_loop())
        try:
            await self._declare()
        except BaseException:
            self._strike()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            await self._at_home.arun(self._leave())
        finally:
            self._strike()

    def __repr__(self) -> str:
        return f"<TestApp of {self.app!r} at {self.clock.now().isoformat()}>"

    # ---- private ------------------------------------------------------------------------------

    @property
    def _at_home(self) -> LoopHome:
        if self._home is None:
            raise NotOpen("this test is not open", hint="Write: with app.test() as t: ...")
        return self._home

    def _enter(self) -> None:
        if self._entered:
            raise InsideTest("this TestApp was used before", hint="Make a new one: app.test().")
        self._stage.set(self._client)
        self._entered = True
        if self._inline:
            self._client.inline = Inline(
                lambda: self._at_home, lambda: self._drain(None, future=False), lambda: self._drainer.busy
            )

    async def _leave(self) -> None:
        try:
            await self._drainer.close()
        finally:
            await self._client.close()

    def _strike(self) -> None:
        self._client.end()
        self._stage.strike()
        self._home = None

    async def _drain(self, limit: int | None, *, future: bool) -> Drained:
        if limit is not None and (type(limit) is not int or limit < 0):
            raise InvalidOption("limit", limit, "must be a whole number, 0 or more", subject="t.drain")
        self._check_not_in_a_job()
        await self._declare()
        return await self._drainer.drain(await self._door(), limit, future=future)

    async def _advance(self, by: Duration) -> Drained:
        until = self.clock.now_us() + to_us(by, what="advance")
        self._check_not_in_a_job()
        await self._declare()
        return await self._drainer.drain(await self._door(), None, until=until)

    async def _declare(self) -> None:
        """Store the schedules of the code, as a starting worker does; again after new declarations."""
        stamp = self.app.tasks.stamp
        if stamp == self._declared:
            return
        from mainspring.schedules.edit import declare

        await declare(self.app)
        self._declared = stamp

    def _check_not_in_a_job(self) -> None:
        from mainspring.worker.run.context import current

        if current.get(None) is not None:
            raise InsideTest("t.drain() was called by a job that t.drain() runs")

    async def _door(self) -> Door:
        return cast("Door", await self._client.store())

    async def _rows(self) -> list[JobRow]:
        """Every job of the private store, in the order of enqueueing."""
        store, cursor = await self._door(), None
        rows: list[JobRow] = []
        while True:
            found = await store.find(Query.everything(), limit=1000, cursor=cursor)
            rows += found.jobs
            cursor = found.cursor
            if cursor is None:
                return sorted(rows, key=lambda row: (row.enqueued, row.id))

    async def _own_rows(self) -> list[JobRow]:
        """The jobs of the user's tasks, in the order of enqueueing."""
        return [row for row in await self._rows() if is_own(row)]

    async def _flow(self, expected: ExpectedFlow) -> FlowInfo:
        rows = await self._rows()
        root = expected.find(rows)
        if root is None:
            raise AssertionError(expected.describe_missing(rows))
        return await read_flow(await self._door(), root)

    async def _found(self, expected: Expected) -> list[JobInfo]:
        rows = await self._own_rows()
        expected.check(self.app, rows)
        return [build_info(row) for row in rows if expected.fits(row)]

    async def _newest(self, expected: Expected) -> JobInfo:
        rows = await self._own_rows()
        fitting = [row for row in rows if expected.fits(row)]
        if not fitting:
            enqueued = describe([build_info(row) for row in rows])
            raise AssertionError(f"{expected.describe_missing(self.app)}\n{enqueued}")
        return build_info(fitting[-1])

    async def _none(self, expected: Expected) -> None:
        found = await self._found(expected)
        if found:
            raise AssertionError(f"{expected} was enqueued.\n{describe(found)}")
