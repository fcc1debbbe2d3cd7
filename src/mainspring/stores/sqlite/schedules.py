"""Schedules: rows that are exchanged by their number together with their jobs. The store compares, the core decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.schedules.records import DueSchedules, ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult

from .jobs.enqueue import enqueue

if TYPE_CHECKING:
    from mainspring.jobs.records import JobBatch

    from .driver.transaction import Row, Tx

LATEST = (1 << 63) - 1
"""The latest moment that SQLite can store."""
SCHEDULERS = ""
"""The name of the queue that schedulers listen to."""


def swap_schedule(tx: Tx, swap: ScheduleSwap, batch: JobBatch | None) -> SwapResult:
    found = tx.first("schedule_rev", (swap.name,))
    last, is_deleted = found if found is not None else (0, True)
    rev = 0 if is_deleted else last
    if rev != swap.rev:
        return SwapResult(ok=False, now=tx.now, rev=rev)
    taken = _taken_occurrence(tx, swap)
    if taken is not None:
        return SwapResult(ok=False, now=tx.now, rev=rev, taken=taken)
    enqueued = enqueue(tx, batch) if batch is not None else []
    rev = _write(tx, swap, last)
    tx.woken.add(SCHEDULERS)
    return SwapResult(ok=True, now=tx.now, rev=rev, enqueued=tuple(enqueued))


def _taken_occurrence(tx: Tx, swap: ScheduleSwap) -> int | None:
    """An occurrence that has a job already and would get another one."""
    for run in swap.runs if swap.doc is not None else ():
        found = tx.first("job_of_run", (swap.name, run.at)) if run.job is not None else None
        if found is not None and found[0] not in (None, run.job):
            return run.at
    return None


def _write(tx: Tx, swap: ScheduleSwap, last: int) -> int:
    """Write the row and its runs, or delete them. Returns the new number of the row; 0 for a deleted one."""
    if swap.doc is None:
        tx.run("delete_schedule", (tx.now, swap.name))
        tx.run("drop_runs", (swap.name,))
        return 0
    rev = max(last + 1, tx.now)
    tx.run("put_schedule", (swap.name, rev, swap.look, swap.doc))
    tx.cursor.executemany(tx.sql["put_run"], [(swap.name, run.at, run.job, run.doc) for run in swap.runs])
    tx.run("trim_runs", (swap.name, swap.keep))
    return rev


def due_schedules(tx: Tx, limit: int) -> DueSchedules:
    rows = tx.all("due_schedules", (tx.now, limit + 1))
    next_look = rows[limit][2] if len(rows) > limit else tx.all("next_look", (tx.now,))[0][0]
    return DueSchedules(now=tx.now, rows=tuple(_row(row) for row in rows[:limit]), next_look=next_look)


def schedules(tx: Tx, names: Sequence[str]) -> list[ScheduleRow]:
    if not names:
        return [_row(row) for row in tx.all("schedules")]
    found = [tx.first("schedule", (name,)) for name in sorted(set(names))]
    return [_row(row) for row in found if row is not None]


def _row(row: Row) -> ScheduleRow:
    name, rev, look, doc = row
    return ScheduleRow(name=name, rev=rev, look=look, doc=doc)


def schedule_runs(tx: Tx, name: str, limit: int, before: int | None) -> list[ScheduleRun]:
    rows = tx.all("runs", (name, LATEST if before is None else before - 1, limit))
    return [ScheduleRun(at=at, job=job, doc=doc) for at, job, doc in rows]
