"""The blocking face: one background event loop per process, started when first needed.

``x`` blocks and ``ax`` awaits; the async core is written once and the blocking verbs hand it to
this loop. Enqueueing does not come here: it runs in the calling thread.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import aclosing
from typing import Any, TypeVar

from mainspring.errors import WouldBlockLoop

R = TypeVar("R")


class _Background:
    """The loop of this process and the thread that runs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="mainspring-sync", daemon=True).start()
            return self._loop

    def after_fork(self) -> None:
        """The child has no loop thread; the parent's loop object is left alone, never closed."""
        _inherited.append(self._loop)
        self.__init__()  # type: ignore[misc]  # begin anew in place


_inherited: list[object] = []
_background = _Background()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.after_fork)


def run(verb: str, call: Coroutine[Any, Any, R]) -> R:
    """Run ``call`` to its end from blocking code. ``verb`` names the method for the error."""
    if in_loop() and not in_notebook():
        call.close()
        raise WouldBlockLoop(verb)
    future = asyncio.run_coroutine_threadsafe(call, _background.loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # Ctrl-C while waiting: end the call too
        raise


def spawn(call: Coroutine[Any, Any, R]) -> Future[R]:
    """Start ``call`` on the background loop and let it run; cancel what is returned to end it."""
    return asyncio.run_coroutine_threadsafe(call, _background.loop)


def each(verb: str, batches: AsyncGenerator[Sequence[R]]) -> Iterator[R]:
    """Go through ``batches`` from blocking code, item by item: the loop is asked once per batch.

    Between two batches nothing runs and nothing is held, so an iterator that is given up leaves nothing behind.
    """
    _refuse_loop(verb)
    return _each(verb, batches)


def _each(verb: str, batches: AsyncGenerator[Sequence[R]]) -> Iterator[R]:
    while (batch := run(verb, _step(batches))) is not None:
        yield from batch
        _refuse_loop(verb)


def _refuse_loop(verb: str) -> None:
    if in_loop() and not in_notebook():
        error = WouldBlockLoop(verb)
        error.hint = f"Use: async for ... in {error.twin}(...)"
        raise error


async def _step(batches: AsyncGenerator[Sequence[R]]) -> Sequence[R] | None:
    return await anext(batches, None)


async def aeach(batches: AsyncGenerator[Sequence[R]]) -> AsyncIterator[R]:
    """The async twin of :func:`each`."""
    async with aclosing(batches):
        async for batch in batches:
            for item in batch:
                yield item


def in_loop() -> bool:
    """Whether the calling thread is inside a running event loop."""
    return asyncio._get_running_loop() is not None  # noqa: SLF001  # get_running_loop() raises: three times the cost per enqueue


def warn_blocking(verb: str) -> None:
    """Say once per place that a blocking verb holds up the event loop it was called in."""
    if not in_notebook():
        text = f"{verb}() blocks the running event loop; use: await a{verb}(...)"
        warnings.warn(text, stacklevel=_outside())


def _outside() -> int:
    """The stack level of the caller that is not of this package."""
    level, frame = 2, sys._getframe(2)  # noqa: SLF001  # the only way to walk the stack without its cost
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mainspring."):
        level, frame = level + 1, frame.f_back
    return level


def in_notebook() -> bool:
    """IPython keeps a loop running in every cell; a blocking wait is what its user means."""
    return "IPython" in sys.modules and "get_ipython" in dir(__import__("builtins"))
