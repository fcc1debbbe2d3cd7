"""Low-water marks: claims skip dead index entries while a long transaction keeps vacuum from removing them.

The server reports when a claim had to walk over many dead index entries (``low`` rows of a turn). From then on turns
claim only above the marks. A task looks below the marks every few seconds: a job found there (a stray) lowers its mark,
and when the walk below is short again the marks are dropped. Turns themselves never look below the marks.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any, Final

import psycopg

from mainspring.common.clock import LONG_AGO
from mainspring.stores.postgres.driver.arrays import numbers
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Params, Step

Marks = dict[tuple[str, int], int]
"""By base lane and priority: the seq of the first job of the last claim."""

PERIOD: Final = 2.0
"""Seconds between two searches."""
PERIODS: Final = 20
"""A pause between two searches lasts at least this many times as long as the last search."""
OLD: Final = 300.0
"""Seconds after which a held snapshot is worth a warning."""
_STRAYS = """
select lane, priority, seq
from {schema}.find_strays_v1(%(low_lane)b::text[], %(low_priority)s::integer[], %(low_seq)s::bigint[])
"""
_HEADS = "select lane, priority, seq from {schema}.find_first_jobs_v1(%(lanes)b::text[])"
_LONG_TIMEOUT: Final[tuple[Step, ...]] = (("set local statement_timeout = '10min'", {}),)
_OLDEST = "select pid, seconds from {schema}.find_oldest_snapshot_v1()"
_SHORT_WALK = 1000
"""Index entries: a shorter walk costs nothing worth avoiding."""

log = logging.getLogger("mainspring.store")


class LowWaterMarks:
    """The marks of one client, and the one task that looks below them."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._marks: Marks = {}
        self.lowered = 0
        """How often a stray has lowered a mark."""
        self._task: asyncio.Task[None] | None = None
        self._warned = LONG_AGO

    def params(self, lanes: Iterable[str]) -> Params:
        """The parameters of a turn that wants these lanes; empty in ordinary times."""
        if not self._marks:
            return {}
        wanted = set(lanes)
        return _params({place: seq for place, seq in self._marks.items() if place[0] in wanted})

    def learn(self, found: Marks, lowered: int) -> None:
        """Note where the claims of a turn began; ``lowered`` is the count of :attr:`lowered` when the turn was sent."""
        if not found:
            return
        # A stray that was found while the turn was on its way lies below the marks of the turn.
        self._marks = {**self._marks, **found} if lowered == self.lowered else {**found, **self._marks}
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._search())

    def search_heads(self, lanes: Iterable[str]) -> None:
        """A turn for these lanes took too long: search, for as long as it takes, where their jobs begin."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._find_heads(sorted(set(lanes))))

    def close(self) -> None:
        task, self._task = self._task, None
        self._marks.clear()
        if task is not None:
            task.cancel()

    # ---- the search ---------------------------------------------------------------------------

    async def _find_heads(self, lanes: list[str]) -> None:
        try:
            found = await self._db.rows(_HEADS, {"lanes": lanes}, first=_LONG_TIMEOUT, prepare=False)
        except psycopg.Error as error:
            log.debug("no search for the heads of lanes: %s", error)
            return
        self._marks.update({(lane, priority): seq for lane, priority, seq in found})
        await self._search()

    async def _search(self) -> None:
        took = 0.0
        while self._marks:
            await asyncio.sleep(max(PERIOD, PERIODS * took))
            began = time.monotonic()
            try:
                await self.search_strays()
            except psycopg.Error as error:
                log.debug("no search for strays: %s", error)
            took = time.monotonic() - began

    async def search_strays(self) -> None:
        """Look below the marks once."""
        *strays, (_, _, walked) = await self._db.rows(_STRAYS, _params(self._marks), prepare=False)
        if walked < _SHORT_WALK:
            self._marks.clear()
            return
        for lane, priority, seq in strays:
            if self._marks.get((lane, priority), 0) > seq:
                self._marks[lane, priority] = seq
                self.lowered += 1
        await self._warn_about_snapshot()

    async def _warn_about_snapshot(self) -> None:
        ((pid, seconds),) = await self._db.rows(_OLDEST, prepare=False) or ((None, 0.0),)
        if pid is not None and seconds > OLD and time.monotonic() - self._warned > OLD:
            self._warned = time.monotonic()
            log.warning(
                "process %s of the server has held a transaction open for %.0f min: dead rows cannot be vacuumed, "
                "and tables grow. To end it, run: select pg_terminate_backend(%s)", pid, seconds / 60, pid,
            )  # fmt: skip


def _params(marks: Marks) -> dict[str, Any]:
    if not marks:
        return {}
    return {
        "low_lane": [lane for lane, _ in marks],
        "low_priority": numbers([priority for _, priority in marks]),
        "low_seq": numbers(marks.values()),
    }
