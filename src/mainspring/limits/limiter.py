"""Limiter: named limits that several tasks share and that any code may obey: a job, a web process, a script."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mainspring.client import blocking
from mainspring.common.duration import Duration, to_us
from mainspring.common.handles import Handle
from mainspring.errors import InvalidOption, LimitTimeout, StoreError
from mainspring.limits.declare import Concurrency, LimitSet, Rate, bind
from mainspring.limits.holder import CapacityHolder
from mainspring.limits.records import Bucket, Limit
from mainspring.options.checks import some_task_name

if TYPE_CHECKING:
    from mainspring.app import Mainspring

LOOK = 1.0
"""Seconds between two looks at a bucket in which somebody has to give a place back."""
SOON = 0.2
"""The first of them, while the next place there is kept for those who look so; then ever longer."""
KEEP = 1_500_000
"""Microseconds for which it is."""

log = logging.getLogger("mainspring.limits")


class Limiter(Handle, LimitSet):
    """``with limiter:`` and ``async with limiter:`` wait for a place and hold it; ``limit=limiter`` limits tasks by it.

    A place is renewed while its process lives; after a crash it is free within 30 s. A rate counts the
    moment of entering.
    """

    INSTEAD = "Make it again: app.limiter(name, ...)."

    def __init__(
        self, app: Mainspring, name: str, limits: Sequence[Concurrency | Rate], *, key: str = "", cost: int = 1,
        wait: Duration | None = None,
    ) -> None:  # fmt: skip
        some_task_name(name, "name")
        if not limits or not all(isinstance(each, (Concurrency, Rate)) for each in limits):
            hint = 'app.limiter("api", Rate(100, per="1s"))'
            raise InvalidOption(
                "limits", limits, "must be Concurrency and Rate", subject=f"limiter {name!r}", hint=hint
            )
        super().__init__(name, limits)
        self._app = app
        self._key, self._cost, self._wait = key, cost, wait
        self._places: list[CapacityHolder] = []
        self._limits = tuple(bound.limit for bound in bind(self.owner, self.limits, f"limiter {name!r}"))

    def at(self, *, key: str | None = None, cost: int | None = None, wait: Duration | None = None) -> Limiter:
        """The same limiter for one value of its ``by``, for what costs more than 1, or with an end to the waiting."""
        return Limiter(
            self._app, self.name, self.limits, key=self._key if key is None else key,
            cost=self._cost if cost is None else cost, wait=self._wait if wait is None else wait,
        )  # fmt: skip

    def told_to(self, known: dict[str, tuple[Limit, ...]]) -> Self:
        """Itself; refused if another of its name is known with other limits."""
        if known.setdefault(self.name, self._limits) != self._limits:
            why, hint = "is that of a limiter with other limits", "Declare it once, or choose another name."
            raise InvalidOption("name", self.name, why, subject=repr(self), hint=hint)
        return self

    def __enter__(self) -> Self:
        self._push(blocking.run(f"with {self!r}", self._take()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        blocking.run(f"with {self!r}", self._give(self._pop()))

    async def __aenter__(self) -> Self:
        self._push(await self._take())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._give(self._pop())

    def __repr__(self) -> str:
        return f"<Limiter {self.name}{f' at {self._key!r}' if self._key else ''}>"

    # ---- private ------------------------------------------------------------------------------

    async def _take(self) -> CapacityHolder:
        """Wait for room in every bucket; ``LimitTimeout`` when that takes too long."""
        visit = CapacityHolder(self._app.client, self, self._buckets(), self._limits)
        began = time.monotonic()
        patience = None if self._wait is None else to_us(self._wait, what="wait") / 1e6
        look = SOON
        while True:
            waits = patience is None or time.monotonic() < began + patience
            said = await visit.ask(KEEP if waits else 0)
            if said.ok:
                return visit
            if said.next_at is not None:
                pause = max(0.0, (said.next_at - said.now) / 1e6)
            else:
                pause = (look if said.kept else LOOK) * random.uniform(0.7, 1.0)
                look = min(look * 1.5, LOOK)
            if patience is not None:
                left = began + patience - time.monotonic()
                if left <= 0 or (said.next_at is not None and pause > left):
                    raise LimitTimeout(said.full, time.monotonic() - began)
                pause = min(pause, left)
            await asyncio.sleep(pause)

    async def _give(self, visit: CapacityHolder) -> None:
        """Whatever it meets, the work is done: a place that cannot be given back is free when its time is over."""
        try:
            await visit.leave()
        except StoreError as trouble:
            log.warning("%r could not give its place back, which is free within 30 s: %s", self, trouble)

    def _push(self, visit: CapacityHolder) -> None:
        if any(limit.kind == "concurrency" for limit in self._limits):
            visit.keep()
        self._places.append(visit)

    def _pop(self) -> CapacityHolder:
        return self._places.pop()  # those of one limiter are alike: whoever leaves gives the last one back

    def _buckets(self) -> tuple[Bucket, ...]:
        found = []
        for limit, declared in zip(self._limits, self.limits, strict=True):
            if declared.by is not None and not self._key:
                hint = f'with {self.name}.at(key="..."):'
                raise InvalidOption("by", declared.by, "needs a key outside of a task", subject=repr(self), hint=hint)
            cost = self._cost if limit.kind != "concurrency" else 1
            found.append(Bucket(limit.name, self._key if declared.by is not None else "", _within(limit, cost)))
        return tuple(found)


def _within(limit: Limit, cost: int) -> int:
    if type(cost) is not int or not 1 <= cost <= max(1, limit.size):
        raise InvalidOption("cost", cost, f"must be a whole number from 1 to {limit.size}", subject=limit.name)
    return cost
