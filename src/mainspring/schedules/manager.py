"""app.schedules: what runs by itself, for the whole fleet; made and changed at run time. Every verb has its a-twin."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from mainspring.client import blocking
from mainspring.common.clock import from_datetime, to_datetime
from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption
from mainspring.options import checks
from mainspring.options.checks import Part, ScheduleGroup, schedule_name
from mainspring.options.checks import part as schedule_part
from mainspring.schedules import changes, lookup, rules, trigger
from mainspring.schedules.info import RunInfo, ScheduleInfo, ScheduleStatus, run_info
from mainspring.schedules.sync import SyncResult

if TYPE_CHECKING:
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration
    from mainspring.jobs.job import Job
    from mainspring.options.typed import ScheduleOptions
    from mainspring.schedules.changes import Called

_MOST = 1_000

ScheduleInfos = list[ScheduleInfo]
RunInfos = list[RunInfo]
Moments = list[datetime]
RunJobs: TypeAlias = "list[Job[Any]]"


class Schedules(Reserved):
    """Schedules are stored, and every worker fires what is due, each occurrence once.

    Those of the code are stored by workers that start, and changed there; operators enable and disable them.
    A schedule may be named by the task that it stands on, if it is the only one.
    """

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- declare ------------------------------------------------------------------------------

    def group(self, name: str, *, max_concurrent: int) -> ScheduleGroup:
        """Declare a group: of the schedules with ``group=name`` so many run at once, by priority."""
        found = schedule_name(name, "name")
        size = checks.whole(1)(max_concurrent, "max_concurrent")
        return self._app.tasks.add_group(ScheduleGroup(found, size))

    # ---- ask ----------------------------------------------------------------------------------

    def list(self) -> ScheduleInfos:
        """Every schedule, by name: when it is due next, what became of its last run, what it waits for."""
        return blocking.run("app.schedules.list", self.alist())

    async def alist(self) -> ScheduleInfos:
        return [*(await self.astatus()).schedules]

    def get(self, name: Part) -> ScheduleInfo:
        """One schedule."""
        return blocking.run("app.schedules.get", self.aget(name))

    async def aget(self, name: Part) -> ScheduleInfo:
        return await lookup.info_of(await self._app.client.store(), self._name(name))

    def status(self) -> ScheduleStatus:
        """The whole set and its groups, in one call."""
        return blocking.run("app.schedules.status", self.astatus())

    async def astatus(self) -> ScheduleStatus:
        return await lookup.status(await self._app.client.store())

    def next(self, name: Part, n: int = 5) -> Moments:
        """The next ``n`` occurrences, by the rule alone: also of one that is disabled."""
        return blocking.run("app.schedules.next", self.anext(name, n))

    async def anext(self, name: Part, n: int = 5) -> Moments:
        checks.whole(0, _MOST)(n, "n")
        store = await self._app.client.store()
        plan, now = await lookup.plan_of(store, self._name(name))
        if plan.rule is None:
            return [] if plan.due is None or n == 0 else [to_datetime(plan.due)]
        return [to_datetime(at) for at in rules.upcoming(plan.rule, max(now, plan.watermark), n)]

    def history(self, name: Part, limit: int = 100, before: datetime | None = None) -> RunInfos:
        """What became of its occurrences before a moment, the latest first: runs, and those skipped or missed."""
        return blocking.run("app.schedules.history", self.ahistory(name, limit, before))

    async def ahistory(self, name: Part, limit: int = 100, before: datetime | None = None) -> RunInfos:
        checks.whole(0, 10_000)(limit, "limit")
        store, wanted = await self._app.client.store(), self._name(name)
        moment = None if before is None else from_datetime(before, what="before")
        runs = await store.schedule_runs(wanted, limit, moment) if limit else []
        if not runs:
            await lookup.plan_of(store, wanted)  # one that is not there is no one without runs
        return [run_info(run) for run in runs]

    # ---- do -----------------------------------------------------------------------------------

    def put(
        self, name: str, call: Called, *, cron: str | None = None, every: Duration | None = None,
        at: datetime | None = None, after: Duration | None = None, **o: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:  # fmt: skip
        """Store a schedule, in place of the one of that name: its runs, its history and whether it is enabled stay.

        ``call`` is ``task.s(...)``, or a task (or its name) without arguments. Those of the code are not replaced here.
        """
        return blocking.run("app.schedules.put", self.aput(name, call, cron=cron, every=every, at=at, after=after, **o))

    async def aput(
        self, name: str, call: Called, *, cron: str | None = None, every: Duration | None = None,
        at: datetime | None = None, after: Duration | None = None, **o: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:  # fmt: skip
        when = {"cron": cron, "every": every, "at": at, "after": after}
        await changes.put(self._app, schedule_name(name, "name"), call, when, dict(o))
        return await self.aget(name)

    def enable(self, name: Part) -> ScheduleInfo:
        """Let it run again, with its failures forgotten. What was due meanwhile is not made up for."""
        return blocking.run("app.schedules.enable", self.aenable(name))

    async def aenable(self, name: Part) -> ScheduleInfo:
        await changes.switch(self._app, self._name(name), on=True)
        return await self.aget(name)

    def disable(self, name: Part, reason: str = "") -> ScheduleInfo:
        """Fire it no more until it is enabled, whatever code starts; what runs goes on."""
        return blocking.run("app.schedules.disable", self.adisable(name, reason))

    async def adisable(self, name: Part, reason: str = "") -> ScheduleInfo:
        await changes.switch(self._app, self._name(name), on=False, reason=checks.words(reason, "reason"))
        return await self.aget(name)

    def delete(self, name: Part) -> None:
        """Remove a schedule with its history: one that was put, that is not in the newest code, or that no code here or
        in a living worker has; what runs goes on."""
        return blocking.run("app.schedules.delete", self.adelete(name))

    async def adelete(self, name: Part) -> None:
        await changes.delete(self._app, self._name(name))

    def trigger(self, name: Part, *, force: bool = False) -> Job[Any]:
        """Run it now, by all its rules: the job, which may wait for others first, or ``NotTriggered`` with the reason.

        ``force`` runs also one that is disabled, waits for no other schedule, and queues behind a run that goes on.
        """
        return blocking.run("app.schedules.trigger", self.atrigger(name, force=force))

    async def atrigger(self, name: Part, *, force: bool = False) -> Job[Any]:
        return await trigger.trigger(self._app, self._name(name), force=checks.flag(force, "force"))

    def backfill(self, name: Part, start: datetime, end: datetime) -> RunJobs:
        """Run the occurrences from ``start`` on and before ``end`` that are over and have no job, a hundred at most."""
        return blocking.run("app.schedules.backfill", self.abackfill(name, start, end))

    async def abackfill(self, name: Part, start: datetime, end: datetime) -> RunJobs:
        first, last = from_datetime(start, what="start"), from_datetime(end, what="end")
        if first >= last:
            why = f"is not later than start={start.isoformat()!r}"
            raise InvalidOption("end", end.isoformat(), why, subject="app.schedules.backfill")
        return await trigger.backfill(self._app, self._name(name), first, last)

    def declare(self) -> SyncResult:
        """Make the code of this process the newest, whatever its version: its schedules are stored as they stand here,
        and those that it does not have are disabled as orphaned. Workers that start do so if no newer code has."""
        return blocking.run("app.schedules.declare", self.adeclare())

    async def adeclare(self) -> SyncResult:
        return await changes.declare(self._app, force=True)

    # ---- private ------------------------------------------------------------------------------

    def _name(self, part: Part) -> str:
        if isinstance(found := schedule_part(part, "schedule"), str):
            return found
        self._app.import_included()
        return self._app.tasks.wiring.name(part, "schedule", "app.schedules")
