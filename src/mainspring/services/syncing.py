"""Stores the schedules that the code declares, when a worker starts. Code owns what a schedule is, operators whether it
is enabled. Nothing is written if nothing has changed.

Whose code is newer is told by its version. Two that look like numbers are compared as numbers; of others the one that
was seen first in this store is older. Without a version, the code that started last decides.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from mainspring import scheduling
from mainspring.records import Doc
from mainspring.schedule_rows import Link, ScheduleRow
from mainspring.scheduling import Definition, Plan, Step, look_of
from mainspring.scheduling.versions import is_older
from mainspring.services.scheduler import exchange, forgetful
from mainspring.stores.base import Store

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


class Synced(NamedTuple):
    """What came of it: names of schedules."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    orphaned: tuple[str, ...] = ()
    """Not in this code, and disabled for it."""
    left: tuple[str, ...] = ()
    """Stored by newer code."""


async def sync(store: Store, code: CodeSchedules, *, force: bool = False) -> Synced:
    """Store what this code declares, unless newer code did; ``force``: whoever did."""
    rows = {row.name: row for row in await store.schedules()}
    if not code.definitions and not rows:
        return Synced()
    syncing = _Syncing(store, code, await _ages(store, code.version), force=force)
    for name in sorted(code.definitions):
        await syncing.declare(name, rows.get(name))
    gone = [row for name, row in rows.items() if name not in code.definitions]
    elsewhere = await _known_elsewhere(store, code) if gone else frozenset()
    for row in gone:
        await syncing.orphan(row, elsewhere)
    return Synced(*(tuple(found) for found in (syncing.added, syncing.changed, syncing.orphaned, syncing.left)))


async def link(store: Store, links: Sequence[Link]) -> None:
    """Say what parts wait for, if something else was said."""
    known = {row.name: {name for name, _ in row.after} for row in await store.links()}
    changed = [each for each in links if set(each.after) != known.get(each.name, set())]
    if changed:
        await store.link(changed)


class _Syncing:
    """One code at one store."""

    def __init__(self, store: Store, code: CodeSchedules, ages: Mapping[str, int], *, force: bool) -> None:
        self._store = store
        self._code = code
        self._ages = ages
        self._force = force
        self.added: list[str] = []
        self.changed: list[str] = []
        self.orphaned: list[str] = []
        self.left: list[str] = []

    async def declare(self, name: str, row: ScheduleRow | None) -> None:
        """Store one schedule as it stands in the code."""
        for _ in range(_TRIES):
            plan = None if row is None else _plan_of(row)
            if row is not None and plan is None:
                self.left.append(name)
                return
            if plan is not None and self._is_newer(plan):
                self.left.append(name)
                log.warning(
                    "schedule %r stays as version %s declares it, which is newer than this code (%s): "
                    "app.schedules.declare() makes this code the newest", name, plan.version, self._code.version,
                )  # fmt: skip
                return
            wanted = self._code.definitions[name]
            await link(self._store, [Link(name, wanted.depends_on)])  # before a run of it is made
            now = (await self._store.promote(0)).now
            if plan is not None:
                plan = await forgetful(self._store, name, plan, wanted.history)
            after = self._after(plan, wanted, now)
            if after == plan:
                return
            if await self._written(name, row, after, now):
                (self.added if plan is None else self.changed).append(name)
                if plan is not None and plan.owner == "user":
                    log.warning("schedule %r was put by somebody; the code declares it now, and owns it", name)
                return
            row = await self._read(name)
        log.error("schedule %r was changed by others all the while: it is not stored as this code declares it", name)

    async def orphan(self, row: ScheduleRow | None, elsewhere: frozenset[str]) -> None:
        """Disable one that this code does not have, if it is of this code or older, and not of another program's."""
        for _ in range(_TRIES):
            plan = None if row is None else _plan_of(row)
            if row is None or plan is None or plan.owner != "code" or plan.off == "orphaned" or self._is_newer(plan):
                return
            task = plan.definition.job.task
            if plan.version == self._code.version and task not in self._code.tasks and task in elsewhere:
                return
            now = (await self._store.promote(0)).now
            if await self._written(row.name, row, scheduling.orphaned(plan, now, self._code.version), now):
                self.orphaned.append(row.name)
                log.warning("schedule %r is not in this code, and was disabled as orphaned", row.name)
                return
            row = await self._read(row.name)

    def _is_newer(self, plan: Plan) -> bool:
        """Whether newer code has stored it."""
        if self._force or plan.owner != "code":
            return False
        return is_older(self._code.version, plan.version, self._ages)

    def _after(self, plan: Plan | None, wanted: Definition, now: int) -> Plan:
        version = self._code.version
        if plan is None:
            return scheduling.first(wanted, now, owner="code", version=version)
        wanted = replace(wanted, blocked_by=plan.definition.blocked_by)
        if (plan.definition, plan.owner, plan.version) == (wanted, "code", version) and plan.off != "orphaned":
            return plan
        return scheduling.revised(plan, wanted, now, owner="code", version=version)

    async def _written(self, name: str, row: ScheduleRow | None, plan: Plan, now: int) -> bool:
        before = row or ScheduleRow(name=name, rev=0, look=None, doc=b"")
        return (await exchange(self._store, before, Step(plan, look_of(plan, now)))).ok

    async def _read(self, name: str) -> ScheduleRow | None:
        rows = await self._store.schedules([name])
        return rows[0] if rows else None


def _plan_of(row: ScheduleRow) -> Plan | None:
    """None for one that this version cannot read: it is left to those who can."""
    try:
        return scheduling.decode(row.doc)
    except ValueError as error:
        log.warning("schedule %r cannot be read here, a newer version may have stored it: %s", row.name, error)
        return None


async def _ages(store: Store, version: str) -> dict[str, int]:
    """When each version was seen first, this one too."""
    if not version:
        return {}
    known = {doc.name: _LATEST - doc.version for doc in await store.docs(_SEEN)}
    if version not in known:
        now = (await store.promote(0)).now
        stands = await store.put(Doc(_SEEN, version, _LATEST - now, b"{}"))  # the earliest has the highest number
        known[version] = _LATEST - stands.version
    return known


async def _known_elsewhere(store: Store, code: CodeSchedules) -> frozenset[str]:
    """Tasks that living workers know and this code does not."""
    workers = [worker for worker in await store.workers() if not worker.lost]
    return frozenset(task for worker in workers for task in worker.tasks) - code.tasks
