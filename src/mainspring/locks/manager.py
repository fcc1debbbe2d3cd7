"""app.locks: which locks are held now, by whom, since when. Every verb has its a-twin."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from mainspring.client import blocking
from mainspring.common.clock import to_datetime
from mainspring.common.handles import Reserved
from mainspring.limits.records import HolderRow
from mainspring.locks.hold import LockHolder
from mainspring.locks.names import PREFIX, Kind, spot_of
from mainspring.options import checks

if TYPE_CHECKING:
    from mainspring.app import Mainspring


class LockInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A lock that was held when the store was asked; of a semaphore, one of its holders."""

    name: str
    kind: Kind
    """``lock``, ``semaphore`` or ``election``."""
    token: int
    """The fencing number of its holder."""
    holder: LockHolder
    since: datetime
    until: datetime
    """When it is free unless its holder renews it."""
    remaining: timedelta


LockInfos = list[LockInfo]


class Locks(Reserved):
    """The locks of the whole fleet."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def list(self, limit: int = 1000) -> LockInfos:
        """Those that are held, by kind and name; the first ``limit`` of them."""
        return blocking.run("app.locks.list", self.alist(limit))

    async def alist(self, limit: int = 1000) -> LockInfos:
        checks.whole(1, 10_000)(limit, "limit")
        rows = await (await self._app.client.store()).holders(PREFIX, limit)
        return [_info(row) for row in rows]


def _info(row: HolderRow) -> LockInfo:
    kind, name = spot_of(row.bucket)
    return LockInfo(
        name=name,
        kind=kind,
        token=row.token,
        holder=LockHolder.read(row.info),
        since=to_datetime(row.since),
        until=to_datetime(row.until),
        remaining=timedelta(microseconds=row.left),
    )
