"""One hold of a lock: from the acquire to the release or the loss."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.common.pause import jittered
from mainspring.errors import LockLost, StoreError, StoreUnavailable
from mainspring.limits.holder import CapacityHolder
from mainspring.limits.records import HoldResult
from mainspring.locks.names import LockName

if TYPE_CHECKING:
    from mainspring.client.client import Client

_RETRY_SHARE = 0.2
"""A failed renewal is sent again after this share of the time between two renewals, and after one second at most."""


class LockHolder(msgspec.Struct, frozen=True):
    """The process that holds a lock, by its own description."""

    host: str = ""
    pid: int = 0
    who: str = ""
    """The task and its job, or the name of the program."""

    @classmethod
    def read(cls, info: bytes) -> LockHolder:
        """Decode a stored description. Return an empty one if it cannot be read."""
        try:
            return msgspec.json.decode(info, type=cls)
        except msgspec.DecodeError:
            return cls()

    @property
    def is_here(self) -> bool:
        """Whether the holder is this process."""
        return (self.host, self.pid) == (socket.gethostname(), os.getpid())

    def __str__(self) -> str:
        return f"{self.who or 'a process'} (pid {self.pid} on {self.host})" if self.pid else "an unknown process"


class Hold(CapacityHolder):
    """A held lock, renewed at every third of its ttl.

    It ends at ``until``, by the clock of this process, unless the store confirms another renewal. ``until`` is counted
    from the moment when the last confirmed renewal was sent, so the store gives the lock to no other holder before.
    """

    log = logging.getLogger("mainspring.locks")

    def __init__(self, client: Client, lock: LockName, ttl: int) -> None:
        super().__init__(client, lock, [lock.bucket], [lock.limit], ttl)
        self.lock = lock
        self.token = 0
        self.until = 0.0
        self.over = False
        """The lock was released, or its loss was reported."""
        self.was_lost = False
        """Whether the lock had been lost when the hold ended."""
        self.on_lost: Callable[[], None] | None = None
        """Called when the lock is lost, from the background loop."""
        self._why = ""
        self._pid = os.getpid()
        self._owner = current_owner()
        self._info = msgspec.json.encode(_describe_this_process())

    async def ask(self, keep: int = 0) -> HoldResult:
        """Try once to get the lock; ``StoreUnavailable`` if the reply took longer than the ttl."""
        store, sent = await self._client.store(), self._client.now()
        try:
            asked = self.id, self._buckets, self.ttl, self._limits, keep
            said = await store.hold(*asked, info=self._info, fenced=True)
            if said.ok and not self._confirm(sent, self.ttl):
                raise StoreUnavailable(
                    f"{self.lock}: the reply of the store took longer than the ttl of {self.ttl / 1e6:g} s",
                    url=store.url, hint="Give the lock a longer ttl.",
                )  # fmt: skip
        except BaseException:
            self.give_up()
            raise
        self.token = said.token
        return said

    async def extend(self, by: int) -> None:
        """Hold the lock for at least ``by`` microseconds from now; ``LockLost`` if it was lost."""
        self.check()
        sent = self._client.now()
        said = await self._renew(by)
        if not said.ok:
            self._lose("its ttl was over before it was extended")
        else:
            self._confirm(sent, by)
        self.check()

    @property
    def lost(self) -> bool:
        """Whether the lock was lost, by the clock of this process. Does not ask the store."""
        return bool(self._why) or self._is_foreign or self._client.now() >= self.until

    @property
    def is_own(self) -> bool:
        """Whether the current thread or task acquired the lock."""
        return self._owner == current_owner() and not self._is_foreign

    @property
    def _is_foreign(self) -> bool:
        return self._pid != os.getpid()

    def check(self) -> None:
        """Raise ``LockLost`` if the lock was lost."""
        if self.lost:
            raise self.loss()

    def loss(self) -> LockLost:
        """Return the error for a lost lock."""
        why = "a forked child does not hold the lock of its parent" if self._is_foreign else self._why
        return LockLost(str(self.lock), self.token, why or "it was not renewed in time")

    async def end(self) -> LockLost | None:
        """Release the lock. Return the error if it was lost before."""
        self.over = True
        self.was_lost = self.lost
        if self._is_foreign:
            return self.loss()
        if self.was_lost:
            self.give_up()
            return self.loss()
        if await self.leave():
            return None
        self.was_lost, self._why = True, self._why or "its ttl was over at the store"
        return self.loss()

    # ---- private ------------------------------------------------------------------------------

    def _confirm(self, sent: float, ttl: int) -> bool:
        """Take in a confirmed renewal. Return whether any time of it is left."""
        self.until = max(self.until, sent + ttl / 1e6)
        return self._client.now() < self.until

    async def _keep(self) -> None:
        period, due = self.ttl / 3e6, self._client.now() + self.ttl / 3e6
        logged = False
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
                if not logged:
                    self.log.warning("%s cannot be renewed: %s", self.lock, error)
                logged, due = True, now + jittered(min(1.0, period * _RETRY_SHARE))
                continue
            if not said.ok:
                break
            self._confirm(now, self.ttl)
            logged, due = False, now + period
        self._lose(
            "it could not be renewed in time" if self._client.now() >= self.until else "another process may hold it"
        )

    def _lose(self, why: str) -> None:
        if self.over or self._why:
            return
        self._why = why
        self.log.warning("%s was lost: %s", self.lock, why)
        if self.on_lost is not None:
            self.on_lost()


class CancelScope:
    """The part of an asyncio task that a lock guards. A lost lock cancels it, in the way of ``asyncio.timeout``."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "async code runs in a task"
        self._task = task
        self._loop = asyncio.get_running_loop()
        self._before = task.cancelling()
        self._cancelled = False
        self._over = False

    def cancel(self) -> None:
        """Cancel the code inside the scope; from any thread."""
        with suppress(RuntimeError):  # the loop is closed: no code runs inside
            self._loop.call_soon_threadsafe(self._cancel_task)

    def leave(self, error: BaseException | None) -> bool:
        """End the scope. Return whether ``error`` is the cancellation by this scope, and by nothing else."""
        self._over = True
        if not self._cancelled:
            return False
        left = self._task.uncancel()
        return left <= self._before and isinstance(error, asyncio.CancelledError)

    def _cancel_task(self) -> None:
        if not self._over:
            self._cancelled = True
            self._task.cancel()


def current_owner() -> tuple[int, Any]:
    """Return the current thread and asyncio task."""
    try:
        return threading.get_ident(), asyncio.current_task()
    except RuntimeError:
        return threading.get_ident(), None


def _describe_this_process() -> LockHolder:
    from mainspring.worker.run.context import current

    attempt = current.get(None)
    if attempt is not None:
        who = f"{attempt.spec.name} {UUID(bytes=attempt.claim.id)}"
    else:
        who = (PurePath(sys.argv[0]).name if sys.argv else "") or "python"
    return LockHolder(socket.gethostname(), os.getpid(), who)
