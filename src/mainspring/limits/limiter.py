"""Limiter: named limits that several tasks can share, and that any code can use: a job, a web process, a script."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from mainspring.client import blocking
from mainspring.common.duration import Duration, to_us
from mainspring.common.handles import Handle
from mainspring.common.pause import GrowingPause, jittered
from mainspring.errors import InvalidOption, LimitTimeout, StoreError
from mainspring.limits.declare import Concurrency, LimitSet, Rate, bind
from mainspring.limits.holder import CapacityHolder
from mainspring.limits.records import Bucket, Limit
from mainspring.options.checks import some_task_name

if TYPE_CHECKING:
    from mainspring.app import Mainspring

LONGEST_POLL = 1.0
"""Seconds between two tries, while another holder must release capacity first."""
FIRST_POLL = 0.2
"""Seconds before the second try, while the store reserves the next free capacity for waiting blocks; then longer."""
KEEP = 1_500_000
"""Microseconds for which the store reserves it after each try."""

log = logging.getLogger("mainspring.limits")


class Limiter(Handle, LimitSet):
    """``with limiter:`` and ``async with limiter:`` wait for capacity and hold it. ``limit=limiter`` limits tasks.

    The capacity is renewed while the process lives; after a crash it is free within 30 s. A rate counts the moment at
    which the block is entered.
    """

    _INSTEAD = "Call app.limiter(name, ...) again."

    def __init__(
        self, app: Mainspring, name: str, limits: Sequence[Concurrency | Rate], *, key: str = "", cost: int = 1,
        wait: Duration | None = None,
    ) -> None:  # fmt: skip
        some_task_name(name, "name")
        if not limits or not all(isinstance(each, (Concurrency, Rate)) for each in limits):
            hint = 'app.limiter("api", Rate(100, per="1s"))'
            why = "must be one or more Concurrency and Rate"
            raise InvalidOption("limits", limits, why, subject=f"limiter {name!r}", hint=hint)
        super().__init__(name, limits)
        self._app = app
        self._key, self._cost, self._wait = key, cost, wait
        self._holders: list[CapacityHolder] = []
        self._limits = tuple(bound.limit for bound in bind(self.owner, self.limits, f"limiter {name!r}"))

    def at(self, *, key: str | None = None, cost: int | None = None, wait: Duration | None = None) -> Limiter:
        """Return the same limiter for one value of ``by``, with another cost, or with a maximum time to wait.

        ``LimitTimeout`` if there is no capacity after ``wait``.
        """
        if key is not None and all(each.by is None for each in self.limits):
            hint = (
                f'Declare the limit with by=, for example Rate(100, per="1s", by="tenant"), or write {self.name}.at().'
            )
            raise InvalidOption(
                "key", key, "is given to a limiter whose limits have no by=", subject=repr(self), hint=hint
            )
        return Limiter(
            self._app, self.name, self.limits, key=self._key if key is None else key,
            cost=self._cost if cost is None else cost, wait=self._wait if wait is None else wait,
        )  # fmt: skip

    @property
    def of_a_block(self) -> str:
        """What :meth:`at` chose, as written; empty for the limiter itself."""
        given = {"key": self._key or None, "cost": None if self._cost == 1 else self._cost, "wait": self._wait}
        return ", ".join(f"{name}={value!r}" for name, value in given.items() if value is not None)

    def register(self, known: dict[str, tuple[Limit, ...]]) -> Self:
        """Add itself to the limiters of an app. A limiter of the same name with other limits is refused."""
        if known.setdefault(self.name, self._limits) != self._limits:
            why, hint = "is the name of a limiter with other limits", "Declare it once, or choose another name."
            raise InvalidOption("name", self.name, why, subject=repr(self), hint=hint)
        return self

    def __enter__(self) -> Self:
        self._push(blocking.run(f"with {self!r}", self._take))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        blocking.run(f"with {self!r}", partial(self._release, self._pop()))

    async def __aenter__(self) -> Self:
        self._push(await self._take())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._release(self._pop())

    def __repr__(self) -> str:
        return f"<Limiter {self.name}{f' at {self._key!r}' if self._key else ''}>"

    # ---- private ------------------------------------------------------------------------------

    async def _take(self) -> CapacityHolder:
        """Wait for capacity in every bucket; ``LimitTimeout`` after ``wait``."""
        holder = CapacityHolder(self._app.client, self, self._buckets(), self._limits)
        began = time.monotonic()
        patience = None if self._wait is None else to_us(self._wait, what="wait") / 1e6
        polls = GrowingPause(FIRST_POLL, longest=LONGEST_POLL, factor=1.5, least=0.7)
        while True:
            waits = patience is None or time.monotonic() < began + patience
            said = await holder.ask(KEEP if waits else 0)
            if said.ok:
                return holder
            if said.next_at is not None:
                pause = max(0.0, (said.next_at - said.now) / 1e6)
            else:
                growing = polls.next()
                pause = growing if said.kept else jittered(LONGEST_POLL, least=0.7)
            if patience is not None:
                left = began + patience - time.monotonic()
                if left <= 0 or (said.next_at is not None and pause > left):
                    raise LimitTimeout(said.full, time.monotonic() - began)
                pause = min(pause, left)
            await asyncio.sleep(pause)

    async def _release(self, holder: CapacityHolder) -> None:
        """Release the capacity. A failure is only logged: the work of the block is done, and the ttl frees it."""
        try:
            await holder.leave()
        except StoreError as trouble:
            log.warning("%r could not release its capacity, which is free within 30 s: %s", self, trouble)

    def _push(self, holder: CapacityHolder) -> None:
        if any(limit.kind == "concurrency" for limit in self._limits):
            holder.keep()
        self._holders.append(holder)

    def _pop(self) -> CapacityHolder:
        return self._holders.pop()  # any holder will do: all holders of one limiter are alike

    def _buckets(self) -> tuple[Bucket, ...]:
        found = []
        for limit, declared in zip(self._limits, self.limits, strict=True):
            if declared.by is not None and not self._key:
                hint = f'Give the key: with {self.name}.at(key="..."):'
                raise InvalidOption("by", declared.by, "needs a key in a block", subject=repr(self), hint=hint)
            cost = self._cost if limit.kind != "concurrency" else 1
            found.append(Bucket(limit.name, self._key if declared.by is not None else "", _check_cost(limit, cost)))
        return tuple(found)


def _check_cost(limit: Limit, cost: int) -> int:
    if type(cost) is not int or not 1 <= cost <= max(1, limit.size):
        raise InvalidOption("cost", cost, f"must be a whole number from 1 to {limit.size}", subject=limit.name)
    return cost
