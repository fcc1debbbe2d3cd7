"""The part of the store that has to do with what queues do and how they work."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings
from mainspring.stores.postgres.session import Sessions
from mainspring.stores.postgres.statements import fill
from mainspring.stores.shared.depth import stored

_SET_MODE = "select {schema}.set_mode_v1(%(queues)b::text[], %(mode)s::text, %(now)s::bigint)"
_MODES = """
select name, mode, since, declared::text, given::text, disabled, disabled_at, disabled_by
from {schema}.queues order by name
"""
_CONFIGURE = "select {schema}.configure_v1(%(queue)s::text, %(settings)s::jsonb, %(declared)s::boolean)"
_BIND = "select {schema}.bind_v1(%(queue)s::text, %(after)b::bytea, %(limit)s::integer)"
_DISABLE = "select {schema}.disable_v1(%(queues)b::text[], %(how)s::text, %(by)s::text, %(now)s::bigint)"
_SLICE: Final = 500
_read = msgspec.json.Decoder(QueueSettings).decode


def queues_json(queues: Sequence[tuple[str, QueueSettings]]) -> str | None:
    """As the enqueue takes them; None for none."""
    return msgspec.json.encode([(name, stored(settings)) for name, settings in queues]).decode() if queues else None


def queue_row(row: tuple[Any, ...]) -> QueueRow:
    name, mode, since, declared, given, disabled, disabled_at, disabled_by = row
    how = None if disabled is None else DisabledMode(disabled)
    return QueueRow(name, QueueMode(mode), since, _settings(declared), _settings(given), how, disabled_at, disabled_by)


def _settings(text: str | None) -> QueueSettings:
    return QueueSettings() if text is None else _read(text)


class Queueing(ABC):
    """Sets modes and settings, and tells of them."""

    schema: str
    _sessions: Sessions

    async def set_queue_mode(self, queues: Sequence[str], mode: QueueMode) -> None:
        asked = {"queues": list(queues), "mode": mode.value, "now": self._now()}
        await self._sessions.rows(fill(_SET_MODE, self.schema), asked)
        if mode is not QueueMode.PAUSED:
            await self._ring(queues)

    async def queues(self) -> list[QueueRow]:
        return [queue_row(row) for row in await self._sessions.rows(fill(_MODES, self.schema), {})]

    async def configure_queue(self, queue: str, settings: QueueSettings | None, *, declared: bool = False) -> None:
        text = msgspec.json.encode(stored(settings)).decode() if settings else None
        asked = {"queue": queue, "settings": text, "declared": declared}
        await self._sessions.rows(fill(_CONFIGURE, self.schema), asked)
        last: bytes | None = b""
        while last is not None:
            part = {"queue": queue, "after": last, "limit": _SLICE}
            ((last,),) = await self._sessions.rows(fill(_BIND, self.schema), part)

    async def disable_queues(self, queues: Sequence[str], how: DisabledMode | None, by: str = "") -> None:
        asked = {"queues": list(queues), "how": None if how is None else how.value, "by": by, "now": self._now()}
        await self._sessions.rows(fill(_DISABLE, self.schema), asked)
        if how is None:
            await self._ring(queues)

    @abstractmethod
    async def _ring(self, queues: Iterable[str]) -> None: ...

    @abstractmethod
    def _now(self) -> int | None: ...
