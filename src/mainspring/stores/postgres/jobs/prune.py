"""Retention: ended jobs are deleted row by row, and whole days of history by dropping their partition.

A dropped partition leaves nothing to vacuum. Partitions are made a week ahead, and old ones are emptied in steps before
they are dropped.
"""

from __future__ import annotations

import time

import msgspec
from psycopg import errors as pg

from mainspring.jobs.records import Retention
from mainspring.stores.postgres.driver.constants import DAYS_AHEAD
from mainspring.stores.postgres.driver.database import Database

_PRUNE = """
select deleted, woken from {schema}.prune_v1(
    %(limit)s::integer, %(now)s::bigint, %(keep)s::bigint, %(keep_count)s::integer, %(keep_at_least)s::bigint,
    %(keep_dead)s::bigint, %(keep_dead_count)s::integer, %(keep_workers)s::bigint
)
"""
_MAKE = "select {schema}.make_partitions_v1({schema}.now_v1(null), %(days)s)"
_FIND_OLD = """
select {schema}.find_old_partition_v1({schema}.now_v1(null) - %(keep)s::bigint, null),
    {schema}.now_v1(null) - %(keep)s::bigint
"""
_SWEEP = "select n, last from {schema}.sweep_partition_v1(%(name)s, %(after)s, %(limit)s)"
_DROP = "select {schema}.drop_partition_v1(%(name)s, %(before)s::bigint)"
_SLICE = 5_000
"""Jobs of a partition that one step deletes."""
_PERIOD = 3600.0
"""Seconds between two looks for days to make and to drop."""
_SWEEP_TIME = 2.0
"""Seconds that one prune call spends on emptying a partition."""


async def prune(db: Database, partitions: PartitionKeeper, retention: Retention, limit: int) -> int:
    """A day past its retention is dropped whole, however many jobs it has. With a test's clock all jobs go one by
    one."""
    dropped = 0 if db.clock is not None else await partitions.drop_old(retention)
    if dropped is None:
        return limit
    params = {**msgspec.structs.asdict(retention), "limit": limit, "now": db.now()}
    ((deleted, woken),) = await db.rows(_PRUNE, params)
    await db.wake(woken)
    return dropped + int(deleted)


class PartitionKeeper:
    """What one client does for the partitions, beside its pruning: now and then, and in short steps."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._next_look = 0.0
        self._sweeping: str | None = None
        self._after = b""
        self._deleted = 0

    async def drop_old(self, retention: Retention) -> int | None:
        """Make days ahead, and drop a day past its retention: returns how many jobs it had.

        None: there is more to do, call again.
        """
        if self._sweeping is None and time.monotonic() < self._next_look:
            return 0
        if self._sweeping is None:
            await self.make()
        return await self._drop_next(max(retention.keep, retention.keep_at_least))

    async def make(self) -> None:
        """Make the days from today on."""
        await self._db.rows(_MAKE, {"days": DAYS_AHEAD})

    async def _drop_next(self, keep: int) -> int | None:
        ((name, before),) = await self._db.rows(_FIND_OLD, {"keep": keep}, prepare=False)
        if name is None:
            self._rest()
            return 0
        if name != self._sweeping:
            self._sweeping, self._after = name, b""
        if not await self._sweep(name):
            return None
        deleted, self._deleted, self._after = self._deleted, 0, b""
        try:
            await self._db.rows(_DROP, {"name": name, "before": before}, prepare=False)
        except pg.LockNotAvailable:
            return deleted  # a transaction reads the table: it is empty, and is dropped next time
        self._sweeping = None  # there may be another old day
        return deleted

    async def _sweep(self, name: str) -> bool:
        """Delete jobs of a day; returns whether the day is empty."""
        until = time.monotonic() + _SWEEP_TIME
        while time.monotonic() < until:
            params = {"name": name, "after": self._after, "limit": _SLICE}
            ((n, last),) = await self._db.rows(_SWEEP, params, prepare=False)
            self._deleted += n
            if n < _SLICE:
                return True
            self._after = last
        return False

    def _rest(self) -> None:
        self._sweeping = None
        self._next_look = time.monotonic() + _PERIOD
