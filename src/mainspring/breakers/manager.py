"""app.breakers: list breakers, open and close them by hand. Every method ``x`` has an async version ``ax``."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

import msgspec

from mainspring.breakers.declare import DeclaredBreaker
from mainspring.breakers.records import BREAKER_SUFFIX, BreakerRow
from mainspring.breakers.swap import reset, trip
from mainspring.client import blocking
from mainspring.common.clock import to_datetime
from mainspring.common.handles import Reserved
from mainspring.errors import NotFound
from mainspring.limits.records import Bucket, BucketRow, Limit
from mainspring.options import checks
from mainspring.tasks.notify import announce

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.breakers.breaker import Breaker
    from mainspring.common.duration import Duration
    from mainspring.stores.base import Store


class BreakerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker, at the time of the call."""

    name: str
    state: Literal["closed", "open", "half_open"]
    failures: int
    """Failures in a row, or within the window. For a breaker that is not closed: the failures that opened it."""
    calls: int
    """Calls within the window, for a breaker with ``rate=``."""
    opened: datetime | None
    until: datetime | None
    """When the next probe starts; None for a closed breaker, and for one that is open until ``reset``."""
    error: str
    """The last error."""
    tripped: bool
    """An operator opened it with ``trip``."""
    probing: int
    """Probes that run now."""
    probes: int
    """Probes that may run at the same time."""
    open_for: timedelta
    threshold: int
    """Failures in a row that open it. For a breaker with ``rate=``: the minimum number of calls."""
    rate: float | None
    over: timedelta | None


BreakerInfos = list[BreakerInfo]
BreakerNames = list[str]


class Breakers(Reserved):
    """The breakers of the whole fleet. A breaker is in the store after the first job named it or code entered it."""

    _PATH = "app.breakers"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def alist(self) -> BreakerInfos:
        """Return every breaker in the store, by name."""
        return await _load_infos(await self._app.client.store())

    list = blocking.twin(alist)

    async def aget(self, name: str | Breaker) -> BreakerInfo:
        """Return one breaker; ``NotFound`` if it is not in the store."""
        wanted, infos = _check_name(name), await self.alist()
        for info in infos:
            if info.name == wanted:
                return info
        raise _unknown_breaker(wanted, [info.name for info in infos])

    get = blocking.twin(aget)

    async def atrip(self, name: str | Breaker, for_: Duration | None = None) -> None:
        """Open a breaker now: for ``for_``, or until ``reset``. Running jobs continue; no other guarded code starts."""
        wanted, span = _check_name(name), checks.span_or_none(for_, "for_")
        store = await self._app.client.store()
        await self._announce(wanted, store, await trip(store, wanted + BREAKER_SUFFIX, span))

    trip = blocking.twin(atrip)

    async def areset(self, name: str | Breaker) -> None:
        """Close a breaker now and reset its failure count."""
        wanted, store = _check_name(name), await self._app.client.store()
        await self._announce(wanted, store, await reset(store, wanted + BREAKER_SUFFIX))

    reset = blocking.twin(areset)

    async def _announce(self, name: str, store: Store, changed: Iterable[BreakerRow] | None) -> None:
        """Call the hooks of these changes; ``NotFound`` for None."""
        if changed is None:
            raise _unknown_breaker(name, [info.name for info in await _load_infos(store)])
        for row in changed:
            announce(self._app.hooks, row)


async def _load_infos(store: Store) -> BreakerInfos:
    limits = [row.limit for row in await store.limits() if row.limit.kind == "breaker"]
    rows = {row.name: row for row in await store.buckets([Bucket(limit.name) for limit in limits])}
    return [_build_info(limit, rows[limit.name]) for limit in limits if limit.name in rows]


def _build_info(limit: Limit, row: BucketRow) -> BreakerInfo:
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


def _check_name(name: object) -> str:
    """Return the name of a breaker, given as a name or as a breaker object."""
    return checks.some_task_name(name.name if isinstance(name, DeclaredBreaker) else name, "breaker")


def _unknown_breaker(name: str, known: BreakerNames) -> NotFound:
    hint = "A breaker is in the store after the first job named it or code entered it. See app.breakers.list()."
    return NotFound("breaker", name, known, hint=hint)
