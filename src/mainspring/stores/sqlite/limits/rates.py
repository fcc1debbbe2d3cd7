"""The capacity of buckets that count starts: exactly over a sliding window, or evenly (GCRA)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainspring.stores.shared.constants import RATE_PIECES
from mainspring.stores.shared.rates import SmoothRate

from .capacity import BucketCapacity

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx
    from mainspring.stores.sqlite.rows import CurrentLimit

    from .capacity import RunningJobs


class RateCapacity(BucketCapacity):
    """A limit that counts starts. It is never plentiful: a job that is claimed ahead of a free slot would start in
    another window than the one it counts in."""

    counts_cost = True

    def headroom(self) -> int:
        return 0


class WindowCapacity(RateCapacity):
    """Starts that cost ``size`` in any window of ``per``: an exact log. Starts that are close together share a row."""

    kind = "rate"

    def __init__(self, tx: Tx, name: str, limit: CurrentLimit, running: RunningJobs) -> None:
        super().__init__(tx, name, limit, running)
        self._per = limit.per
        self._window_start = tx.now - limit.per
        self._used: int
        self._blocked_until: int
        self._used, self._blocked_until = tx.all("window_used", (name, self._window_start))[0]
        self._taken = 0

    @property
    def used(self) -> int:
        return self._used

    def available(self) -> int:
        return max(self.size - self._used, 0) if self._blocked_until <= self._tx.now else 0

    def fits(self, cost: int) -> bool:
        return self.size > 0 and min(max(cost, 1), self.size) <= self.available()

    def take(self, cost: int, n: int = 1) -> None:
        self._add(n * min(cost, self.size))

    def _add(self, cost: int) -> None:
        self._used += cost
        self._taken += cost

    def fits_at(self, cost: int) -> int | None:
        if self.size <= 0:
            return None
        self.write()
        missing, at = self._used + min(cost, self.size) - self.size, self._blocked_until
        for last, n in sorted(self._tx.all("starts", (self._name, self._window_start))):
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
        for first, n in self._tx.all("newest_starts", (self._name, self._window_start)):
            back = min(n, -more)
            if back > 0:
                self._tx.run("reduce_start", (back, self._name, first))
                self._used, more = self._used - back, more + back
        return True

    def block(self, until: int) -> None:
        self._tx.run("block_bucket", (self._name, until))
        self._blocked_until = max(self._blocked_until, until)

    def write(self) -> None:
        """Add to the newest row if it began less than a thousandth of the window ago, or lies ahead because the clock
        was set back; else make a row."""
        if self._taken <= 0:
            return
        tx, n = self._tx, self._taken
        first = last = tx.now
        newest = tx.first("newest_start", (self._name,))
        if newest is not None and (tx.now - newest[0]) * RATE_PIECES < self._per:
            first, last, n = newest[0], max(newest[1], tx.now), n + newest[2]
        tx.run("drop_starts", (self._name, self._window_start))
        tx.run("put_start", (self._name, first, last, n))
        self._taken = 0


class SmoothCapacity(RateCapacity):
    """One unit each ``per / size``, up to ``burst`` at once (GCRA); the rules are in ``stores/shared/rates.py``.

    ``tat`` is the moment at which the bucket has its whole burst again.
    """

    kind = "smooth"

    def __init__(self, tx: Tx, name: str, limit: CurrentLimit, running: RunningJobs) -> None:
        super().__init__(tx, name, limit, running)
        self._rate = SmoothRate(limit.size, limit.per, limit.burst)
        self._tat: int
        self._blocked_until: int
        self._tat, self._blocked_until = tx.first("smooth_rate", (name,)) or (0, 0)
        self._changed = False

    @property
    def used(self) -> int:
        return self._rate.used(tat=self._tat, now=self._tx.now) if self.size > 0 else 0

    def available(self) -> int:
        if self.size <= 0 or self._blocked_until > self._tx.now:
            return 0
        return self._rate.available(tat=self._tat, now=self._tx.now)

    def fits(self, cost: int) -> bool:
        if self.size <= 0 or self._blocked_until > self._tx.now:
            return False
        return self._rate.fits(tat=self._tat, now=self._tx.now, cost=cost)

    def take(self, cost: int, n: int = 1) -> None:
        self._set(self._rate.start(tat=self._tat, now=self._tx.now, cost=cost, n=n))

    def fits_at(self, cost: int) -> int | None:
        if self.size <= 0:
            return None
        return max(self._blocked_until, self._rate.next_at(tat=self._tat, now=self._tx.now, cost=cost) or 0)

    def correct(self, cost: int, real: int) -> bool:
        if self.size > 0:
            self._set(self._rate.correct(tat=self._tat, now=self._tx.now, cost=cost, spent=real))
            self.write()
        return real < cost

    def block(self, until: int) -> None:
        self._tx.run("block_bucket", (self._name, until))
        self._blocked_until = max(self._blocked_until, until)

    def write(self) -> None:
        if self._changed:
            self._tx.run("set_tat", (self._name, self._tat))
            self._changed = False

    def _set(self, tat: int) -> None:
        self._tat = tat
        self._changed = True
