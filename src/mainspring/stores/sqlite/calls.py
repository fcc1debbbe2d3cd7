"""A piece of work handed to the thread that owns a connection, and the way its answer comes back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .tx import Tx


_NOBODY: set[str] = set()


class Call:
    """``work`` runs inside a transaction, perhaps more than once until one commits: it has no other effects."""

    __slots__ = ("bell", "done", "error", "future", "loop", "optional", "value", "woken", "work")

    def __init__(
        self,
        work: Callable[[Tx], Any],
        *,
        optional: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.work = work
        self.optional = optional
        """Refused when the disk is full; what is not optional goes on to the reserve."""
        self.loop = loop
        self.future: asyncio.Future[Any] | None = loop.create_future() if loop is not None else None
        self.value: Any = None
        self.error: BaseException | None = None
        self.woken = _NOBODY
        self.done = False
        self.bell: threading.Event | None = None
        """For a blocking caller that leaves the work to another thread."""

    @property
    def abandoned(self) -> bool:
        """Nobody waits any more."""
        return self.future is not None and self.future.cancelled()

    def run(self, tx: Tx) -> None:
        self.error = None
        self.value = self.work(tx)
        self.woken = tx.woken

    def fail(self, error: BaseException) -> None:
        self.value, self.error = None, error
        self.woken = _NOBODY

    def settle(self) -> None:
        """Tell whoever waits."""
        self.done = True
        if self.bell is not None:
            self.bell.set()
        if self.loop is not None:
            with suppress(RuntimeError):  # the loop was closed: nobody is left to be told
                self.loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        assert self.future is not None
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)

    def result(self) -> Any:
        """For a blocking caller, after the call was settled."""
        if self.error is not None:
            raise self.error
        return self.value
