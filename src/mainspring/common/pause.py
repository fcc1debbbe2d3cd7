"""Pauses between two tries: jittered, growing, or bounded by a timeout.

Many processes that retry at the same moment would all come back at the same moment. Every pause before a retry is
therefore shortened by a random amount (:func:`jittered`), and grows from try to try where the tries can fail many
times (:class:`GrowingPause`). :class:`PollPause` is for a caller who waits for a change in the store.
"""

from __future__ import annotations

import random
import time

from mainspring.common.duration import Duration, to_seconds

FIRST_POLL = 0.002
SLOWEST_POLL = 0.1


def jittered(seconds: float, *, least: float = 0.5) -> float:
    """Shorten a pause at random: between ``least`` times ``seconds`` and ``seconds``.

    >>> 0.5 <= jittered(1.0) <= 1.0
    True
    """
    return seconds * random.uniform(least, 1.0)


class GrowingPause:
    """Pauses in seconds, each ``factor`` times as long as the one before up to ``longest``, and jittered.

    >>> pause = GrowingPause(0.05, longest=1.0)
    >>> [0.025 <= pause.next() <= 0.05, 0.05 <= pause.next() <= 0.1, 0.1 <= pause.next() <= 0.2]
    [True, True, True]
    """

    __slots__ = ("_factor", "_first", "_least", "_longest", "whole")

    def __init__(self, first: float, *, longest: float, factor: float = 2.0, least: float = 0.5) -> None:
        self._first = first
        self._longest = longest
        self._factor = factor
        self._least = least
        self.whole = first
        """The next pause before its jitter."""

    def next(self) -> float:
        """The seconds to wait now; the next pause is longer."""
        pause = jittered(self.whole, least=self._least)
        self.whole = min(self._longest, self.whole * self._factor)
        return pause

    def reset(self) -> None:
        """Begin with the first pause again, after a try that worked."""
        self.whole = self._first


class PollPause:
    """Pauses between two looks at the store: 2 ms at first, then up to 0.1 s, until ``timeout`` has passed.

    The timeout counts from the creation of this object.
    """

    def __init__(self, timeout: Duration | None) -> None:
        self.limit = 0.0 if timeout is None else to_seconds(timeout, what="timeout")
        """The timeout in seconds; 0 without a timeout."""
        self._give_up = None if timeout is None else time.monotonic() + self.limit
        self._pause = FIRST_POLL

    def hurry(self) -> None:
        """Poll fast again, because something has just changed and more may follow soon."""
        self._pause = FIRST_POLL

    async def pause(self) -> bool:
        """Sleep until the next look; False if the timeout has passed."""
        import asyncio

        pause = self._pause
        if self._give_up is not None:
            left = self._give_up - time.monotonic()
            if left <= 0:
                return False
            pause = min(pause, left)
        await asyncio.sleep(pause)
        self._pause = min(SLOWEST_POLL, self._pause * 1.5)
        return True
