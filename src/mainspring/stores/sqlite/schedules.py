"""Schedules: exchanged by their number together with their jobs; compared here, understood elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.schedules.records import DueSchedules, ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult

from .enqueue import enqueue

if TYPE_CHECKING:
    from mainspring.jobs.records import Batch

    from .tx import Row, Tx

LATEST = (1 << 63) - 1


def swap(tx: Tx, asked: ScheduleSwap, batch: Batch | None) -> SwapResult:
    found = tx.first("schedule", (asked.name,))
    last, went = found if found is not None else (0, True)
    rev = 0 if went else last
    if rev != asked.rev:
        return SwapResult(ok=False, now=tx.now, rev=rev)
    taken = _taken(tx, asked)
    if taken is not None:
        return SwapResult(ok=False, now=tx.now, rev=rev, taken=taken)
    enqueued = enqueue(tx, batch) if batch is not None else []
    rev = _write(tx, asked, last)
    tx.woken.add("")
    return SwapResult(ok=True, now=tx.now, rev=rev, enqueued=tuple(enqueued))


def _taken(tx: Tx, asked: ScheduleSwap) -> int | None:
    """An occurrence that is to get a job and has another."""
    for run in asked.runs if asked.doc is not None else ():
        found = tx.first("job_of_run", (asked.name, run.at)) if run.job is not None else None
        if found is not None and found[0] not in (None, run.job):
            return run.at
    return None


def _write(tx: Tx, asked: ScheduleSwap, last: int) -> int:
    """The number that the row has now."""
    if asked.doc is None:
        tx.run("end_schedule", (tx.now, asked.name))
        tx.run("drop_runs", (asked.name,))
        return 0
    rev = max(last + 1, tx.now)
    tx.run("put_schedule", (asked.name, rev, asked.look, asked.doc))
    tx.cursor.executemany(tx.sql["put_run"], [(asked.name, run.at, run.job, run.doc) for run in asked.runs])
    tx.run("trim_runs", (asked.name, asked.keep))
    return rev


def look(tx: Tx, limit: int) -> DueSchedules:
    rows = tx.all("due_schedules", (tx.now, limit + 1))
    next_look = rows[limit][2] if len(rows) > limit else tx.all("next_look", (tx.now,))[0][0]
    return DueSchedules(now=tx.now, rows=tuple(_row(row) for row in rows[:limit]), next_look=next_look)


def schedules(tx: Tx, names: Sequence[str]) -> list[ScheduleRow]:
    if not names:
        return [_row(row) for row in tx.all("all_schedules")]
    found = [tx.first("one_schedule", (name,)) for name in sorted(set(names))]
    return [_row(row) for row in found if row is not None]


def _row(row: Row) -> ScheduleRow:
    name, rev, look, doc = row
    return ScheduleRow(name=name, rev=rev, look=look, doc=doc)


def runs(tx: Tx, name: str, limit: int, before: int | None) -> list[ScheduleRun]:
    rows = tx.all("runs", (name, LATEST if before is None else before - 1, limit))
    return [ScheduleRun(at=at, job=job, doc=doc) for at, job, doc in rows]
