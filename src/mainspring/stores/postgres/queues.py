"""Queues: modes, settings and depth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.rows import queue_row
from mainspring.stores.shared.depth import stored

_SET_MODE = "select {schema}.set_queue_mode_v1(%(queues)b::text[], %(mode)s::text, %(now)s::bigint)"
_QUEUES = """
select name, mode, since, declared::text, given::text, disabled, disabled_at, disabled_by
from {schema}.queues order by name
"""
_CONFIGURE = "select {schema}.configure_queue_v1(%(queue)s::text, %(settings)s::jsonb, %(declared)s::boolean)"
_COUNT = "select {schema}.count_for_depth_v1(%(queue)s::text, %(after)b::bytea, %(limit)s::integer)"
_DISABLE = "select {schema}.disable_queues_v1(%(queues)b::text[], %(how)s::text, %(by)s::text, %(now)s::bigint)"
_SLICE: Final = 500
"""Jobs that one step counts for the depth of a queue: it holds their locks."""


async def set_queue_mode(db: Database, queues: Sequence[str], mode: QueueMode) -> None:
    await db.rows(_SET_MODE, {"queues": list(queues), "mode": mode.value, "now": db.now()})
    if mode is not QueueMode.PAUSED:
        await db.wake(queues)


async def queues(db: Database) -> list[QueueRow]:
    return [queue_row(row) for row in await db.rows(_QUEUES)]


async def configure_queue(db: Database, queue: str, settings: QueueSettings | None, *, declared: bool) -> None:
    text = msgspec.json.encode(stored(settings)).decode() if settings else None
    await db.rows(_CONFIGURE, {"queue": queue, "settings": text, "declared": declared})
    last: bytes | None = b""
    while last is not None:
        ((last,),) = await db.rows(_COUNT, {"queue": queue, "after": last, "limit": _SLICE})


async def disable_queues(db: Database, queues: Sequence[str], how: DisabledMode | None, by: str) -> None:
    params = {"queues": list(queues), "how": None if how is None else how.value, "by": by, "now": db.now()}
    await db.rows(_DISABLE, params)
    if how is None:
        await db.wake(queues)


def queues_json(queues: Sequence[tuple[str, QueueSettings]]) -> str | None:
    """Declared settings as an enqueue takes them; None for none."""
    return msgspec.json.encode([(name, stored(settings)) for name, settings in queues]).decode() if queues else None
