"""Schedules: rows with a revision, and their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.jobs.records import JobBatch
from mainspring.schedules.records import DueSchedules, ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult
from mainspring.stores.postgres.driver.arrays import numbers
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Rows, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.driver.wakeups import ready_queues
from mainspring.stores.postgres.jobs.enqueue import enqueue_call, enqueue_reply, freed_queues
from mainspring.stores.postgres.rows import schedule_row

_SWAP = """
select s.ok, s.now, s.rev, s.taken, {jobs} from {schema}.swap_schedule_v1(
    %(name)s::text, %(rev)s::bigint, %(doc)b::bytea, %(look)s::bigint, %(occurrence)s::bigint[], %(run_job)b::bytea[],
    %(run_doc)b::bytea[], %(kept)s::bigint, %(now)s::bigint
) s
"""
_ENQUEUED = "case when s.ok then array(select e from ({call}) e) end"
"""The server does not run the subquery of a branch that is not taken: a refused swap enqueues nothing."""
_DUE = "select now, name, rev, look, doc from {schema}.due_schedules_v1(%(limit)s::bigint, %(now)s::bigint)"
_SCHEDULES = """
select name, rev, look, doc from {schema}.schedules
where doc is not null and (%(all)s::boolean or name = any(%(names)b::text[])) order by name
"""
_RUNS = """
select at, job, doc from {schema}.schedule_runs
where schedule = %(name)s and at < %(before)s::bigint
order by at desc limit %(limit)s::bigint
"""
_LAST_MOMENT = 2**63 - 1
SCHEDULERS = ""
"""The queue that schedulers listen to: they wait for a row that is due earlier."""


async def swap_schedule(db: Database, swap: ScheduleSwap, batch: JobBatch | None) -> SwapResult:
    rows = await db.run(swap_call(swap, batch, db.schema, db.now()))
    result, freed = _swap_reply(rows, batch)
    if result.ok:
        await db.wake({SCHEDULERS, *freed, *(() if batch is None else ready_queues(batch))})
    return result


async def due_schedules(db: Database, limit: int) -> DueSchedules:
    (first, *rows) = await db.rows(_DUE, {"limit": max(limit, 0), "now": db.now()})
    found = [schedule_row(row[1:]) for row in rows]
    next_look = found[limit].look if len(found) > limit else first[3]
    return DueSchedules(now=first[0], rows=tuple(found[:limit]), next_look=next_look)


async def schedules(db: Database, names: Sequence[str]) -> list[ScheduleRow]:
    return [schedule_row(row) for row in await db.rows(_SCHEDULES, {"all": not names, "names": list(names)})]


async def schedule_runs(db: Database, name: str, limit: int, before: int | None) -> list[ScheduleRun]:
    rows = await db.rows(
        _RUNS, {"name": name, "limit": max(limit, 0), "before": _LAST_MOMENT if before is None else before}
    )
    return [ScheduleRun(at=at, job=job, doc=doc) for at, job, doc in rows]


def swap_call(swap: ScheduleSwap, batch: JobBatch | None, schema: str, now: int | None) -> Step:
    """The statement that replaces a row and inserts the batch."""
    runs = {run.at: run for run in swap.runs}.values()
    params: dict[str, Any] = {
        "name": swap.name, "rev": swap.rev, "doc": swap.doc, "look": swap.look, "kept": max(swap.keep, 0), "now": now,
        "occurrence": numbers(run.at for run in runs), "run_job": [run.job for run in runs],
        "run_doc": [run.doc for run in runs],
    }  # fmt: skip
    jobs = "null"
    if batch is not None and batch.jobs:
        call, given = enqueue_call(batch, schema, now)
        jobs = _ENQUEUED.replace("{call}", call)
        params |= given
    return fill_schema(_SWAP.replace("{jobs}", jobs), schema), params


def _swap_reply(rows: Rows, batch: JobBatch | None) -> tuple[SwapResult, set[str]]:
    """The reply, and the queues in which jobs of earlier enqueues became ready."""
    ((ok, now, rev, taken, inserted),) = rows
    if not ok or batch is None or not batch.jobs:
        return SwapResult(ok=ok, now=now, rev=rev, taken=taken), set()
    replies = tuple(enqueue_reply(batch, inserted))
    return SwapResult(ok=True, now=now, rev=rev, enqueued=replies), freed_queues(inserted)
