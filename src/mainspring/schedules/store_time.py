"""The store's time, compared with a clock that only grows.

The store's clock may be set back. Some stores then stop their clock until the old time is reached again.
"""

from __future__ import annotations

from mainspring.common.clock import boottime

_SET_BACK = 5.0
"""Seconds that the store's clock must fall behind ours to count as set back."""

_FRESH = 1.0
"""Seconds for which a time that the store reported is used as it is."""


class StoreTime:
    """The store's time as one scheduler sees it."""

    def __init__(self) -> None:
        self._since: tuple[int, float] | None = None
        self._reported = 0, 0.0
        self._pauses: dict[str, tuple[int, float]] = {}

    def set(self, now: int) -> None:
        """The store has just reported this time."""
        self._reported = now, boottime()

    def now(self) -> int:
        """The time that the store reported; after more than a second, plus the time that has passed since.

        A scheduler that was stopped for a while would otherwise see runs that ended in the future.
        """
        reported, since = self._reported
        passed = boottime() - since
        return reported if passed < _FRESH else reported + int(passed * 1e6)

    def was_set_back(self, now: int) -> bool:
        """Whether the store's clock was set back since the last call. True at the first call: that is unknown then."""
        own = boottime()
        lag = 0.0 if self._since is None else own - self._since[1] - (now - self._since[0]) / 1e6
        if self._since is None or lag > _SET_BACK:
            self._since = now, own
            return True
        if lag < 0:
            self._since = now, own
        return False

    def is_over(self, name: str, due: int, now: int) -> bool:
        """Whether the pause of a schedule until ``due``, by the store's clock, is over by our clock.

        Our clock counts from the first call for this ``due``.
        """
        own = boottime()
        before, end = self._pauses.get(name, (None, 0.0))
        if before == due:
            return own >= end
        self._pauses[name] = due, own + max(0, due - now) / 1e6
        return due <= now

    def forget(self, name: str) -> None:
        """The schedule has no pause."""
        self._pauses.pop(name, None)
