"""``inline=True``: an enqueue returns when its job has been run.

What is enqueued while jobs run, by them or by other threads, is run before the enqueue returns that
started it all: nobody waits for a drain that may be waiting for him.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from mainspring.errors import WouldBlockLoop

if TYPE_CHECKING:
    from mainspring.testing.app.home import LoopHome


class Inline:
    """Asked by the client around each enqueue. ``busy`` says whether the test drains by itself."""

    def __init__(
        self, home: Callable[[], LoopHome], drain: Callable[[], Awaitable[object]], busy: Callable[[], bool]
    ) -> None:
        self._home = home
        self._drain = drain
        self._busy = busy
        self._gate = threading.Lock()
        self._running = self._more = False

    def check(self) -> None:
        """Before a blocking enqueue: refused on the very loop that would have to run the job."""
        if self._home().here and not self._running and not self._busy():
            raise WouldBlockLoop("enqueue")

    def run(self) -> None:
        """Run what was enqueued, blocking."""
        if self._mine():
            self._home().run("enqueue", self._run())

    async def arun(self) -> None:
        if self._mine():
            await self._home().arun(self._run())

    def _mine(self) -> bool:
        """Whether the caller has to drain; a drain that goes on takes the new job too."""
        with self._gate:
            if self._running or self._busy():
                self._more = True
                return False
            self._running, self._more = True, False
            return True

    async def _run(self) -> None:
        try:
            while True:
                await self._drain()
                with self._gate:
                    if not self._more:
                        self._running = False
                        return
                    self._more = False
        except BaseException:
            self._running = False
            raise
