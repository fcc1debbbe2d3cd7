"""How long an enqueue is repeated: for capacity in a full queue, and for a store that cannot be reached."""

from __future__ import annotations

import time

from mainspring.common.pause import GrowingPause, jittered
from mainspring.errors import QueueFull, StoreUnavailable

_LONGEST = 1.0
"""Seconds: the longest pause between two tries."""


class EnqueuePatience:
    """The pauses between the tries of one enqueue, blocking or async, until its patience ends."""

    def __init__(self, store_wait: float, full_wait: float) -> None:
        """Seconds that the enqueue waits for an unreachable store, and for capacity in a full queue."""
        self._store_wait = store_wait
        self._full_wait = full_wait
        self._capacity: WaitForCapacity | None = None
        self._retry: EnqueueRetry | None = None

    def pause(self, error: StoreUnavailable | QueueFull) -> float:
        """Seconds until the next try. Raises the error when the patience for it has ended."""
        if isinstance(error, StoreUnavailable):
            self._retry = self._retry or EnqueueRetry(self._store_wait)
            return self._retry.pause(error)
        self._capacity, self._retry = self._capacity or WaitForCapacity(self._full_wait), None
        return self._capacity.pause(error)


class WaitForCapacity:
    """The wait for a full queue, for at most ``patience`` seconds after the first refusal."""

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
    """The repeats until the store confirms the enqueue, for at most ``patience`` seconds.

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
