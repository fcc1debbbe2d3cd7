"""A task of the load that takes a lock, and writes down when it asked for it, had it and gave it back."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from mainspring import AsyncContext, Mainspring
from mainspring.common.clock import boottime
from mainspring.errors import LockLost, StoreError
from mainspring.locks.lock import Lock
from mainspring.testing.history import Holding
from tests.processes.fleet import Line
from tests.processes.playground import note

TTL = 1.0
_TRIES = 60
_PAUSE = 0.1


class Locked:
    """The body of the task. What comes of the lock is for the history: the job itself succeeds."""

    __name__ = __qualname__ = "locked"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def __call__(self, ctx: AsyncContext, name: str, seconds: float) -> int:
        note("START", ctx)
        lock = self._app.lock(f"soak-{name}", ttl=TTL, on_busy="skip")
        for _ in range(_TRIES):
            if await self._held(ctx, lock, seconds):
                break
            await asyncio.sleep(_PAUSE)
        note("END", ctx)
        return ctx.token

    async def _held(self, ctx: AsyncContext, lock: Lock, seconds: float) -> bool:
        asked = boottime()
        try:
            if not await lock.aacquire("0s"):
                return False
        except StoreError:
            return False
        token = lock.token
        note(f"HELD/{lock.name}/{token}/{asked:.6f}", ctx)
        await asyncio.sleep(seconds)
        note(f"LEFT/{lock.name}/{token}", ctx)
        try:
            await lock.arelease()
        except (LockLost, StoreError):
            return True
        note(f"KEPT/{lock.name}/{token}", ctx)
        return True


def holdings_of(lines: Iterable[Line]) -> list[Holding]:
    """What the holders of a lock recorded."""
    found: dict[tuple[str, str], Holding] = {}
    left: dict[tuple[str, str], float] = {}
    kept: set[tuple[str, str]] = set()
    for line in lines:
        word, *told = line.word.split("/")
        if word == "HELD":
            lock, token, asked = told
            made = Holding(lock=lock, token=int(token), asked=float(asked), began=line.at, ttl=TTL)
            found[f"{line.pid} {line.job} {lock}", token] = made
        elif word == "LEFT":
            left[f"{line.pid} {line.job} {told[0]}", told[1]] = line.at
        elif word == "KEPT":
            kept.add((f"{line.pid} {line.job} {told[0]}", told[1]))
    return [
        Holding(
            lock=each.lock, token=each.token, asked=each.asked, began=each.began, ttl=each.ttl,
            ended=left.get(key), kept=key in kept,
        )
        for key, each in found.items()
    ]  # fmt: skip
