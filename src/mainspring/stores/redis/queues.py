"""What queues do and how they work: the arguments and the replies of their scripts."""

from __future__ import annotations

from typing import Final

import msgspec

from mainspring.jobs.query import Query
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.states import LIVE

from . import where
from .connection import Connection
from .enqueue import settings_json

LOOK: Final = 1_000
"""Jobs that one script looks at."""
_Kept = tuple[str | bool, str | bool, DisabledMode | bool, int, str]
_unpack = msgspec.msgpack.Decoder(_Kept).decode
_read = msgspec.json.Decoder(QueueSettings).decode


async def configure(connection: Connection, queue: str, settings: QueueSettings | None, which: str) -> None:
    """Store them, and if they say how many may wait, go through all jobs that are there."""
    text = settings_json(settings) if settings else ""
    if not await connection.run("configure", queue, which, text):
        return
    packed, after = where.packed(Query.where(queues=[queue], states=LIVE)), b""
    while after is not None:
        after = await connection.run("bind", packed, after, LOOK)


def queue_rows(modes: dict[bytes, bytes]) -> list[QueueRow]:
    """By name."""
    return sorted((_row(name.decode(), value) for name, value in modes.items()), key=lambda row: row.name)


def _row(name: str, value: bytes) -> QueueRow:
    """See ``lua/_settings.lua``."""
    said, _, packed = value.partition(b"|")
    mode, _, since = said.decode().partition(":")
    row = QueueRow(name, QueueMode(mode.rstrip("!+")), int(since))
    if not packed:
        return row
    declared, given, how, at, by = _unpack(packed)
    return msgspec.structs.replace(
        row, declared=_settings(declared), given=_settings(given), disabled=how or None, disabled_at=at, disabled_by=by
    )


def _settings(text: str | bool) -> QueueSettings:
    return _read(text) if isinstance(text, str) else QueueSettings()
