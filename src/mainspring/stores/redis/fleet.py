"""The fleet: heartbeats, rescue, retirement, and the rows of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from mainspring.errors import StoreConflict
from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.worker.records import Beat, BeatResult, LeadResult, RescueResult, WorkerRow

from . import rows
from .driver.client import RedisClient
from .jobs import ack

LONGEST_NAME: Final = 255
"""Bytes of the name of a worker: a stored job has its length in one byte."""

_pack = msgspec.msgpack.Encoder().encode


async def beat(client: RedisClient, beats: Sequence[Beat]) -> list[BeatResult]:
    words: list[bytes | str] = []
    for each in beats:
        new = each.register
        if len(each.worker.encode()) > LONGEST_NAME:
            raise StoreConflict(f"the name of worker {each.worker[:40]}... is longer than {LONGEST_NAME} bytes")
        words += (
            each.worker,
            _pack((new.queues, new.tasks, new.lease)) if new else b"",
            new.info if new else b"",
        )
    numbers = await client.run("beat", *words)
    return [BeatResult(each.worker, number > 0, number) for each, number in zip(beats, numbers, strict=True)]


async def rescue(client: RedisClient, worker: str, number: int, cause: Outcome, delays: Sequence[int]) -> RescueResult:
    return _rescue_result(await client.run("rescue", worker, number, cause.value, _pack(delays)))


async def retire(
    client: RedisClient, worker: str, cause: Outcome, acks: Sequence[Ack], delays: Sequence[int]
) -> RescueResult:
    plain, words = ack.pack_acks(ack.storable(acks)[0])
    return _rescue_result(await client.run("retire", worker, cause.value, _pack(delays), plain, *words))


def _rescue_result(reply: list[Any]) -> RescueResult:
    taken, ready, retrying, dead, cancelled = reply
    return RescueResult(bool(taken), tuple(ready), tuple(retrying), tuple(dead), tuple(cancelled))


async def lead(client: RedisClient, worker: str, services: Sequence[str], span: int) -> LeadResult:
    now, led, count, due, look, always = await client.run("lead", worker, span, *services)
    names = tuple(sorted(service.decode() for service in led))
    return LeadResult(
        now=now, services=names, fleet=count, next_due=due, next_look=look, always_due=bool(always)
    )  # fmt: skip


async def workers(client: RedisClient) -> list[WorkerRow]:
    """Oldest first."""
    return sorted((_worker_row(*row) for row in await client.run("workers")), key=lambda row: (row.started, row.id))


def _worker_row(
    name: bytes,
    number: bytes,
    turn: bytes,
    lost: bytes,
    started: bytes,
    seen: bytes,
    running: int,
    lease: bytes,
    queues: bytes,
    tasks: bytes,
    info: bytes,
) -> WorkerRow:
    return WorkerRow(
        id=name.decode(),
        number=int(number),
        turn=int(turn),
        lost=lost == b"1",
        started=int(started),
        seen=int(seen),
        running=running,
        lease=int(lease),
        queues=rows.unpack_names(queues),
        tasks=rows.unpack_names(tasks),
        info=info,
    )
