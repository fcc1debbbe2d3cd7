"""One holding of a lock: from the moment at which it was taken until it is given back or lost."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.errors import LockLost, StoreError, StoreUnavailable
from mainspring.limits.holder import CapacityHolder
from mainspring.limits.records import HoldResult
from mainspring.locks.names import LockName

if TYPE_CHECKING:
    from mainspring.client.client import Client

_AGAIN = 0.2
"""Of the time between two renewals: after so much a failed one is sent again, and after a second at most."""


class LockHolder(msgspec.Struct, frozen=True):
    """Who holds a lock, in its own words."""

    host: str = ""
    pid: int = 0
    who: str = ""
    """The task and its job, or the program."""

    @classmethod
    def read(cls, info: bytes) -> LockHolder:
        """As it was stored; of what cannot be read nothing is known."""
        try:
            return msgspec.json.decode(info, type=cls)
        except msgspec.DecodeError:
            return cls()

    @property
    def is_here(self) -> bool:
        """Whether it is this very process."""
        return (self.host, self.pid) == (socket.gethostname(), os.getpid())

    def __str__(self) -> str:
        return f"{self.who or 'somebody'} (pid {self.pid} on {self.host})" if self.pid else "somebody"


class Hold(CapacityHolder):
    """Renewed each third of its ttl. It ends at ``until``, by this process's own clock, unless the store has confirmed
    another renewal: counted from the sending of the last one that was, so the store lets nobody in before that."""

    log = logging.getLogger("mainspring.locks")

    def __init__(self, client: Client, spot: LockName, ttl: int) -> None:
        super().__init__(client, spot, [spot.bucket], [spot.limit], ttl)
        self.spot = spot
        self.token = 0
        self.until = 0.0
        self.over = False
        """It was given back, or its loss was told."""
        self.was_lost = False
        """Whether it had been lost when it was over."""
        self.on_lost: Callable[[], None] | None = None
        self._why = ""
        self._pid = os.getpid()
        self._owner = here()
        self._info = msgspec.json.encode(_me())

    async def ask(self, keep: int = 0) -> HoldResult:
        """One try; ``StoreUnavailable`` if the answer took so long that it is worth nothing."""
        store, sent = await self._client.store(), self._client.now()
        try:
            asked = self.guest, self._buckets, self.ttl, self._limits, keep
            said = await store.hold(*asked, info=self._info, fenced=True)
            if said.ok and not self._confirmed(sent, self.ttl):
                raise StoreUnavailable(
                    f"{self.spot}: the store took longer to answer than the ttl of {self.ttl / 1e6:g} s",
                    url=store.url, hint="Give the lock a longer ttl.",
                )  # fmt: skip
        except BaseException:
            self.give_up()
            raise
        self.token = said.token
        return said

    async def extend(self, by: int) -> None:
        """Keep it for so long from now; ``LockLost`` if it is not there to be kept."""
        self.check()
        sent = self._client.now()
        said = await self._renew(by)
        if not said.ok:
            self._lose("its time was over when it was to be extended")
        else:
            self._confirmed(sent, by)
        self.check()

    @property
    def lost(self) -> bool:
        return bool(self._why) or self._is_foreign or self._client.now() >= self.until

    @property
    def is_own(self) -> bool:
        """Whether the thread or task that asks is the one that took it."""
        return self._owner == here() and not self._is_foreign

    @property
    def _is_foreign(self) -> bool:
        return self._pid != os.getpid()

    def check(self) -> None:
        """``LockLost`` if it was."""
        if self.lost:
            raise self.loss()

    def loss(self) -> LockLost:
        why = "a fork does not take it along: the parent holds it" if self._is_foreign else self._why
        return LockLost(str(self.spot), self.token, why or "it was not renewed in time")

    async def end(self) -> LockLost | None:
        """It is held no more; returns the loss if it was lost before."""
        self.over = True
        self.was_lost = self.lost
        if self._is_foreign:
            return self.loss()
        if self.was_lost:
            self.give_up()
            return self.loss()
        if await self.leave():
            return None
        self.was_lost, self._why = True, self._why or "its time was over at the store"
        return self.loss()

    # ---- private ------------------------------------------------------------------------------

    def _confirmed(self, sent: float, ttl: int) -> bool:
        """Whether there is anything left of what was confirmed."""
        self.until = max(self.until, sent + ttl / 1e6)
        return self._client.now() < self.until

    async def _keep(self) -> None:
        period, due = self.ttl / 3e6, self._client.now() + self.ttl / 3e6
        told = False
        while not self.lost:
            now = self._client.now()
            if now < due:
                await asyncio.sleep(min(due - now, self.until - now, self._client.glance))
                continue
            try:
                async with asyncio.timeout(self.until - now):
                    said = await self._renew(self.ttl)
            except TimeoutError:
                break
            except StoreError as error:
                if not told:
                    self.log.warning("%s cannot be renewed: %s", self.spot, error)
                told, due = True, now + min(1.0, period * _AGAIN) * random.uniform(0.5, 1.0)
                continue
            if not said.ok:
                break
            self._confirmed(now, self.ttl)
            told, due = False, now + period
        self._lose("it could not be renewed in time" if self._client.now() >= self.until else "another may hold it")

    def _lose(self, why: str) -> None:
        if self.over or self._why:
            return
        self._why = why
        self.log.warning("%s was lost: %s", self.spot, why)
        if self.on_lost is not None:
            self.on_lost()


class Scope:
    """The part of a task that a lock guards: cancelled when that is lost. The ways of ``asyncio.timeout``."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "async code runs in a task"
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._before = task.cancelling()
        self._struck = False
        self._over = False

    def strike(self) -> None:
        """From any thread: end what runs inside."""
        with suppress(RuntimeError):  # the loop is closed: nothing runs inside
            self._loop.call_soon_threadsafe(self._cancel)

    def leave(self, error: BaseException | None) -> bool:
        """Nothing runs inside any more. Whether ``error`` is a cancellation by us and by nobody else."""
        self._over = True
        if not self._struck:
            return False
        left = self._task.uncancel()
        return left <= self._before and isinstance(error, asyncio.CancelledError)

    def _cancel(self) -> None:
        if not self._over:
            self._struck = True
            self._task.cancel()


def here() -> tuple[int, Any]:
    """The thread and the task that ask."""
    try:
        return threading.get_ident(), asyncio.current_task()
    except RuntimeError:
        return threading.get_ident(), None


def _me() -> LockHolder:
    from mainspring.worker.run.context import current

    attempt = current.get(None)
    if attempt is not None:
        who = f"{attempt.spec.name} {UUID(bytes=attempt.claim.id)}"
    else:
        who = (PurePath(sys.argv[0]).name if sys.argv else "") or "python"
    return LockHolder(socket.gethostname(), os.getpid(), who)
