"""Schedules: rows that are replaced by compare and set, and their runs. See ``lua/_schedules.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.errors import StoreConflict
from mainspring.jobs.records import JobBatch
from mainspring.schedules.records import DueSchedules, ScheduleRow, ScheduleRun, ScheduleSwap, SwapResult

from .driver.client import RedisClient
from .driver.constants import ID_BYTES
from .jobs import enqueue
from .rows import framed


async def swap_schedule(client: RedisClient, swap: ScheduleSwap, batch: JobBatch | None) -> SwapResult:
    """One script in any case: with a batch it is ``enqueue.lua``, which does the swap as well."""
    text = _pack_swap(swap)
    if batch is None:
        return _swap_result(None, await client.run("swap_schedule", text))
    name, words = enqueue.arguments(batch, swap=text)
    return _swap_result(batch, await client.run(name, *words))


async def due_schedules(client: RedisClient, limit: int) -> DueSchedules:
    now, found, following = await client.run("due_schedules", max(limit, 0))
    next_look = None if following is None else _row(b"", following).look
    return DueSchedules(now=now, rows=tuple(map(_row, found[::2], found[1::2])), next_look=next_look)


async def schedules(client: RedisClient, names: Sequence[str]) -> list[ScheduleRow]:
    key, wanted = client.key("schedules"), sorted({name.encode() for name in names})
    if not wanted:
        return [_row(*pair) for pair in sorted((await client.command("HGETALL", key)).items())]
    found = zip(wanted, await client.command("HMGET", key, *wanted), strict=True)
    return [_row(name, stored) for name, stored in found if stored is not None]


async def schedule_runs(client: RedisClient, name: str, limit: int, before: int | None) -> list[ScheduleRun]:
    bound = "+inf" if before is None else f"({before}"
    found = await client.run("schedule_runs", name, bound, max(limit, 0))
    return list(map(_run, found[::2], found[1::2]))


def _pack_swap(swap: ScheduleSwap) -> bytes:
    """As ``read_swap`` in ``lua/_schedules.lua`` reads it."""
    doc = b"" if swap.doc is None else b"+" + swap.doc
    look = b"" if swap.look is None else _decimal(swap.look)
    words = [swap.name.encode(), _decimal(swap.rev), doc, look, _decimal(swap.keep)]
    for run in swap.runs:
        if run.job is not None and len(run.job) != ID_BYTES:
            raise StoreConflict(
                f"schedule {swap.name!r}: the job of the run at {run.at} does not have {ID_BYTES} bytes"
            )
        words += (_decimal(run.at), run.job or b"", run.doc)
    return framed(*words)


def _decimal(number: int) -> bytes:
    return b"%d" % number


def _swap_result(batch: JobBatch | None, reply: list[Any]) -> SwapResult:
    """The reply of the script. A refusal of the batch is raised as an error."""
    jobs = batch.jobs if batch else ()
    if reply[0] != b"swapped":
        enqueue.enqueued(jobs, reply)
    _, done, now, rev, taken, *replies = reply
    made = tuple(enqueue.enqueued(jobs, replies[0])) if replies else ()
    return SwapResult(ok=done == 1, now=now, rev=int(rev), taken=None if taken is None else int(taken), enqueued=made)


def _row(name: bytes, stored: bytes) -> ScheduleRow:
    rev, look, doc = stored.split(b":", 2)
    return ScheduleRow(name=name.decode(), rev=int(rev), look=int(look) if look else None, doc=doc)


def _run(at: bytes, stored: bytes) -> ScheduleRun:
    has_job = stored[0] == 1
    job, doc = (stored[1 : ID_BYTES + 1], stored[ID_BYTES + 1 :]) if has_job else (None, stored[1:])
    return ScheduleRun(at=int(at), job=job, doc=doc)
