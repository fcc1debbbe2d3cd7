"""LowWater below which there are no jobs, for times in which dead rows cannot be vacuumed; and the search for strays.

The server says when a claim had to walk over dead index entries (``low`` rows of a turn). From then on turns go above
the marks. Every now and then somebody looks below them: a stray lowers its mark, and when that walk is short
again the marks are not needed any more. Turns themselves never look below.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final

import psycopg

from mainspring.common.clock import LONG_AGO
from mainspring.stores.postgres.arrays import numbers
from mainspring.stores.postgres.session import Params, Rows, Step
from mainspring.stores.postgres.statements import fill
from mainspring.stores.postgres.turns import Lows

PERIOD: Final = 2.0
"""Seconds between two searches, or twenty times what the last one took."""
OLD: Final = 300.0
"""Seconds: a snapshot that is held for longer is warned of."""
_STRAYS = """
select lane, priority, seq
from {schema}.strays_v1(%(low_lane)b::text[], %(low_priority)s::integer[], %(low_seq)s::bigint[])
"""
_HEADS = "select lane, priority, seq from {schema}.heads_v1(%(lanes)b::text[])"
_PATIENT: Final[tuple[Step, ...]] = (("set local statement_timeout = '10min'", {}),)
_WHO = "select pid, seconds from {schema}.oldest_snapshot_v1()"
_SHORT = 1000
"""Index entries: a walk over so few is nothing."""

log = logging.getLogger("mainspring.store")


class LowWater:
    """The marks of one client, and the one task that looks below them."""

    def __init__(self, rows: Callable[..., Awaitable[Rows]], schema: str) -> None:
        self._rows = rows
        self._schema = schema
        self._lows: Lows = {}
        self.lowered = 0
        self._task: asyncio.Task[None] | None = None
        self._warned = LONG_AGO

    def above(self, lanes: Iterable[str]) -> Params:
        """What a turn that wants these lanes must be told; nothing in ordinary times."""
        if not self._lows:
            return {}
        wanted = set(lanes)
        return _params({place: seq for place, seq in self._lows.items() if place[0] in wanted})

    def learn(self, lows: Lows, lowered: int) -> None:
        """What a turn said of where its claims began, and how often marks had been lowered when it was sent."""
        if not lows:
            return
        # A stray that was found while the turn was on its way lies below what the turn knows of.
        self._lows = {**self._lows, **lows} if lowered == self.lowered else {**lows, **self._lows}
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._search())

    def lost(self, lanes: Iterable[str]) -> None:
        """A turn for these lanes took too long: find out, for as long as it takes, where their jobs begin."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._find_heads(sorted(set(lanes))))

    def close(self) -> None:
        task, self._task = self._task, None
        self._lows.clear()
        if task is not None:
            task.cancel()

    # ---- the search ---------------------------------------------------------------------------

    async def _find_heads(self, lanes: list[str]) -> None:
        try:
            found = await self._rows(fill(_HEADS, self._schema), {"lanes": lanes}, first=_PATIENT, prepare=False)
        except psycopg.Error as error:
            log.debug("no search for the heads of lanes: %s", error)
            return
        self._lows.update({(lane, priority): seq for lane, priority, seq in found})
        await self._search()

    async def _search(self) -> None:
        took = 0.0
        while self._lows:
            await asyncio.sleep(max(PERIOD, 20 * took))
            began = time.monotonic()
            try:
                await self.look()
            except psycopg.Error as error:
                log.debug("no search for strays: %s", error)
            took = time.monotonic() - began

    async def look(self) -> None:
        """Look below the marks once."""
        *strays, (_, _, walked) = await self._rows(fill(_STRAYS, self._schema), _params(self._lows), prepare=False)
        if walked < _SHORT:
            self._lows.clear()
            return
        for lane, priority, seq in strays:
            if self._lows.get((lane, priority), 0) > seq:
                self._lows[lane, priority] = seq
                self.lowered += 1
        await self._warn()

    async def _warn(self) -> None:
        ((pid, seconds),) = await self._rows(fill(_WHO, self._schema), {}, prepare=False) or ((None, 0.0),)
        if pid is not None and seconds > OLD and time.monotonic() - self._warned > OLD:
            self._warned = time.monotonic()
            log.warning(
                "process %s of the server has held a transaction open for %.0f min: dead rows cannot be vacuumed, "
                "and tables grow. End it: select pg_terminate_backend(%s)", pid, seconds / 60, pid,
            )  # fmt: skip


def _params(lows: Lows) -> dict[str, Any]:
    if not lows:
        return {}
    return {
        "low_lane": [lane for lane, _ in lows],
        "low_priority": numbers([priority for _, priority in lows]),
        "low_seq": numbers(lows.values()),
    }
