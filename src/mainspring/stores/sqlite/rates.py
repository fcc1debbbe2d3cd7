"""Buckets that count starts: exactly, over a window that slides, or evenly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .room import Room, Size

if TYPE_CHECKING:
    from .running import Running
    from .tx import Tx


class Starts(Room):
    """What counts starts: a job that was claimed and waits would begin in another window than it counts in."""

    costs = True

    def spare(self) -> int:
        return 0


class Window(Starts):
    """Starts that cost so much in any window: an exact log, of which moments that lie close together share a row."""

    kind = "rate"

    def __init__(self, tx: Tx, name: str, limit: Size, running: Running) -> None:
        super().__init__(tx, name, limit, running)
        self._per = limit.per
        self._before = tx.now - limit.per
        self._used: int
        self._slow: int
        self._used, self._slow = tx.all("window_used", (name, self._before))[0]
        self._taken = 0

    @property
    def used(self) -> int:
        return self._used

    def most(self) -> int:
        return max(self.size - self._used, 0) if self._slow <= self._tx.now else 0

    def fits(self, cost: int) -> bool:
        return self.size > 0 and min(max(cost, 1), self.size) <= self.most()

    def take(self, cost: int, n: int = 1) -> None:
        self._add(n * min(cost, self.size))

    def _add(self, cost: int) -> None:
        self._used += cost
        self._taken += cost

    def when(self, cost: int) -> int | None:
        if self.size <= 0:
            return None
        self.write()
        missing, at = self._used + min(cost, self.size) - self.size, self._slow
        for last, n in sorted(self._tx.all("starts", (self._name, self._before))):
            if missing <= 0:
                break
            missing, at = missing - n, max(at, last + self._per)
        return at

    def correct(self, cost: int, real: int) -> bool:
        self.write()
        more = real - min(cost, self.size)
        if more > 0:
            self._add(more)
            self.write()
            return False
        for first, n in self._tx.all("newest_starts", (self._name, self._before)):
            back = min(n, -more)
            if back > 0:
                self._tx.run("less_start", (back, self._name, first))
                self._used, more = self._used - back, more + back
        return True

    def slow(self, until: int) -> None:
        self._tx.run("slow", (self._name, until))
        self._slow = max(self._slow, until)

    def write(self) -> None:
        """In the newest row if that began less than a thousandth of the window ago, or ahead of a clock set back."""
        if self._taken <= 0:
            return
        tx, n = self._tx, self._taken
        first = last = tx.now
        newest = tx.first("newest_start", (self._name,))
        if newest is not None and (tx.now - newest[0]) * 1000 < self._per:
            first, last, n = newest[0], max(newest[1], tx.now), n + newest[2]
        tx.run("drop_starts", (self._name, self._before))
        tx.run("put_start", (self._name, first, last, n))
        self._taken = 0


class Pace(Starts):
    """One unit each ``per / size``, some at once (GCRA). Counted in nanoseconds: rates may be fast."""

    kind = "smooth"

    def __init__(self, tx: Tx, name: str, limit: Size, running: Running) -> None:
        super().__init__(tx, name, limit, running)
        self._per = max(limit.per * 1000, 1)
        self._burst = max(limit.burst, 1)
        self._now = tx.now * 1000
        self._tat: int
        self._slow: int
        self._tat, self._slow = tx.first("pace", (name,)) or (0, 0)
        self._changed = False

    @property
    def _ahead(self) -> int:
        return max(self._tat - self._now, 0)

    @property
    def used(self) -> int:
        return -(-self._ahead * self.size // self._per)

    def most(self) -> int:
        if self.size <= 0 or self._slow > self._tx.now:
            return 0
        return max((self._burst * self._per + (self._slack - self._ahead) * self.size) // self._per, 0)

    def fits(self, cost: int) -> bool:
        if self.size <= 0 or self._slow > self._tx.now:
            return False
        cost = self._capped(cost)
        return self._ahead + self._time(cost) <= self._bound(cost)

    def take(self, cost: int, n: int = 1) -> None:
        self._move(n * self._time(min(cost, self.size)))

    def when(self, cost: int) -> int | None:
        if self.size <= 0:
            return None
        cost = self._capped(cost)
        return max(self._slow, -(-(self._tat + self._time(cost) - self._bound(cost)) // 1000))

    def correct(self, cost: int, real: int) -> bool:
        if self.size > 0:
            self._move(self._time(real) - self._time(min(cost, self.size)))
            self.write()
        return real < cost

    def slow(self, until: int) -> None:
        self._tx.run("slow", (self._name, until))
        self._slow = max(self._slow, until)

    def write(self) -> None:
        if self._changed:
            self._tx.run("set_tat", (self._name, self._tat))
            self._changed = False

    def _capped(self, cost: int) -> int:
        return min(max(cost, 1), self.size)

    def _time(self, cost: int) -> int:
        return -(-cost * self._per // self.size)

    def _bound(self, cost: int) -> int:
        return self._time(max(self._burst, cost)) + self._slack

    @property
    def _slack(self) -> int:
        """Each start is rounded up to a nanosecond: a burst that comes one by one is none the less whole."""
        return min(self._burst, 999)

    def _move(self, time: int) -> None:
        self._tat = max(self._tat, self._now) + time
        self._changed = True
