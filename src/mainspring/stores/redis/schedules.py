"""Schedules and parts: which script answers which call, its arguments and its replies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.errors import StoreConflict
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

from . import enqueue, rows
from .connection import Connection
from .where import WIDTH

SLICE = 1_000
"""Jobs of a part that one script releases."""
SHOWN = 100
"""Jobs of a part that are shown of those that wait."""

_pack = msgspec.msgpack.Encoder().encode


class Schedules:
    """What a store keeps of schedules, and what parts wait for."""

    _connection: Connection
    _tag: str

    async def swap_schedule(self, swap: ScheduleSwap, batch: Batch | None = None) -> SwapResult:
        """One script in any case: that of the batch takes the exchange along."""
        text = _packed(swap)
        if batch is None:
            return _swapped(None, await self._connection.run("swap", text))
        name, words = enqueue.arguments(batch, swap=text)
        return _swapped(batch, await self._connection.run(name, *words))

    async def due_schedules(self, limit: int = 1000) -> DueSchedules:
        now, found, following = await self._connection.run("look", max(limit, 0))
        next_look = None if following is None else _row(b"", following).look
        return DueSchedules(now=now, rows=tuple(map(_row, found[::2], found[1::2])), next_look=next_look)

    async def schedules(self, names: Sequence[str] = ()) -> list[ScheduleRow]:
        key, wanted = self._tag + "schedules", sorted({name.encode() for name in names})
        if not wanted:
            return [_row(*pair) for pair in sorted((await self._connection.command("HGETALL", key)).items())]
        found = zip(wanted, await self._connection.command("HMGET", key, *wanted), strict=True)
        return [_row(name, stored) for name, stored in found if stored is not None]

    async def schedule_runs(self, name: str, limit: int = 100, before: int | None = None) -> list[ScheduleRun]:
        bound = "+inf" if before is None else f"({before}"
        found = await self._connection.run("runs", name, bound, max(limit, 0))
        return list(map(_run, found[::2], found[1::2]))

    async def set_dependencies(self, links: Sequence[ScheduleDependency]) -> None:
        """Until all are released who wait for nobody any more. If nobody comes to the end of it, such a part waits as
        before."""
        packed = _pack([(each.name, sorted(set(each.after))) for each in links])
        while await self._connection.run("link", packed, SLICE):
            pass

    async def dependencies(self) -> list[ScheduleDependencyRow]:
        return sorted((_link(*said) for said in await self._connection.run("links", SHOWN)), key=lambda row: row.name)


def _packed(swap: ScheduleSwap) -> bytes:
    """As ``_schedules.lua`` reads it."""
    doc = b"" if swap.doc is None else b"+" + swap.doc
    look = b"" if swap.look is None else _decimal(swap.look)
    words = [swap.name.encode(), _decimal(swap.rev), doc, look, _decimal(swap.keep)]
    for run in swap.runs:
        if run.job is not None and len(run.job) != WIDTH:
            raise StoreConflict(f"schedule {swap.name!r}: the job of the run at {run.at} does not have {WIDTH} bytes")
        words += (_decimal(run.at), run.job or b"", run.doc)
    return enqueue.framed(*words)


def _decimal(number: int) -> bytes:
    return b"%d" % number


def _swapped(batch: Batch | None, reply: list[Any]) -> SwapResult:
    """What the script says; its refusals of the batch as errors."""
    jobs = batch.jobs if batch else ()
    if reply[0] != b"swapped":
        enqueue.enqueued(jobs, reply)
    _, done, now, rev, taken, *said = reply
    made = tuple(enqueue.enqueued(jobs, said[0])) if said else ()
    return SwapResult(ok=done == 1, now=now, rev=int(rev), taken=None if taken is None else int(taken), enqueued=made)


def _row(name: bytes, stored: bytes) -> ScheduleRow:
    rev, look, doc = stored.split(b":", 2)
    return ScheduleRow(name=name.decode(), rev=int(rev), look=int(look) if look else None, doc=doc)


def _run(at: bytes, stored: bytes) -> ScheduleRun:
    has_job = stored[0] == 1
    return ScheduleRun(at=int(at), job=stored[1:17] if has_job else None, doc=stored[17 if has_job else 1 :])


def _link(name: bytes, after: bytes, missing: list[bytes], waiting: list[bytes]) -> ScheduleDependencyRow:
    noted = tuple((each, each.encode() not in missing) for each in rows.names(after))
    return ScheduleDependencyRow(name=name.decode(), after=noted, waiting=tuple(waiting))
