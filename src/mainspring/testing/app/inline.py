"""``inline=True``: an enqueue returns when its job has run.

Jobs that are enqueued while jobs run, by these jobs or by other threads, run before the first enqueue returns. Only
this first enqueue drains, so no enqueue waits for a drain that waits for the enqueue.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from mainspring.errors import WouldBlockLoop

if TYPE_CHECKING:
    from mainspring.testing.app.home import LoopHome


class Inline:
    """Called by the client around each enqueue. ``busy`` says whether the test itself drains."""

    def __init__(
        self, home: Callable[[], LoopHome], drain: Callable[[], Awaitable[object]], busy: Callable[[], bool]
    ) -> None:
        self._home = home
        self._drain = drain
        self._busy = busy
        self._gate = threading.Lock()
        self._running = self._more = False

    def check(self) -> None:
        """Refuse a blocking enqueue on the loop that must run the job."""
        if self._home().here and not self._running and not self._busy():
            raise WouldBlockLoop("enqueue")

    def run(self) -> None:
        """Run the enqueued jobs, blocking."""
        if self._mine():
            self._home().run("enqueue", self._run())

    async def arun(self) -> None:
        if self._mine():
            await self._home().arun(self._run())

    def _mine(self) -> bool:
        """Whether the caller must drain; a running drain takes the new job too."""
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
