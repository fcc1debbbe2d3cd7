"""The capacities of a transaction by bucket name: one set of rules for claims, holders and reads.

The capacity of a bucket is read when it is first asked for. What is taken from it counts within the transaction, and
starts are written by :meth:`Capacities.write`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mainspring.stores.sqlite.rows import CurrentLimit, limit_name, read_limit

from .capacity import UNLIMITED, BreakerCapacity, BucketCapacity, ConcurrencyCapacity, RunningJobs
from .rates import SmoothCapacity, WindowCapacity

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Tx

_KINDS: Mapping[str, type[BucketCapacity]] = {
    each.kind: each for each in (ConcurrencyCapacity, WindowCapacity, SmoothCapacity, BreakerCapacity)
}
_UNKNOWN = CurrentLimit("", UNLIMITED, 0, 0)


class Capacities:
    """The capacity of each bucket that the transaction asks for: ``capacities[name]``."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self.running = RunningJobs(tx)
        self._limits: dict[str, CurrentLimit | None] = {}
        self._capacities: dict[str, BucketCapacity] = {}
        self.held_back: set[str] = set()
        """Queues in which a job found no capacity in an unkeyed limit."""

    def limit_of(self, bucket: str) -> CurrentLimit | None:
        """The limit of a bucket; None if the limit is not known."""
        name = limit_name(bucket)
        if name not in self._limits:
            self._limits[name] = read_limit(self._tx, name)
        return self._limits[name]

    def __getitem__(self, bucket: str) -> BucketCapacity:
        found = self._capacities.get(bucket)
        if found is None:
            limit = self.limit_of(bucket) or _UNKNOWN
            kind = _KINDS.get(limit.kind, BucketCapacity)
            found = self._capacities[bucket] = kind(self._tx, bucket, limit, self.running)
        return found

    def full(self, buckets: Iterable[str], costs: Mapping[str, int]) -> list[str]:
        """The buckets in which a start with these costs does not fit."""
        return [name for name in buckets if not self[name].fits(costs.get(name, 1))]

    def wait_for(self, full: Iterable[str], costs: Mapping[str, int]) -> tuple[str, int | None]:
        """Which of these full buckets to wait for, and when to check again.

        The bucket that has capacity last, or the first one of which the moment is not known.
        """
        last, at = "", -1
        for name in full:
            capacity = self[name]
            moment = capacity.fits_at(costs.get(name, 1))
            if moment is None:
                return name, capacity.first_expiry
            if moment > at:
                last, at = name, moment
        return last, at

    def take(self, buckets: Iterable[str], costs: Mapping[str, int], n: int = 1) -> None:
        """Record ``n`` starts with these costs."""
        for name in buckets:
            self[name].take(costs.get(name, 1), n)

    def write(self) -> None:
        for capacity in self._capacities.values():
            capacity.write()
