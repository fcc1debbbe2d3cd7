"""app.breakers: which breakers there are and how they stand; opened and closed by hand. Every verb has its a-twin."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec

from mainspring.breakers.declare import DeclaredBreaker
from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow
from mainspring.client import blocking
from mainspring.common.clock import SystemClock, to_datetime
from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption, did_you_mean
from mainspring.limits.records import Bucket, BucketRow, Limit
from mainspring.options import checks
from mainspring.tasks.notify import announce

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.breakers.breaker import Breaker
    from mainspring.common.duration import Duration
    from mainspring.stores.base import Store


class BreakerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker when the store was asked."""

    name: str
    state: Literal["closed", "open", "half_open"]
    failures: int
    """In a row, or within the window; of one that is not closed, those that opened it."""
    calls: int
    """Calls within the window, of one that goes by a rate."""
    opened: datetime | None
    until: datetime | None
    """When it is tried again; None of one that is closed, or open until it is reset."""
    error: str
    """What failed last."""
    tripped: bool
    """Somebody opened it by hand."""
    probing: int
    """Probes that run now."""
    probes: int
    open_for: timedelta
    threshold: int
    """Failures in a row that open it; of one that goes by a rate, the least number of calls."""
    rate: float | None
    over: timedelta | None


BreakerInfos = list[BreakerInfo]


class Breakers(Reserved):
    """A breaker is there once a job named it or code entered it. What is done by hand holds for the whole fleet."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def list(self) -> BreakerInfos:
        """Every breaker that the store knows, by name."""
        return blocking.run("app.breakers.list", self.alist())

    async def alist(self) -> BreakerInfos:
        return await _infos(await self._app.client.store())

    def get(self, name: str | Breaker) -> BreakerInfo:
        """One breaker by its name."""
        return blocking.run("app.breakers.get", self.aget(name))

    async def aget(self, name: str | Breaker) -> BreakerInfo:
        wanted, infos = _checked(name), await self.alist()
        for info in infos:
            if info.name == wanted:
                return info
        raise _unknown(wanted, [info.name for info in infos])

    def trip(self, name: str | Breaker, for_: Duration | None = None) -> None:
        """Open it now, for a time or until it is reset. Jobs that run go on; nothing else that it guards starts."""
        return blocking.run("app.breakers.trip", self.atrip(name, for_))

    async def atrip(self, name: str | Breaker, for_: Duration | None = None) -> None:
        wanted, span = _checked(name), checks.span_or_none(for_, "for_")
        store = await self._app.client.store()
        if not await store.trip_breaker(wanted + BREAKER_SUFFIX, span):
            raise _unknown(wanted, [info.name for info in await _infos(store)])
        until = None if span is None else SystemClock().now_us() + span
        announce(self._app.hooks, BreakerRow(name=wanted + BREAKER_SUFFIX, state="open", until=until, tripped=True))

    def reset(self, name: str | Breaker) -> None:
        """Close it now and forget its failures."""
        return blocking.run("app.breakers.reset", self.areset(name))

    async def areset(self, name: str | Breaker) -> None:
        wanted, store = _checked(name), await self._app.client.store()
        before = await store.buckets([Bucket(wanted + BREAKER_SUFFIX)])
        if not await store.reset_breaker(wanted + BREAKER_SUFFIX):
            raise _unknown(wanted, [info.name for info in await _infos(store)])
        if any(row.breaker is not None and row.breaker.state != "closed" for row in before):
            announce(self._app.hooks, BreakerRow(name=wanted + BREAKER_SUFFIX))


async def _infos(store: Store) -> BreakerInfos:
    limits = [row.limit for row in await store.limits() if row.limit.kind == "breaker"]
    rows = {row.name: row for row in await store.buckets([Bucket(limit.name) for limit in limits])}
    return [_info(limit, rows[limit.name]) for limit in limits if limit.name in rows]


def _info(limit: Limit, row: BucketRow) -> BreakerInfo:
    found = row.breaker
    assert found is not None
    return BreakerInfo(
        name=limit.name.removesuffix(BREAKER_SUFFIX),
        state=found.state,
        failures=found.failures,
        calls=found.calls,
        opened=None if found.opened is None else to_datetime(found.opened),
        until=None if found.until is None else to_datetime(found.until),
        error=found.error,
        tripped=found.tripped,
        probing=row.used,
        probes=row.size,
        open_for=timedelta(microseconds=limit.per),
        threshold=limit.burst,
        rate=limit.share / 1_000_000 if limit.share else None,
        over=timedelta(microseconds=limit.span) if limit.share else None,
    )


def _checked(name: object) -> str:
    """The name of a breaker; one that code has in hand may stand for its name."""
    return checks.some_task_name(name.name if isinstance(name, DeclaredBreaker) else name, "breaker")


def _unknown(name: str, known: BreakerNames) -> InvalidOption:
    hint = "A breaker is there once a job named it or code entered it; app.breakers.list() shows them all."
    return InvalidOption("breaker", name, f"is not known to the store{did_you_mean(name, known)}", hint=hint)


BreakerNames = list[str]
