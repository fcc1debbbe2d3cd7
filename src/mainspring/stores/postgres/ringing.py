"""An enqueue that wakes workers with its own commit, so that they come while it still waits for the disk.

A notification takes a lock that all who notify share, and keeps it until the commit is through, disk and replicas
included: such commits would go one by one. So the enqueue commits without waiting, and a small transaction that waits
follows it. Nobody is told too much too soon: a claim stands behind its job in the log of the server, so it is not on
the disk before the job is, and the caller gets its reply when all is.
"""

from __future__ import annotations

import time
from functools import cache
from typing import LiteralString

from mainspring.jobs.records import Batch
from mainspring.stores.postgres import enqueue
from mainspring.stores.postgres.listen import Bell, ready_queues
from mainspring.stores.postgres.session import Rows, Step

SETTLE: Step = ("select pg_logical_emit_message(true, 'mainspring', '')", {})
"""Writes a word that nobody reads, and waits until it and all before it are where commits are to be."""

_RINGING: LiteralString = """
select e.* from (
    select set_config('synchronous_commit', 'off', true), count(pg_notify(c, '')) from unnest(%(channels)s::text[]) c
) rung left join lateral ({call}) e on true
"""


class Ringing:
    """One enqueue. Queues for which this process rang a moment ago are not rung for again."""

    def __init__(self, bell: Bell, batch: Batch, call: Step) -> None:
        self.step = call
        """What to run."""
        self._bell = bell
        self._ready = ready_queues(batch)
        self._rung = bell.quiet(self._ready)
        self._at = time.monotonic()
        if self._rung:
            self.step = _ringing(call[0]), {**call[1], "channels": bell.channels(self._rung)}

    @property
    def unsettled(self) -> bool:
        """The commit has waited for nobody: if it has to, run ``SETTLE``."""
        return bool(self._rung)

    def ran(self, rows: Rows) -> Rows:
        """The rows of the enqueue itself."""
        if not self._rung:
            return rows
        self._bell.rang(self._rung, self._at)
        return [row for row in rows if row[0] is not None]

    def left(self, rows: Rows) -> list[str]:
        """The channels that are to be rung now that all is committed."""
        return self._bell.due((self._ready | enqueue.freed(rows)) - self._rung)


@cache
def _ringing(call: LiteralString) -> LiteralString:
    return _RINGING.replace("{call}", call)
