"""How the store's clock goes, against one that only grows: it may be put back, and then some stores' stands still."""

from __future__ import annotations

from mainspring.common.clock import boottime

_BACK = 5.0
"""Seconds by which the store's clock must fall behind ours to have gone back."""

_SOON = 1.0


class StoreTime:
    """The time that passes for one scheduler."""

    def __init__(self) -> None:
        self._since: tuple[int, float] | None = None
        self._looked = 0, 0.0
        self._pauses: dict[str, tuple[int, float]] = {}

    def looked(self, now: int) -> None:
        """The store has just said so."""
        self._looked = now, boottime()

    def now(self) -> int:
        """What the store said, or what it would say now if that was a while ago: whoever was held up must not take a
        run for one that ended in time to come."""
        said, since = self._looked
        passed = boottime() - since
        return said if passed < _SOON else said + int(passed * 1e6)

    def went_back(self, now: int) -> bool:
        """Whether the store's clock did since the last time that this was said; nobody knows it at first."""
        own = boottime()
        lag = 0.0 if self._since is None else own - self._since[1] - (now - self._since[0]) / 1e6
        if self._since is None or lag > _BACK:
            self._since = now, own
            return True
        if lag < 0:
            self._since = now, own
        return False

    def is_over(self, name: str, due: int, now: int) -> bool:
        """Whether a pause until ``due``, by the store's clock, is over by ours. That is counted from the first time
        that this is asked."""
        own = boottime()
        before, end = self._pauses.get(name, (None, 0.0))
        if before == due:
            return own >= end
        self._pauses[name] = due, own + max(0, due - now) / 1e6
        return due <= now

    def forget(self, name: str) -> None:
        self._pauses.pop(name, None)
