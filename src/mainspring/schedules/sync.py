"""Stores the schedules that the code declares, when a worker starts. Code owns what a schedule is, operators whether it
is enabled. Nothing is written if nothing has changed.

Whose code is newer is told by its version. Two that look like numbers are compared as numbers; of others the one that
was seen first in this store is older. Without a version, the code that started last decides. Programs that share a
store are told apart by their tasks, and by the packages of these: what another one declares is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from mainspring.schedules import plan as planning
from mainspring.schedules.plan import Definition, SchedulePlan, ScheduleStep, look_of
from mainspring.schedules.plan.versions import is_older
from mainspring.schedules.records import ScheduleDependency, ScheduleRow
from mainspring.schedules.service import exchange, forgetful
from mainspring.stores.base import Store
from mainspring.stores.records import Document
from mainspring.worker.records import WorkerRow

log = logging.getLogger("mainspring.schedules")

_TRIES = 50
_SEEN = "code-version"
_LATEST = 1 << 52


class CodeSchedules(NamedTuple):
    """What the code of a process declares."""

    definitions: Mapping[str, Definition]
    version: str = ""
    tasks: frozenset[str] = frozenset()
    """All tasks that it knows."""


class SyncResult(NamedTuple):
    """What came of it: names of schedules."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    """Not in this code, and disabled for it."""
    left: tuple[str, ...] = ()
    """Stored by newer code."""


async def sync(store: Store, code: CodeSchedules, *, force: bool = False) -> SyncResult:
    """Store what this code declares, unless newer code did; ``force``: whoever did."""
    rows = {row.name: row for row in await store.schedules()}
    if not code.definitions and not rows:
        return SyncResult()
    syncing = _Sync(store, code, await _ages(store, code.version), force=force)
    await syncing.look_up()
    for name in sorted(code.definitions):
        await syncing.declare(name, rows.get(name))
    for name, row in rows.items():
        if name not in code.definitions:
            await syncing.orphan(row)
    return SyncResult(*(tuple(found) for found in (syncing.added, syncing.changed, syncing.orphaned, syncing.left)))


async def link(store: Store, links: Sequence[ScheduleDependency]) -> None:
    """Say what parts wait for, if something else was said."""
    known = await known_links(store)
    changed = [each for each in links if set(each.after) != known.get(each.name, set())]
    if changed:
        await store.set_dependencies(changed)


async def known_links(store: Store) -> dict[str, set[str]]:
    """What parts wait for, by their names."""
    return {row.name: {name for name, _ in row.after} for row in await store.dependencies()}


class _Sync:
    """One code at one store."""

    def __init__(self, store: Store, code: CodeSchedules, ages: Mapping[str, int], *, force: bool) -> None:
        self._store = store
        self._code = code
        self._ages = ages
        self._force = force
        self._now = 0
        self._others = _Others()
        self._packages = {_package(task) for task in code.tasks}
        """Those that this program's tasks are in, or were when others declared its schedules."""
        self._known: dict[str, set[str]] = {}
        """What parts wait for."""
        self.added: list[str] = []
        self.changed: list[str] = []
        self.orphaned: list[str] = []
        self.left: list[str] = []

    async def look_up(self) -> None:
        """What is the same for all schedules: asked once, and again when others change something meanwhile."""
        self._known = await known_links(self._store)
        self._others = await _others(self._store, self._code)
        self._now = (await self._store.promote(0)).now

    async def declare(self, name: str, row: ScheduleRow | None) -> None:
        """Store one schedule as it stands in the code."""
        for tries in range(_TRIES):
            plan = None if row is None else plan_or_nothing(row)
            if row is not None and plan is None:
                self.left.append(name)
                return
            if plan is not None and plan.owner == "code":
                self._packages.add(_package(plan.definition.job.task))
            if plan is not None and self._is_newer(plan):
                self.left.append(name)
                newer = _said_by(plan)
                how = f"stays as version {newer} declares it" if plan.gone_in is None else f"is not in version {newer}"
                log.warning(
                    "schedule %r %s, which is newer than this code (%s): "
                    "app.schedules.declare() makes this code the newest", name, how, self._code.version,
                )  # fmt: skip
                if tries:  # newer code was faster, and we may have linked it meanwhile
                    await self._link(name, plan.definition)
                return
            wanted = self._code.definitions[name]
            await self._link(name, wanted)  # before a run of it is made
            if plan is not None:
                plan = await forgetful(self._store, name, plan, wanted.history)
            after = self._after(plan, wanted)
            if after == plan:
                return
            if await self._written(name, row, after):
                (self.added if plan is None else self.changed).append(name)
                if plan is not None and plan.owner == "user":
                    log.warning("schedule %r was put by somebody; the code declares it now, and owns it", name)
                return
            row = await self._read(name)
        log.error("schedule %r was changed by others all the while: it is not stored as this code declares it", name)

    async def orphan(self, row: ScheduleRow | None) -> None:
        """Disable one that this code does not have, if it is of this code or older, and not of another program's."""
        for _ in range(_TRIES):
            plan = None if row is None else plan_or_nothing(row)
            if row is None or plan is None or plan.owner != "code" or self._is_newer(plan):
                return
            if plan.gone_in is not None and plan.off in ("orphaned", "operator"):
                return
            task, others = plan.definition.job.task, self._others
            if _package(task) not in self._packages or task in others.strange:
                return
            if plan.version == self._code.version and task in others.tasks:
                return
            if await self._written(row.name, row, planning.orphaned(plan, self._now, self._code.version)):
                self.orphaned.append(row.name)
                log.warning("schedule %r is not in this code, and was disabled as orphaned", row.name)
                return
            row = await self._read(row.name)

    def _is_newer(self, plan: SchedulePlan) -> bool:
        """Whether newer code has stored it."""
        if self._force or plan.owner != "code" or plan.gone_in in self._others.versions:
            return False
        return is_older(self._code.version, _said_by(plan), self._ages)

    async def _link(self, name: str, wanted: Definition) -> None:
        if self._known.get(name, set()) != set(wanted.depends_on):
            await self._store.set_dependencies([ScheduleDependency(name, wanted.depends_on)])
            self._known[name] = set(wanted.depends_on)

    def _after(self, plan: SchedulePlan | None, wanted: Definition) -> SchedulePlan:
        version = self._code.version
        if plan is None:
            return planning.first(wanted, self._now, owner="code", version=version)
        wanted = replace(wanted, blocked_by=plan.definition.blocked_by)
        if (plan.definition, plan.owner, plan.version) == (wanted, "code", version) and plan.gone_in is None:
            return plan
        return planning.revised(plan, wanted, self._now, owner="code", version=version)

    async def _written(self, name: str, row: ScheduleRow | None, plan: SchedulePlan) -> bool:
        before = row or ScheduleRow(name=name, rev=0, look=None, doc=b"")
        said = await exchange(self._store, before, ScheduleStep(plan, look_of(plan, self._now)))
        self._now = said.now
        return said.ok

    async def _read(self, name: str) -> ScheduleRow | None:
        await self.look_up()
        rows = await self._store.schedules([name])
        return rows[0] if rows else None


def _package(task: str) -> str:
    package, dot, _ = task.partition(".")
    return package if dot else ""


def _said_by(plan: SchedulePlan) -> str:
    """The version of the code that decided last: it declares it, or does not have it any more."""
    return plan.version if plan.gone_in is None else plan.gone_in


def plan_or_nothing(row: ScheduleRow) -> SchedulePlan | None:
    """None for one that this version cannot read: it is left to those who can."""
    try:
        return planning.decode(row.doc)
    except ValueError as error:
        log.warning("schedule %r cannot be read here, a newer version may have stored it: %s", row.name, error)
        return None


async def _ages(store: Store, version: str) -> dict[str, int]:
    """When each version was seen first, this one too."""
    if not version:
        return {}
    known = {doc.name: _LATEST - doc.version for doc in await store.documents(_SEEN)}
    if version not in known:
        now = (await store.promote(0)).now
        stands = await store.put_document(
            Document(_SEEN, version, _LATEST - now, b"{}")
        )  # the earliest has the highest number
        known[version] = _LATEST - stands.version
    return known


class _Others(NamedTuple):
    """What living workers know that this code does not."""

    tasks: frozenset[str] = frozenset()
    strange: frozenset[str] = frozenset()
    """Tasks of other programs: of workers that have no task in common with this code."""
    versions: frozenset[str] = frozenset()
    """Those that only such workers are of: they say nothing of how new this code is."""


async def _others(store: Store, code: CodeSchedules) -> _Others:
    workers = [worker for worker in await store.workers() if not worker.lost]
    strangers = [worker for worker in workers if worker.tasks and code.tasks.isdisjoint(worker.tasks)]
    ours = [worker for worker in workers if not code.tasks.isdisjoint(worker.tasks)]
    return _Others(
        frozenset(task for worker in workers for task in worker.tasks) - code.tasks,
        frozenset(task for worker in strangers for task in worker.tasks),
        frozenset(map(_version_of, strangers)) - {code.version, *map(_version_of, ours)},
    )


def _version_of(worker: WorkerRow) -> str:
    said = msgspec.json.decode(worker.info) if worker.info else {}
    return str(said.get("version") or "") if isinstance(said, dict) else ""
