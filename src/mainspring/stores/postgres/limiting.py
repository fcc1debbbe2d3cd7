"""The part of the store that has to do with limits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from mainspring.breakers.records import BreakerRow
from mainspring.limits.records import Bucket, BucketRow, HolderRow, HoldResult, Limit, LimitRow
from mainspring.stores.postgres import limits as told
from mainspring.stores.postgres.session import Sessions
from mainspring.stores.postgres.statements import fill


class Limiting(ABC):
    """Declares limits, tells of buckets, and lets guests in and out."""

    schema: str
    _sessions: Sessions

    async def declare_limits(self, limits: Sequence[Limit]) -> None:
        if limits:
            await self._stirred(told.DECLARE, {"limits": told.limits_json(limits)})

    async def set_limit_size(self, limit: str, size: int | None) -> bool:
        return await self._stirred(told.SET_SIZE, {"limit": limit, "size": size})

    async def forget_limit(self, limit: str) -> bool:
        return await self._stirred(told.FORGET, {"limit": limit})

    async def limits(self) -> list[LimitRow]:
        return [told.limit_row(row) for row in await self._sessions.rows(fill(told.LIMITS, self.schema), {})]

    async def buckets(self, buckets: Sequence[Bucket]) -> list[BucketRow]:
        return told.bucket_rows(buckets, await self._sessions.rows(*told.look(buckets, self.schema, self._now())))

    async def hold(
        self, holder: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit] = (), keep: int = 0, *,
        info: bytes = b"", fenced: bool = False,
    ) -> HoldResult:  # fmt: skip
        now = self._now()
        call = told.admit(holder, buckets, ttl, limits, keep, info=info, fenced=fenced, schema=self.schema, now=now)
        rows = await self._sessions.rows(*call)
        await self._ring(rows[0][-1])
        return told.taken(buckets, rows)

    async def release(self, holder: bytes, spent: Sequence[tuple[str, int]] = (), slow: int = 0) -> bool:
        call = told.give(holder, spent, slow, schema=self.schema, now=self._now())
        ((held, woken),) = await self._sessions.rows(*call)
        await self._ring(woken)
        return bool(held)

    async def holders(self, of: Bucket | str, limit: int = 1000) -> list[HolderRow]:
        call = told.guests(of, limit, schema=self.schema, now=self._now())
        return told.guest_rows(of, await self._sessions.rows(*call))

    async def trip_breaker(self, breaker: str, span: int | None) -> bool:
        return await self._changed(told.TRIP, {"name": breaker, "span": span, "now": self._now()})

    async def reset_breaker(self, breaker: str) -> bool:
        return await self.trip_breaker(breaker, 0)

    async def report_breaker(self, breaker: str, started: int, good: int = 0, fault: str = "") -> BreakerRow | None:
        said = {"name": breaker, "started": started, "good": good, "fault": fault, "now": self._now()}
        ((news, woken),) = await self._sessions.rows(fill(told.TELL, self.schema), said)
        await self._ring(woken)
        return None if news is None else told.breaker_row(news)

    async def _stirred(self, text: str, params: dict[str, object]) -> bool:
        """The same, and whoever waits for it is looked at again, some at a time; promotions do what is left undone."""
        known = await self._changed(text, params)
        more = known
        while more:
            ((woken, more),) = await self._sessions.rows(fill(told.STIR, self.schema), {})
            await self._ring(woken)
        return known

    async def _changed(self, text: str, params: dict[str, object]) -> bool:
        """Change a limit and wake whom that concerns; False if there is none."""
        ((woken,),) = await self._sessions.rows(fill(text, self.schema), params)
        await self._ring(woken or ())
        return woken is not None

    @abstractmethod
    def _now(self) -> int | None: ...

    @abstractmethod
    async def _ring(self, queues: Iterable[str]) -> None: ...
