"""app.limits: what is limited, for the whole fleet, and by how much; changed at run time. Every verb has its a-twin."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec

from mainspring.breakers.records import is_breaker
from mainspring.client import blocking
from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption, did_you_mean
from mainspring.limits.records import Bucket, LimitRow
from mainspring.locks.names import is_fixed

if TYPE_CHECKING:
    from mainspring.app import Mainspring

_LARGEST = 1_000_000_000


class LimitInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A limit when the store was asked."""

    name: str
    kind: str
    """``concurrency``, ``rate`` or ``smooth``."""
    size: int
    """What it lets through now: at once, or in each window."""
    declared: int
    """What the code declared; another number than ``size`` where somebody set one."""
    per: timedelta | None
    burst: int | None
    used: int
    """Of the limit as a whole; those with a key are counted by key."""


LimitInfos = list[LimitInfo]


class Limits(Reserved):
    """A limit is there once a job named it. ``set`` holds until ``reset``, whatever code declares."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def list(self) -> LimitInfos:
        """Every limit that the store knows, by name."""
        return blocking.run("app.limits.list", self.alist())

    async def alist(self) -> LimitInfos:
        store = await self._app.client.store()
        rows = [row for row in await store.limits() if row.limit.kind != "breaker" and not is_fixed(row.limit.name)]
        uses = {each.name: each.used for each in await store.buckets([Bucket(row.limit.name) for row in rows])}
        return [_info(row, uses.get(row.limit.name, 0)) for row in rows]

    def get(self, name: str) -> LimitInfo:
        """One limit by its name."""
        return blocking.run("app.limits.get", self.aget(name))

    async def aget(self, name: str) -> LimitInfo:
        infos = await self.alist()
        for info in infos:
            if info.name == name:
                return info
        raise _unknown(name, [info.name for info in infos])

    def set(self, name: str, size: int) -> None:
        """Let so many through from now on, also fewer than run now; 0 lets nothing through."""
        return blocking.run("app.limits.set", self.aset(name, size))

    async def aset(self, name: str, size: int) -> None:
        if type(size) is not int or not 0 <= size <= _LARGEST:
            raise InvalidOption("size", size, "must be a whole number from 0", subject=f"limit {name!r}")
        await self._set(name, size)

    def reset(self, name: str) -> None:
        """Let through what the code declares."""
        return blocking.run("app.limits.reset", self.areset(name))

    async def areset(self, name: str) -> None:
        await self._set(name, None)

    def delete(self, name: str) -> None:
        """Forget a limit that no code declares any more; jobs that name it are not limited by it."""
        return blocking.run("app.limits.delete", self.adelete(name))

    async def adelete(self, name: str) -> None:
        store = await self._app.client.store()
        if is_breaker(name) or is_fixed(name) or not await store.forget_limit(name):
            raise _unknown(name, [info.name for info in await self.alist()])

    async def _set(self, name: str, size: int | None) -> None:
        store = await self._app.client.store()
        if is_breaker(name) or is_fixed(name) or not await store.set_limit_size(name, size):
            raise _unknown(name, [info.name for info in await self.alist()])


def _info(row: LimitRow, used: int) -> LimitInfo:
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


def _unknown(name: str, known: LimitNames) -> InvalidOption:
    hint = "A limit is there once a job named it; app.limits.list() shows them all."
    return InvalidOption("limit", name, f"is not known to the store{did_you_mean(name, known)}", hint=hint)


LimitNames = list[str]
