"""How long an enqueue is tried: for capacity in a full queue, and for a store that does not answer.

All tries of one enqueue together have ``enqueue_patience`` seconds, counted from the call. One try has two thirds of
them, so that an enqueue whose reply was lost can be repeated: on a new connection, or after a restart of the server.
"""

from __future__ import annotations

import time

from mainspring.common.pause import GrowingPause, jittered
from mainspring.errors import QueueFull, StoreUnavailable

_LONGEST = 1.0
"""Seconds: the longest pause between two tries."""
_SHARE = 2 / 3
"""The share of the patience that one try may use."""
LONGEST_TRY = 10.0
"""Seconds: the most that one try may take. Servers end a statement after this time."""
ONLY_TRY = 1.0
"""Seconds that the one try may take when the patience is 0."""


def seconds_of_try(patience: float) -> float:
    """Seconds that one try may take."""
    return min(patience * _SHARE, LONGEST_TRY) if patience else ONLY_TRY


class EnqueuePatience:
    """The pauses between the tries of one enqueue, blocking or async, until its patience ends."""

    def __init__(self, store_wait: float, full_wait: float, began: float) -> None:
        """Seconds that the enqueue waits for a store that does not answer, and for capacity in a full queue.

        ``began``: the monotonic time of the call.
        """
        self._store_wait = store_wait
        self._full_wait = full_wait
        self._capacity: WaitForCapacity | None = None
        self._retry = EnqueueRetry("enqueue", store_wait, began)

    def pause(self, error: StoreUnavailable | QueueFull) -> float:
        """Seconds until the next try. Raises the error when the patience for it has ended."""
        if isinstance(error, StoreUnavailable):
            return self._retry.pause(error)
        self._capacity = self._capacity or WaitForCapacity(self._full_wait)
        pause = self._capacity.pause(error)
        self._retry = EnqueueRetry("enqueue", self._store_wait, time.monotonic() + pause)  # the store has answered
        return pause

    def seconds(self) -> float:
        """Seconds that the next try may take."""
        return self._retry.seconds()


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
    """The tries until the store confirms ``what``, for at most ``patience`` seconds after ``began``."""

    def __init__(self, what: str, patience: float, began: float) -> None:
        self._what = what
        self._patience = patience
        self._began = began
        self._pauses = GrowingPause(0.05, longest=_LONGEST)
        self._tries = 0
        self._cause: StoreUnavailable | None = None
        """The last error that says more than that no answer came in time."""

    def pause(self, error: StoreUnavailable) -> float:
        """Seconds until the next try. Raises ``StoreUnavailable`` with the cause when patience ends."""
        self._tries += 1
        if self._cause is None or not isinstance(error.__cause__, TimeoutError):
            self._cause = error
        waited = time.monotonic() - self._began
        if waited + self._pauses.whole > self._patience:
            times = "once" if self._tries == 1 else f"{self._tries} times"
            raise StoreUnavailable(
                f"{self._what}: tried {times} in {waited:.1f} s: {self._cause.message}", hint=self._cause.hint
            ) from error
        return self._pauses.next()

    def seconds(self) -> float:
        """Seconds that the next try may take."""
        left = self._began + self._patience - time.monotonic()
        return max(0.0, min(left, seconds_of_try(self._patience)))
