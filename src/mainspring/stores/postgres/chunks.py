"""History by the day: days are made ahead, and old ones are emptied in steps and dropped: nothing is left to vacuum."""

from __future__ import annotations

import time
from typing import Final

from psycopg import errors as pg

from mainspring.jobs.records import Retention
from mainspring.stores.postgres.session import Sessions
from mainspring.stores.postgres.statements import fill

AHEAD: Final = 7
_MAKE = "select {schema}.make_chunks_v1({schema}.now_v1(null), %(days)s)"
_OLD = """
select {schema}.old_chunk_v1({schema}.now_v1(null) - %(keep)s::bigint, null), {schema}.now_v1(null) - %(keep)s::bigint
"""
_SWEEP = "select n, last from {schema}.sweep_chunk_v1(%(name)s, %(after)s, %(limit)s)"
_DROP = "select {schema}.drop_chunk_v1(%(name)s, %(before)s::bigint)"
_SLICE = 5_000
_LOOK = 3600.0
_WORK = 2.0


class Chunks:
    """What one client does for them, beside its pruning: now and then, and in short steps."""

    def __init__(self, sessions: Sessions, schema: str) -> None:
        self._sessions = sessions
        self._schema = schema
        self._look_at = 0.0
        self._sweeping: str | None = None
        self._after = b""
        self._gone = 0

    async def keep_up(self, retention: Retention) -> int | None:
        """Make days ahead, and let go of one that is past its retention: how many jobs went with it.
        None: there is more to do, come again."""
        if self._sweeping is None and time.monotonic() < self._look_at:
            return 0
        if self._sweeping is None:
            await self.make()
        return await self._let_go(max(retention.keep, retention.keep_at_least))

    async def make(self) -> None:
        """The days from today on."""
        await self._sessions.rows(fill(_MAKE, self._schema), {"days": AHEAD})

    async def _let_go(self, keep: int) -> int | None:
        ((name, before),) = await self._sessions.rows(fill(_OLD, self._schema), {"keep": keep}, prepare=False)
        if name is None:
            self._rest()
            return 0
        if name != self._sweeping:
            self._sweeping, self._after = name, b""
        if not await self._sweep(name):
            return None
        gone, self._gone, self._after = self._gone, 0, b""
        try:
            asked = {"name": name, "before": before}
            await self._sessions.rows(fill(_DROP, self._schema), asked, prepare=False)
        except pg.LockNotAvailable:
            return gone  # somebody reads there: its jobs are gone, the empty day goes next time
        self._sweeping = None  # there may be another one
        return gone

    async def _sweep(self, name: str) -> bool:
        """Whether the day is empty."""
        until = time.monotonic() + _WORK
        while time.monotonic() < until:
            asked = {"name": name, "after": self._after, "limit": _SLICE}
            ((n, last),) = await self._sessions.rows(fill(_SWEEP, self._schema), asked, prepare=False)
            self._gone += n
            if n < _SLICE:
                return True
            self._after = last
        return False

    def _rest(self) -> None:
        self._sweeping = None
        self._look_at = time.monotonic() + _LOOK
