"""A producer that waits, for room in a full queue or for its store: for so long, and never two of them in step."""

from __future__ import annotations

import random
import time

from mainspring.errors import QueueFull, StoreUnavailable

_MOST = 1.0


class WaitForCapacity:
    """One wait, from the first refusal on, for so many seconds."""

    def __init__(self, patience: float) -> None:
        self._began = time.monotonic()
        self._patience = patience

    def pause(self, full: QueueFull) -> float:
        """Seconds until the next try; the refusal itself if nobody waits there, or when patience is over."""
        if not full.waits:
            raise full
        waited = time.monotonic() - self._began
        if waited >= self._patience:
            raise QueueFull(full.queue, full.max_depth, full.retry_after, waits=True, waited=waited) from None
        return min(full.retry_after, _MOST, self._patience - waited) * random.uniform(0.5, 1.0)


class EnqueueRetry:
    """An enqueue that did not come through: it is repeated until it is known to be there, or patience ends.

    From the first failure on, however long that took: a reply that was lost in silence must be repeated too.
    """

    def __init__(self, patience: float) -> None:
        self._give_up = time.monotonic() + patience
        self._pause = 0.05
        self._repeated = False

    def pause(self, error: StoreUnavailable) -> float:
        """Seconds until the next try; the error itself when patience is over."""
        if self._repeated and time.monotonic() + self._pause > self._give_up:
            raise error
        pause, self._pause, self._repeated = self._pause, min(1.0, self._pause * 2), True
        return pause * random.uniform(0.5, 1.0)
