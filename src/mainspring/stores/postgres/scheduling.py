"""The part of the store that has to do with schedules, and with parts that wait for others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, LiteralString

from mainspring.jobs.records import Batch
from mainspring.schedules.records import (
    DueSchedules,
    ScheduleDependency,
    ScheduleDependencyRow,
    ScheduleRow,
    ScheduleRun,
    ScheduleSwap,
    SwapResult,
)
from mainspring.stores.postgres import enqueue
from mainspring.stores.postgres.arrays import numbers
from mainspring.stores.postgres.listen import ready_queues
from mainspring.stores.postgres.session import Params, Rows, Sessions
from mainspring.stores.postgres.statements import fill

_SWAP = """
select s.ok, s.now, s.rev, s.taken, {jobs} from {schema}.swap_v1(
    %(name)s::text, %(rev)s::bigint, %(doc)b::bytea, %(look)s::bigint, %(occurrence)s::bigint[], %(run_job)b::bytea[],
    %(run_doc)b::bytea[], %(kept)s::bigint, %(now)s::bigint
) s
"""
_ENQUEUED = "case when s.ok then array(select e from ({call}) e) end"
"""A subquery of a branch that is not taken is not run: nobody's jobs are made by an exchange that is refused."""
_LOOK = "select * from {schema}.look_v1(%(limit)s::bigint, %(now)s::bigint)"
_SCHEDULES = """
select name, rev, look, doc from {schema}.schedules
where doc is not null and (%(all)s::boolean or name = any(%(names)b::text[])) order by name
"""
_RUNS = """
select at, job, doc from {schema}.runs
where schedule = %(name)s and at < coalesce(%(before)s::bigint, 9223372036854775807)
order by at desc limit %(limit)s::bigint
"""
_LINK = "select {schema}.link_v1(%(names)b::text[], %(part)b::text[], %(after)b::text[], %(now)s::bigint)"
_LINKS = """
select p.name, array(select l.after from {schema}.part_links l where l.part = p.name order by l.after),
    array(select l.noted from {schema}.part_links l where l.part = p.name order by l.after),
    array(
        select j.id from {schema}.jobs j where j.line = p.name and j.held is not null order by j.held limit 100
    )
from {schema}.parts p order by p.name
"""
EVERYBODY = ""
"""The queue that those listen to who wait for schedules."""


def exchange(swap: ScheduleSwap, batch: Batch | None, schema: str, now: int | None) -> tuple[LiteralString, Params]:
    """The statement that exchanges a row and inserts the batch."""
    runs = {run.at: run for run in swap.runs}.values()
    params: dict[str, Any] = {
        "name": swap.name, "rev": swap.rev, "doc": swap.doc, "look": swap.look, "kept": max(swap.keep, 0), "now": now,
        "occurrence": numbers(run.at for run in runs), "run_job": [run.job for run in runs],
        "run_doc": [run.doc for run in runs],
    }  # fmt: skip
    jobs = "null"
    if batch is not None and batch.jobs:
        call, given = enqueue.call(batch, schema, now)
        jobs = _ENQUEUED.replace("{call}", call)
        params |= given
    return fill(_SWAP.replace("{jobs}", jobs), schema), params


def exchanged(rows: Rows, batch: Batch | None) -> tuple[SwapResult, set[str]]:
    """The reply, and the queues in which jobs that were there before became ready."""
    ((ok, now, rev, taken, made),) = rows
    if not ok or batch is None or not batch.jobs:
        return SwapResult(ok=ok, now=now, rev=rev, taken=taken), set()
    said = tuple(enqueue.reply(batch, made))
    return SwapResult(ok=True, now=now, rev=rev, enqueued=said), enqueue.freed(made)


def linking(links: Sequence[ScheduleDependency], schema: str, now: int | None) -> tuple[LiteralString, Params]:
    """The statement that says what parts wait for."""
    said = {link.name: link.after for link in links}
    pairs = [(name, after) for name, others in said.items() for after in others]
    return fill(_LINK, schema), {
        "names": list(said), "part": [name for name, _ in pairs], "after": [after for _, after in pairs], "now": now,
    }  # fmt: skip


class Scheduling(ABC):
    """Exchanges and hands out schedules, and says what parts wait for."""

    schema: str
    _sessions: Sessions

    async def swap_schedule(self, swap: ScheduleSwap, batch: Batch | None = None) -> SwapResult:
        rows = await self._sessions.rows(*exchange(swap, batch, self.schema, self._now()))
        said, freed = exchanged(rows, batch)
        if said.ok:
            await self._ring({EVERYBODY, *freed, *(() if batch is None else ready_queues(batch))})
        return said

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        asked = {"limit": max(limit, 0), "now": self._now()}
        (first, *rows) = await self._sessions.rows(fill(_LOOK, self.schema), asked)
        found = [ScheduleRow(name=name, rev=rev, look=look, doc=doc) for _, name, rev, look, doc in rows]
        next_look = found[limit].look if len(found) > limit else first[3]
        return DueSchedules(now=first[0], rows=tuple(found[:limit]), next_look=next_look)

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        asked = {"all": not names, "names": list(names)}
        rows = await self._sessions.rows(fill(_SCHEDULES, self.schema), asked)
        return [ScheduleRow(name=name, rev=rev, look=look, doc=doc) for name, rev, look, doc in rows]

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        asked = {"name": name, "limit": max(limit, 0), "before": before}
        rows = await self._sessions.rows(fill(_RUNS, self.schema), asked)
        return [ScheduleRun(at=at, job=job, doc=doc) for at, job, doc in rows]

    async def set_dependencies(self, links: Sequence[ScheduleDependency]) -> None:
        ((woken,),) = await self._sessions.rows(*linking(links, self.schema, self._now()))
        await self._ring(woken)

    async def dependencies(self) -> list[ScheduleDependencyRow]:
        return [
            ScheduleDependencyRow(name=name, after=tuple(zip(after, noted, strict=True)), waiting=tuple(waiting))
            for name, after, noted, waiting in await self._sessions.rows(fill(_LINKS, self.schema), {})
        ]

    @abstractmethod
    def _now(self) -> int | None: ...

    @abstractmethod
    async def _ring(self, queues: Iterable[str]) -> None: ...
