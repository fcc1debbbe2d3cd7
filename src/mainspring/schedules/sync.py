"""Stores the schedules that the code declares, when a worker starts.

The code decides what a schedule is; operators decide whether it is enabled. If nothing has changed, nothing is written.

The version of the code decides which code is newer. Two versions that look like numbers are compared as numbers; of
other versions, the one that this store saw first is older. Without a version, the code that started last decides.
Programs that share a store are distinguished by their names, if both have one (``Mainspring(name=)``), else by their
tasks and by the packages of these tasks: schedules that another program declares are left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from mainspring.common.clock import to_datetime
from mainspring.schedules import plan as planning
from mainspring.schedules.plan import Definition, SchedulePlan, ScheduleStep, next_look
from mainspring.schedules.plan.versions import is_older
from mainspring.schedules.records import ScheduleRow, ScheduleRun
from mainspring.schedules.rules import Once
from mainspring.schedules.swap import load_new_successes, mark_needed, remember_forgotten, swap_row
from mainspring.stores.base import Store
from mainspring.stores.records import Document
from mainspring.worker.records import WorkerRow

log = logging.getLogger("mainspring.schedules")

_TRIES = 50
_VERSIONS = "code-version"
"""The kind of the documents that hold when each version was seen first."""
_LATEST = 1 << 52
"""Document versions only grow. So a moment is stored as this number minus the moment: the earliest moment wins."""


class CodeSchedules(NamedTuple):
    """The schedules that the code of a process declares."""

    definitions: Mapping[str, Definition]
    version: str = ""
    tasks: frozenset[str] = frozenset()
    """All tasks of the code."""
    program: str = ""
    """The name that was given to the app; empty without one."""
    unused: tuple[str, ...] = ()
    """A sentence for each ``app.schedule(...)`` in the code that declares nothing."""


class SyncResult(NamedTuple):
    """The names of the schedules that a sync has changed or left."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    """Disabled, because this code does not declare them."""
    left: tuple[str, ...] = ()
    """Left as they are, because newer code has declared them."""
    over: tuple[str, ...] = ()
    """Added or changed, and without an occurrence: the time of ``at``, or ``end``, had passed."""


async def sync(store: Store, code: CodeSchedules, *, force: bool = False) -> SyncResult:
    """Store the schedules of this code, except those that newer code has declared; with ``force``, these too."""
    for sentence in code.unused:
        log.warning("%s", sentence)
    rows = {row.name: row for row in await store.schedules()}
    if not code.definitions and not rows:
        return SyncResult()
    syncing = _Sync(store, code, await _first_seen(store, code.version), force=force)
    await syncing.read_context()
    for name in sorted(code.definitions):
        await syncing.declare(name, rows.get(name))
    for name, row in rows.items():
        if name not in code.definitions:
            await syncing.orphan(row)
    lists = (syncing.added, syncing.changed, syncing.orphaned, syncing.left, syncing.over)
    return SyncResult(*(tuple(found) for found in lists))


class _Sync:
    """One sync of the schedules of this code."""

    def __init__(self, store: Store, code: CodeSchedules, first_seen: Mapping[str, int], *, force: bool) -> None:
        self._store = store
        self._code = code
        self._first_seen = first_seen
        self._force = force
        self._now = 0
        self._others = _OtherCode()
        self._packages = {_package(task) for task in code.tasks}
        """The packages of this program's tasks, today and when its schedules were stored."""
        self._needed = {name for each in code.definitions.values() for name in each.depends_on}
        self.added: list[str] = []
        self.changed: list[str] = []
        self.orphaned: list[str] = []
        self.left: list[str] = []
        self.over: list[str] = []

    async def read_context(self) -> None:
        """Read what is the same for all schedules: once, and again when another process has changed a schedule."""
        self._others = await _find_others(self._store, self._code)
        self._now = await self._store.now()

    async def declare(self, name: str, row: ScheduleRow | None) -> None:
        """Store one schedule as the code declares it."""
        for _ in range(_TRIES):
            plan = None if row is None else decode_plan(row)
            if row is not None and plan is None:
                self.left.append(name)
                return
            if plan is not None and self._is_foreign(plan) and not self._force:
                self.left.append(name)
                log.warning(
                    "schedule %r belongs to app %r; give the schedule of this app another name", name, plan.program
                )
                return
            if plan is not None and plan.owner == "code":
                self._packages.add(_package(plan.definition.job.task))
            if plan is not None and self._is_newer(plan):
                self.left.append(name)
                newer = _last_version(plan)
                how = f"stays as version {newer} declares it" if plan.gone_in is None else f"is not in version {newer}"
                log.warning(
                    "schedule %r %s, which is newer than this code (%s); "
                    "call app.schedules.declare() to store it as this code declares it", name, how, self._code.version,
                )  # fmt: skip
                return
            wanted = self._code.definitions[name]
            if plan is not None:
                plan = await remember_forgotten(self._store, name, plan, wanted.history)
            after = await self._merge(name, plan, wanted)
            if after == plan:
                return
            passed = await self._find_passed(name, plan, after)
            if await self._write(name, row, after, passed or ()):
                (self.added if plan is None else self.changed).append(name)
                if passed is not None:
                    self.over.append(name)
                    log.warning("%s", describe_over(name, after))
                if plan is not None and plan.owner == "user":
                    log.warning(
                        "schedule %r was created at run time; the code declares it now, and owns it from now on", name
                    )
                return
            row = await self._read(name)
        log.error("other processes changed schedule %r all the time; it is not stored as this code declares it", name)

    async def orphan(self, row: ScheduleRow | None) -> None:
        """Disable a schedule that this code does not declare, if this program declared it before."""
        for _ in range(_TRIES):
            plan = None if row is None else decode_plan(row)
            if row is None or plan is None or plan.owner != "code" or self._is_newer(plan):
                return
            if plan.gone_in is not None and plan.off in ("orphaned", "operator"):
                return
            if self._is_foreign(plan):
                return
            task, others = plan.definition.job.task, self._others
            named = bool(plan.program) and plan.program == self._code.program
            if not named and (_package(task) not in self._packages or task in others.foreign_tasks):
                return
            if plan.version == self._code.version and task in others.tasks:
                return
            if await self._write(row.name, row, planning.mark_orphaned(plan, self._now, self._code.version)):
                self.orphaned.append(row.name)
                log.warning("this code does not declare schedule %r; it was disabled as orphaned", row.name)
                return
            row = await self._read(row.name)

    def _is_foreign(self, plan: SchedulePlan) -> bool:
        """Whether an app with another name has stored it."""
        return plan.owner == "code" and bool(plan.program and self._code.program != plan.program and self._code.program)

    def _is_newer(self, plan: SchedulePlan) -> bool:
        """Whether newer code has stored it."""
        if self._force or plan.owner != "code" or plan.gone_in in self._others.foreign_versions:
            return False
        return is_older(self._code.version, _last_version(plan), self._first_seen)

    async def _merge(self, name: str, plan: SchedulePlan | None, wanted: Definition) -> SchedulePlan:
        version, program = self._code.version, self._code.program
        if plan is not None and name in self._needed and not plan.needed:
            plan = await mark_needed(self._store, name, plan)
        needed = name in self._needed or (plan is not None and plan.needed)
        successes = await load_new_successes(self._store, plan, wanted)
        if plan is None:
            made = planning.new_plan(wanted, self._now, successes, owner="code", version=version)
            return replace(made, program=program, needed=needed)
        wanted = replace(wanted, blocked_by=plan.definition.blocked_by)
        found = (plan.definition, plan.owner, plan.version, plan.program, plan.needed)
        if found == (wanted, "code", version, program, needed) and plan.gone_in is None:
            return plan
        revised = planning.revise(plan, wanted, self._now, successes, owner="code", version=version)
        return replace(revised, program=program, needed=needed)

    async def _find_passed(
        self, name: str, before: SchedulePlan | None, after: SchedulePlan
    ) -> tuple[ScheduleRun, ...] | None:
        """The record of the occurrence that a new rule has missed; () if a window has ended; None if neither is so."""
        known = before is not None and before.definition.rule == after.definition.rule
        if known or not planning.is_over(after):
            return None
        missed = planning.record_passed(after, self._now)
        if missed and before is not None:
            runs = await self._store.schedule_runs(name, 1, missed[0].at + 1)
            if runs and runs[0].at == missed[0].at:
                return None  # it ran under an earlier rule
        return missed

    async def _write(
        self, name: str, row: ScheduleRow | None, plan: SchedulePlan, runs: tuple[ScheduleRun, ...] = ()
    ) -> bool:
        before = row or ScheduleRow(name=name, rev=0, look=None, doc=b"")
        result = await swap_row(self._store, before, ScheduleStep(plan, next_look(plan, self._now), runs))
        self._now = result.now
        return result.ok

    async def _read(self, name: str) -> ScheduleRow | None:
        await self.read_context()
        rows = await self._store.schedules([name])
        return rows[0] if rows else None


def describe_over(name: str, plan: SchedulePlan) -> str:
    """The warning for a schedule that is stored without an occurrence."""
    window = plan.rule
    if window is not None and isinstance(window.rule, Once) and window.rule.moment is not None:
        why = f"its time, {to_datetime(window.rule.moment)}, had passed when it was stored"
    else:
        why = "its end= had passed when it was stored"
    return f"schedule {name!r} will not run: {why}; app.schedules.trigger({name!r}) runs it now"


def _package(task: str) -> str:
    package, dot, _ = task.partition(".")
    return package if dot else ""


def _last_version(plan: SchedulePlan) -> str:
    """The version of the code that stored it last: it declares the schedule, or does not declare it any more."""
    return plan.version if plan.gone_in is None else plan.gone_in


def decode_plan(row: ScheduleRow) -> SchedulePlan | None:
    """The plan of a schedule; None, with a warning in the log, if this version cannot read it."""
    try:
        return planning.decode(row.doc)
    except ValueError as error:
        log.warning("this version cannot read schedule %r; a newer version may have stored it: %s", row.name, error)
        return None


async def _first_seen(store: Store, version: str) -> dict[str, int]:
    """When each version was seen first, by this store. Stores the moment for this version."""
    if not version:
        return {}
    known = {doc.name: _LATEST - doc.version for doc in await store.documents(_VERSIONS)}
    if version not in known:
        now = await store.now()
        stored = await store.put_document(Document(_VERSIONS, version, _LATEST - now, b"{}"))
        known[version] = _LATEST - stored.version
    return known


class _OtherCode(NamedTuple):
    """Tasks and versions of live workers that this code does not have."""

    tasks: frozenset[str] = frozenset()
    foreign_tasks: frozenset[str] = frozenset()
    """Tasks of other programs: of workers that have no task in common with this code."""
    foreign_versions: frozenset[str] = frozenset()
    """Versions that only such workers have: they do not show how new this code is."""


async def _find_others(store: Store, code: CodeSchedules) -> _OtherCode:
    workers = [worker for worker in await store.workers() if not worker.lost]
    foreign = [worker for worker in workers if worker.tasks and code.tasks.isdisjoint(worker.tasks)]
    ours = [worker for worker in workers if not code.tasks.isdisjoint(worker.tasks)]
    return _OtherCode(
        frozenset(task for worker in workers for task in worker.tasks) - code.tasks,
        frozenset(task for worker in foreign for task in worker.tasks),
        frozenset(map(_version_of, foreign)) - {code.version, *map(_version_of, ours)},
    )


def _version_of(worker: WorkerRow) -> str:
    info = msgspec.json.decode(worker.info) if worker.info else {}
    return str(info.get("version") or "") if isinstance(info, dict) else ""
