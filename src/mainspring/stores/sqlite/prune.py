"""Let go of what retention no longer asks for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mainspring.records import Retention

from .act import SLICE, forget

if TYPE_CHECKING:
    from .tx import Tx


def horizon(tx: Tx, retention: Retention) -> int:
    """Finished jobs older than this go: by age, or because there are too many, but none that is too young."""
    crowd = tx.first("nth_youngest", (retention.keep_count,))
    oldest = tx.now - retention.keep
    if crowd is not None:
        oldest = max(oldest, crowd[0] + 1)
    return min(oldest, tx.now - retention.keep_at_least)


def prune_finished(tx: Tx, before: int, limit: int) -> int:
    return _prune(tx, "finished", before, limit)


def prune_dead(tx: Tx, retention: Retention, limit: int) -> int:
    return _prune(tx, "dead", tx.now - retention.keep_dead, limit)


def tidy(tx: Tx, retention: Retention) -> None:
    """Rows of workers long lost, lanes without jobs, buckets that nobody names."""
    tx.run("drop_workers", (tx.now - retention.keep_workers,))
    tx.run("drop_lanes")
    tx.run("drop_buckets")


def _prune(tx: Tx, table: str, before: int, limit: int) -> int:
    until = time.perf_counter() + SLICE
    gone = 0
    for (job,) in tx.all("old_" + table, (before, min(limit, 200))):
        forget(tx, job, table)
        gone += 1
        if time.perf_counter() > until:
            break
    return gone
