"""app.locks: which locks are held now, by which process, since when. Every ``x`` has an async version ``ax``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from mainspring.client import blocking
from mainspring.common.clock import to_datetime
from mainspring.common.handles import Reserved
from mainspring.limits.records import HolderRow
from mainspring.locks.hold import LockHolder
from mainspring.locks.names import PREFIX, Kind, parse_bucket
from mainspring.options import checks

if TYPE_CHECKING:
    from mainspring.app import Mainspring


class LockInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One holder of a lock, semaphore or election, at the time of the call."""

    name: str
    kind: Kind
    """``lock``, ``semaphore`` or ``election``."""
    token: int
    """The fencing token of the holder."""
    holder: LockHolder
    since: datetime
    until: datetime
    """When the lock is free unless the holder renews it."""
    remaining: timedelta


LockInfos = list[LockInfo]


class Locks(Reserved):
    """The locks of the whole fleet."""

    _PATH = "app.locks"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def alist(self, limit: int = 1000) -> LockInfos:
        """Return the held locks, by kind and name; at most ``limit``. A semaphore has one entry for each holder."""
        checks.whole(1, 10_000)(limit, "limit")
        rows = await (await self._app.client.store()).holders(PREFIX, limit)
        return [_build_info(row) for row in rows]

    list = blocking.twin(alist)


def _build_info(row: HolderRow) -> LockInfo:
    kind, name = parse_bucket(row.bucket)
    return LockInfo(
        name=name,
        kind=kind,
        token=row.token,
        holder=LockHolder.read(row.info),
        since=to_datetime(row.since),
        until=to_datetime(row.until),
        remaining=timedelta(microseconds=row.left),
    )
