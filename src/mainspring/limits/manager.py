"""app.limits: list the limits of the fleet and change their sizes at run time. Every ``x`` has an async ``ax``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from mainspring.breakers.records import is_breaker
from mainspring.client import blocking
from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption, NotFound
from mainspring.limits.records import Bucket, LimitRow
from mainspring.locks.names import is_lock_limit

if TYPE_CHECKING:
    from mainspring.app import Mainspring

_MAX_SIZE = 1_000_000_000


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, at the time of the call."""

    name: str
    kind: str
    """``concurrency``, ``rate`` or ``smooth``."""
    size: int
    """The current size: jobs at the same time, or starts in each window."""
    declared: int
    """The size that the code declares. It differs from ``size`` after ``app.limits.set``."""
    per: timedelta | None
    burst: int | None
    used: int
    """The use of an unkeyed limit. A limit with ``by=`` is counted for each key, not here."""


LimitInfos = list[LimitInfo]
LimitNames = list[str]


class Limits(Reserved):
    """The limits of the whole fleet. A limit is in the store after the first job named it.

    A size from ``set`` holds until ``reset``, whatever size the code declares.
    """

    _PATH = "app.limits"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def alist(self) -> LimitInfos:
        """Return every limit in the store, by name."""
        store = await self._app.client.store()
        rows = [row for row in await store.limits() if not _is_hidden(row)]
        uses = {each.name: each.used for each in await store.buckets([Bucket(row.limit.name) for row in rows])}
        return [_build_info(row, uses.get(row.limit.name, 0)) for row in rows]

    list = blocking.twin(alist)

    async def aget(self, name: str) -> LimitInfo:
        """Return one limit; ``NotFound`` if it is not in the store."""
        infos = await self.alist()
        for info in infos:
            if info.name == name:
                return info
        raise _unknown_limit(name, [info.name for info in infos])

    get = blocking.twin(aget)

    async def aset(self, name: str, size: int) -> None:
        """Set the size of a limit from the next claim on. It may be smaller than the current use; 0 starts no job."""
        if type(size) is not int or not 0 <= size <= _MAX_SIZE:
            raise InvalidOption("size", size, f"must be a whole number from 0 to {_MAX_SIZE:,}", subject=_subject(name))
        await self._set_size(name, size)

    set = blocking.twin(aset)

    async def areset(self, name: str) -> None:
        """Use the size that the code declares again."""
        await self._set_size(name, None)

    reset = blocking.twin(areset)

    async def adelete(self, name: str) -> None:
        """Delete a limit that no code declares any more. Jobs that name it are no longer limited by it."""
        store = await self._app.client.store()
        if is_breaker(name) or is_lock_limit(name) or not await store.forget_limit(name):
            raise _unknown_limit(name, [info.name for info in await self.alist()])

    delete = blocking.twin(adelete)

    async def _set_size(self, name: str, size: int | None) -> None:
        store = await self._app.client.store()
        if is_breaker(name) or is_lock_limit(name) or not await store.set_limit_size(name, size):
            raise _unknown_limit(name, [info.name for info in await self.alist()])


def _is_hidden(row: LimitRow) -> bool:
    """Breakers and locks are limits in the store; ``app.breakers`` and ``app.locks`` show them."""
    return row.limit.kind == "breaker" or is_lock_limit(row.limit.name)


def _build_info(row: LimitRow, used: int) -> LimitInfo:
    limit = row.limit
    return LimitInfo(
        name=limit.name,
        kind=limit.kind,
        size=limit.size if row.size is None else row.size,
        declared=limit.size,
        per=timedelta(microseconds=limit.per) if limit.per else None,
        burst=limit.burst or None,
        used=used,
    )


def _subject(name: str) -> str:
    return f"limit {name!r}"


def _unknown_limit(name: str, known: LimitNames) -> NotFound:
    hint = "A limit is in the store after the first job named it. app.limits.list() shows every limit."
    return NotFound("limit", name, known, hint=hint)
