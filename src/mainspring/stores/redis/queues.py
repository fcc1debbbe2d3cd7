"""Queues: modes, settings and depth. See ``lua/_queues.lua``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.jobs.query import Query
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.states import LIVE
from mainspring.stores.shared.depth import stored

from .driver.client import RedisClient
from .jobs.query import pack_query

SLICE: Final = 1_000
"""Jobs that one script looks at."""

_Settings = tuple[str | bool, str | bool, DisabledMode | bool, int, str]
_unpack = msgspec.msgpack.Decoder(_Settings).decode
_read = msgspec.json.Decoder(QueueSettings).decode


async def set_queue_mode(client: RedisClient, names: Sequence[str], mode: QueueMode) -> None:
    await client.run("set_queue_mode", mode.value, *names)


async def disable_queues(client: RedisClient, names: Sequence[str], how: DisabledMode | None, by: str) -> None:
    await client.run("disable_queues", "" if how is None else how.value, by, *names)


async def configure_queue(client: RedisClient, queue: str, settings: QueueSettings | None, *, declared: bool) -> None:
    """Store the settings. If they have a ``max_depth``, count the jobs that are stored already."""
    text = settings_json(settings) if settings else ""
    if not await client.run("configure_queue", queue, "declared" if declared else "given", text):
        return
    query, after = pack_query(Query.where(queues=[queue], states=LIVE)), b""
    while after is not None:
        after = await client.run("configure_queue_count", query, after, SLICE)


def settings_json(settings: QueueSettings) -> str:
    return msgspec.json.encode(stored(settings)).decode()


async def queues(client: RedisClient) -> list[QueueRow]:
    """By name."""
    rows = await client.command("HGETALL", client.key("queues"))
    return sorted((_row(name.decode(), value) for name, value in rows.items()), key=lambda row: row.name)


def _row(name: str, value: bytes) -> QueueRow:
    """From an entry as ``lua/_queues.lua`` describes it."""
    plain, _, packed = value.partition(b"|")
    mode, _, since = plain.decode().partition(":")
    row = QueueRow(name, QueueMode(mode.rstrip("!+")), int(since))
    if not packed:
        return row
    declared, given, how, at, by = _unpack(packed)
    return msgspec.structs.replace(
        row, declared=_settings(declared), given=_settings(given), disabled=how or None, disabled_at=at, disabled_by=by
    )


def _settings(text: str | bool) -> QueueSettings:
    return _read(text) if isinstance(text, str) else QueueSettings()
