"""How long a producer waits: for capacity in a full queue, or for a store that cannot be reached."""

from __future__ import annotations

import time

from mainspring.common.pause import GrowingPause, jittered
from mainspring.errors import QueueFull, StoreUnavailable

_LONGEST = 1.0
"""Seconds: the longest pause between two tries."""


class WaitForCapacity:
    """The wait of one enqueue for a full queue, for at most ``patience`` seconds after the first refusal."""

    def __init__(self, patience: float) -> None:
        self._began = time.monotonic()
        self._patience = patience

    def pause(self, full: QueueFull) -> float:
        """Seconds until the next try. Raises ``QueueFull`` when patience ends, or if ``on_full`` is not "wait"."""
        if not full.waits:
            raise full
        waited = time.monotonic() - self._began
        if waited >= self._patience:
            raise QueueFull(full.queue, full.max_depth, full.retry_after, waits=True, waited=waited) from None
        return jittered(min(full.retry_after, _LONGEST, self._patience - waited))


class EnqueueRetry:
    """The repeats of an enqueue until the store confirms it, for at most ``patience`` seconds.

    The seconds count from the first failure, however long the first try took: if its reply was lost, the enqueue must
    be repeated at least once.
    """

    def __init__(self, patience: float) -> None:
        self._give_up = time.monotonic() + patience
        self._pauses = GrowingPause(0.05, longest=_LONGEST)
        self._repeated = False

    def pause(self, error: StoreUnavailable) -> float:
        """Seconds until the next try. Raises the error when patience ends."""
        if self._repeated and time.monotonic() + self._pauses.whole > self._give_up:
            raise error
        self._repeated = True
        return self._pauses.next()
