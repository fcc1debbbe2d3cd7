"""The capacity of one bucket: how much of it is used, and what still fits. Limits that count starts: :mod:`.rates`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainspring.breakers.records import FOREVER, StoredBreaker
from mainspring.limits.records import PLENTIFUL
from mainspring.stores.sqlite.breakers import BREAKER, read_breaker
from mainspring.stores.sqlite.lanes import names_of

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx
    from mainspring.stores.sqlite.rows import CurrentLimit

UNLIMITED = 1 << 62
"""More starts than any call asks for."""
CONCURRENCY = "concurrency"


class RunningJobs:
    """Running jobs by lane, of jobs that name unkeyed limits only: their own row is their use of these limits."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._lanes: list[tuple[str, int, str]] | None = None

    def lanes(self, bucket: str) -> list[tuple[str, int]]:
        """The lanes that name this bucket, with the number of running jobs; none for a bucket with a key."""
        if "=" in bucket:
            return []
        if self._lanes is None:
            self._lanes = self._tx.all("running_by_lane")
        return [(lane, n) for lane, n, buckets in self._lanes if bucket in names_of(buckets)]

    def count(self, bucket: str) -> int:
        return sum(n for _, n in self.lanes(bucket))

    def lane_names(self, bucket: str) -> str:
        """The lanes that name this bucket, as JSON for a statement."""
        return msgspec.json.encode([lane for lane, _ in self.lanes(bucket)]).decode()


class BucketCapacity:
    """The capacity of a bucket whose limit is not known: everything fits. The kinds of limits override this."""

    kind = ""
    counts_cost = False
    """Whether the cost of a start matters."""
    first_expiry: int | None = None
    """When the first holder in the bucket expires."""

    def __init__(self, tx: Tx, name: str, limit: CurrentLimit, running: RunningJobs) -> None:  # noqa: ARG002
        self._tx = tx
        self._name = name
        self.size = limit.size

    @property
    def used(self) -> int:
        return 0

    def available(self) -> int:
        """How many starts of cost 1 fit."""
        return UNLIMITED

    def fits(self, cost: int) -> bool:  # noqa: ARG002  # here and below: for the kinds that count
        return True

    def headroom(self) -> int:
        """How much jobs claimed ahead of a free slot may use: the bucket stays plentiful."""
        return max(self.available() - max(self.size // 2, PLENTIFUL), 0)

    def take(self, cost: int, n: int = 1) -> None:
        """Record ``n`` starts at this cost."""

    def fits_at(self, cost: int) -> int | None:  # noqa: ARG002
        """The moment at which a start fits that does not fit now; None if that depends on the end of other work."""
        return None

    def correct(self, cost: int, real: int) -> bool:  # noqa: ARG002
        """A start of ``cost`` really cost ``real``. Writes at once. Returns whether more fits than before."""
        return False

    def block(self, until: int) -> None:
        """Let nothing start until this moment. Writes at once."""

    def write(self) -> None:
        """Write the starts that were taken."""


class ConcurrencyCapacity(BucketCapacity):
    """A limit on the number of jobs and holders at any instant."""

    kind = CONCURRENCY

    def __init__(self, tx: Tx, name: str, limit: CurrentLimit, running: RunningJobs) -> None:
        super().__init__(tx, name, limit, running)
        keyed, holders, self.first_expiry = tx.all("concurrency_used", (name, tx.now))[0]
        self._used: int = running.count(name) + keyed + holders

    @property
    def used(self) -> int:
        return self._used

    def available(self) -> int:
        return max(self.size - self._used, 0)

    def fits(self, cost: int) -> bool:  # noqa: ARG002
        return self._used < self.size

    def take(self, cost: int, n: int = 1) -> None:  # noqa: ARG002
        self._used += n


class BreakerCapacity(BucketCapacity):
    """Everything fits while the breaker is closed, nothing while it is open, ``size`` probes while it is half open."""

    kind = BREAKER

    def __init__(self, tx: Tx, name: str, limit: CurrentLimit, running: RunningJobs) -> None:
        super().__init__(tx, name, limit, running)
        self.stored = read_breaker(tx, name) or StoredBreaker(tx.now, name)
        self._used = 0
        if 0 < self.stored.until <= tx.now:
            values = (name, tx.now, self.stored.until, running.lane_names(name))
            probes, holders, self.first_expiry = tx.all("probes_used", values)[0]
            self._used = probes + holders

    @property
    def used(self) -> int:
        return self._used

    def available(self) -> int:
        if not self.stored.until:
            return UNLIMITED
        return max(self.size - self._used, 0) if self.stored.until <= self._tx.now else 0

    def fits(self, cost: int) -> bool:  # noqa: ARG002
        return self.available() > 0

    def take(self, cost: int, n: int = 1) -> None:  # noqa: ARG002
        self._used += n

    def fits_at(self, cost: int) -> int | None:  # noqa: ARG002
        return self.stored.until if self._tx.now < self.stored.until < FOREVER else None
