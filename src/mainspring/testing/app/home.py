"""The event loop of a test's jobs: the loop of the caller, or a loop in a thread.

``async with`` makes the running loop the home: async jobs share it with the test, so they can use
objects that the test has opened there. ``with`` starts a thread with its own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from mainspring.client import blocking
from mainspring.errors import NotOpen, WouldBlockLoop

R = TypeVar("R")


class LoopHome:
    """Runs calls on the loop from any thread and from any other loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @property
    def here(self) -> bool:
        """Whether the caller runs on this loop."""
        return asyncio._get_running_loop() is self._loop  # noqa: SLF001 - get_running_loop() raises without a loop

    def run(self, verb: str, call: Coroutine[Any, Any, R]) -> R:
        """Run ``call`` to its end from blocking code; ``verb`` is the method named in the error."""
        if self.here or (blocking.in_loop() and not blocking.in_notebook()):
            call.close()
            raise WouldBlockLoop(verb)
        future = asyncio.run_coroutine_threadsafe(call, self._checked(call))
        try:
            return future.result()
        except BaseException:
            future.cancel()  # Ctrl-C during the wait ends the call too
            raise

    async def arun(self, call: Coroutine[Any, Any, R]) -> R:
        """Async version of :meth:`run`."""
        if self.here:
            return await call
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._checked(call)))

    def close(self) -> None:
        """The loop of the caller, which is not closed here."""

    def _checked(self, call: Coroutine[Any, Any, Any]) -> asyncio.AbstractEventLoop:
        if self._loop.is_closed():
            call.close()
            raise NotOpen(
                "the event loop that this test was entered on is closed",
                hint="Enter app.test() inside the test itself, or use a plain `with`, which has its own loop.",
            )
        return self._loop


class ThreadHome(LoopHome):
    """A loop in its own thread, until it is closed."""

    def __init__(self) -> None:
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mainspring-test", daemon=True)
        self._thread.start()
        self._up.wait()
        super().__init__(self._made)

    def close(self) -> None:
        self._made.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        from mainspring.worker.supervise.shutdown import run_loop

        run_loop(self._stay(), grace=5.0)

    async def _stay(self) -> None:
        self._made = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._up.set()
        await self._over.wait()
