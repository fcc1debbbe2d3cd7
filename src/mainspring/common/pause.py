"""How often to look at the store while waiting for something to happen there."""

from __future__ import annotations

import asyncio
import time

from mainspring.common.duration import Duration, to_seconds

FIRST_LOOK = 0.002
SLOWEST_LOOK = 0.1


class PollPause:
    """Soon at first, then ten times a second, until the time limit is over. The limit counts from here."""

    def __init__(self, timeout: Duration | None) -> None:
        self.limit = 0.0 if timeout is None else to_seconds(timeout, what="timeout")
        """Seconds; of no meaning without a limit."""
        self._give_up = None if timeout is None else time.monotonic() + self.limit
        self._pause = FIRST_LOOK

    def hurry(self) -> None:
        """Something has changed: more may follow soon."""
        self._pause = FIRST_LOOK

    async def pause(self) -> bool:
        """Sleep until the next look; False when the time was over before it."""
        pause = self._pause
        if self._give_up is not None:
            left = self._give_up - time.monotonic()
            if left <= 0:
                return False
            pause = min(pause, left)
        await asyncio.sleep(pause)
        self._pause = min(SLOWEST_LOOK, self._pause * 1.5)
        return True
