"""app.schedules: list, change and run schedules at run time. Every method ``x`` has an async version ``ax``."""

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
from mainspring.schedules import edit, info, manual_runs, rules
from mainspring.schedules.info import RunInfo, ScheduleInfo, ScheduleStatus
from mainspring.schedules.sync import SyncResult

if TYPE_CHECKING:
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration
    from mainspring.jobs.job import Job
    from mainspring.options.typed import ScheduleOptions
    from mainspring.schedules.edit import Called

_MAX_NEXT = 1_000
_MAX_HISTORY = 10_000

ScheduleInfos = list[ScheduleInfo]
RunInfos = list[RunInfo]
Moments = list[datetime]
RunJobs: TypeAlias = "list[Job[Any]]"


class Schedules(Reserved):
    """The stored schedules of the whole fleet.

    A worker that starts stores the schedules that its code declares. Change such a schedule in the code; here it can
    be enabled, disabled, triggered and backfilled. ``put`` stores further schedules at run time. A schedule is named
    by its name, or by its task if the task has exactly one schedule.
    """

    _PATH = "app.schedules"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    # ---- declare ------------------------------------------------------------------------------

    def group(self, name: str, *, max_concurrent: int) -> ScheduleGroup:
        """Declare a group: at most ``max_concurrent`` runs of schedules with ``group=name`` run at the same time."""
        found = schedule_name(name, "name")
        size = checks.whole(1)(max_concurrent, "max_concurrent")
        return self._app.tasks.add_group(ScheduleGroup(found, size))

    # ---- read ---------------------------------------------------------------------------------

    async def alist(self) -> ScheduleInfos:
        """Return every schedule, by name: its next occurrence, its last run, and what it waits for."""
        return [*(await self.astatus()).schedules]

    list = blocking.twin(alist)

    async def aget(self, name: Part) -> ScheduleInfo:
        """Return one schedule; ``InvalidOption`` if it is not in the store."""
        return await info.load_info(await self._app.client.store(), self._name(name))

    get = blocking.twin(aget)

    async def astatus(self) -> ScheduleStatus:
        """Return every schedule and every group, in one call."""
        return await info.load_status(await self._app.client.store())

    status = blocking.twin(astatus)

    async def anext(self, name: Part, n: int = 5) -> Moments:
        """Return the next ``n`` occurrences by the rule, also for a disabled schedule; at most 1,000."""
        checks.whole(0, _MAX_NEXT)(n, "n")
        store = await self._app.client.store()
        plan, now = await info.load_plan(store, self._name(name))
        if plan.rule is None:
            return [] if plan.due is None or n == 0 else [to_datetime(plan.due)]
        return [to_datetime(at) for at in rules.next_occurrences(plan.rule, max(now, plan.watermark), n)]

    next = blocking.twin(anext)  # noqa: A003 - the method above is meant

    async def ahistory(self, name: Part, limit: int = 100, before: datetime | None = None) -> RunInfos:
        """Return the records of past occurrences, latest first: runs, and occurrences that were skipped or missed.

        ``before`` returns only occurrences before this time. ``limit`` is at most 10,000.
        """
        checks.whole(0, _MAX_HISTORY)(limit, "limit")
        store, wanted = await self._app.client.store(), self._name(name)
        moment = None if before is None else from_datetime(before, what="before")
        runs = await store.schedule_runs(wanted, limit, moment) if limit else []
        if not runs:
            await info.load_plan(store, wanted)  # raises if the schedule does not exist
        return [info.build_run_info(run) for run in runs]

    history = blocking.twin(ahistory)

    # ---- change -------------------------------------------------------------------------------

    async def aput(
        self, name: str, call: Called, *, cron: str | None = None, every: Duration | None = None,
        at: datetime | None = None, after: Duration | None = None, **o: Unpack[ScheduleOptions],
    ) -> ScheduleInfo:  # fmt: skip
        """Store a schedule, and replace the schedule of that name. Its runs, history and enabled state stay.

        ``call`` is ``task.s(...)``, or a task (or the name of a task) without arguments. A schedule that the code
        declares cannot be replaced here.
        """
        when = {"cron": cron, "every": every, "at": at, "after": after}
        await edit.put(self._app, schedule_name(name, "name"), call, when, dict(o))
        return await self.aget(name)

    put = blocking.twin(aput)

    async def aenable(self, name: Part) -> ScheduleInfo:
        """Enable a schedule and reset its failure count. Occurrences from the disabled time do not run."""
        await edit.switch(self._app, self._name(name), on=True)
        return await self.aget(name)

    enable = blocking.twin(aenable)

    async def adisable(self, name: Part, reason: str = "") -> ScheduleInfo:
        """Disable a schedule until it is enabled, also when new code starts. Runs that have started continue."""
        await edit.switch(self._app, self._name(name), on=False, reason=checks.words(reason, "reason"))
        return await self.aget(name)

    disable = blocking.twin(adisable)

    async def adelete(self, name: Part) -> None:
        """Delete a schedule and its history. Runs that have started continue.

        The schedule must be one that ``put`` stored, that the newest code does not declare, or that neither this
        process nor a live worker has in its code.
        """
        await edit.delete(self._app, self._name(name))

    delete = blocking.twin(adelete)

    async def atrigger(self, name: Part, *, force: bool = False) -> Job[Any]:
        """Run a schedule now and return the job. ``NotTriggered`` if the rules of the schedule do not allow a run.

        ``force`` also runs a schedule that is disabled or whose ``depends_on`` has not succeeded, and queues behind a
        run that has not ended.
        """
        return await manual_runs.trigger(self._app, self._name(name), force=checks.flag(force, "force"))

    trigger = blocking.twin(atrigger)

    async def abackfill(self, name: Part, start: datetime, end: datetime) -> RunJobs:
        """Run the past occurrences in [start, end) that have no job, and return the jobs; at most 100.

        ``NotTriggered`` if ``depends_on`` has not succeeded since the last start: all runs of a backfill are one start.
        """
        first, last = from_datetime(start, what="start"), from_datetime(end, what="end")
        if first >= last:
            why = f"is not later than start={start.isoformat()!r}"
            raise InvalidOption("end", end.isoformat(), why, subject="app.schedules.backfill")
        return await manual_runs.backfill(self._app, self._name(name), first, last)

    backfill = blocking.twin(abackfill)

    async def adeclare(self) -> SyncResult:
        """Store the schedules of this process's code as the newest code, whatever its version.

        Schedules that this code does not declare are disabled as orphaned. A worker that starts does the same, but
        only if no newer code has stored its schedules.
        """
        return await edit.declare(self._app, force=True)

    declare = blocking.twin(adeclare)

    # ---- private ------------------------------------------------------------------------------

    def _name(self, part: Part) -> str:
        if isinstance(found := schedule_part(part, "schedule"), str):
            return found
        self._app.import_included()
        return self._app.tasks.wiring.name(part, "schedule", "app.schedules")
