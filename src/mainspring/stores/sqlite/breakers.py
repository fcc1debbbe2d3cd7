"""Breakers: how the ends of jobs and of other work open and close them, and how a user does.

Functions that end a job or a lease report the end (:func:`report_end`, :func:`report_successes`, :func:`report_lost`).
The reports of a transaction are applied together before it ends, by :func:`apply_reports`.
How many jobs a breaker lets through is in :class:`.limits.capacity.BreakerCapacity`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from mainspring.breakers.records import BREAKER_SUFFIX, FOREVER, BreakerRow, is_breaker
from mainspring.jobs.outcomes import Outcome
from mainspring.stores.shared.constants import BREAKER_PIECES, SHARE_WHOLE

from .lanes import read_buckets
from .rows import CurrentLimit, read_limit

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack

    from .driver.database import SqliteDatabase
    from .driver.transaction import Tx

BREAKER = "breaker"
"""The kind of a limit that is a breaker."""
_NEVER = -1
_decode_counts = msgspec.json.Decoder(list[tuple[int, int, int]]).decode


class BreakerReports:
    """The ends of work that one breaker has to count in a transaction."""

    __slots__ = ("error", "failed", "failures", "succeeded", "successes")

    def __init__(self) -> None:
        self.succeeded = self.failed = _NEVER
        """The latest start among the successes, and among the failures."""
        self.failures = self.successes = 0
        """The number of failures, and of the successes that workers count themselves (``Turn.good``)."""
        self.error = ""

    def add_failure(self, began: int, error: str) -> None:
        self.failed, self.error, self.failures = max(self.failed, began), error, self.failures + 1


class BreakerState:
    """The row of a breaker. A closed breaker without failures has no row."""

    __slots__ = ("calls", "counts", "error", "failures", "half", "name", "opened", "tripped", "until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = self.calls = 0
        self.until = 0
        """When the breaker becomes half open; 0 while it is closed."""
        self.opened = 0
        self.half = False
        """A probe has started since the breaker became half open."""
        self.tripped = False
        self.error = ""
        self.counts: list[tuple[int, int, int]] = []
        """Of a breaker with a share: (begin, successes, failures) for each piece of its window."""

    @classmethod
    def read(cls, tx: Tx, name: str) -> BreakerState | None:
        found = tx.first("breaker", (name,))
        if found is None:
            return None
        self = cls(name)
        self.failures, self.calls, self.until, self.opened, half, tripped, self.error, counts = found
        self.half, self.tripped, self.counts = bool(half), bool(tripped), _decode_counts(counts)
        return self

    def write(self, tx: Tx) -> None:
        if not (self.until or self.failures or self.counts):
            tx.run("drop_breaker", (self.name,))
            return
        facts = self.failures, self.calls, self.until, self.opened, self.half, self.tripped, self.error
        tx.run("put_breaker", (self.name, *facts, msgspec.json.encode(self.counts).decode()))

    def is_half_open(self, now: int) -> bool:
        return 0 < self.until <= now

    def row(self, now: int, span: int = 0) -> BreakerRow:
        if not self.until:
            if span:
                self._drop_old_counts(now, span)
            error = self.error if self.failures else ""
            return BreakerRow(name=self.name, failures=self.failures, calls=self.calls, error=error)
        return BreakerRow(
            name=self.name, state="half_open" if self.until <= now else "open", failures=self.failures,
            calls=self.calls, opened=self.opened, until=None if self.until >= FOREVER else self.until,
            error=self.error, tripped=self.tripped,
        )  # fmt: skip

    # ---- transitions --------------------------------------------------------------------------------

    def apply(self, reports: BreakerReports, limit: CurrentLimit, now: int) -> bool:
        """Count the reports. Returns whether the row has changed."""
        was_open = self.until > 0
        if was_open and (self.until > now or max(reports.succeeded, reports.failed) < self.until):
            return False
        if was_open and reports.succeeded < self.until:
            self.error = reports.error
            self.open(now + limit.per, now)
            return True
        if was_open:
            self.close()
        return (self._count_share if limit.share else self._count_in_a_row)(reports, limit, now) or was_open

    def _count_in_a_row(self, reports: BreakerReports, limit: CurrentLimit, now: int) -> bool:
        before = self.failures
        self.counts, self.calls = [], 0
        if reports.succeeded > _NEVER or reports.successes:
            self.failures = 0
        self.failures += reports.failures
        self.error = reports.error or self.error
        if reports.failures and self.failures >= limit.burst:
            self.open(now + limit.per, now)
        return reports.failures > 0 or self.failures != before

    def _count_share(self, reports: BreakerReports, limit: CurrentLimit, now: int) -> bool:
        if not reports.failures and not reports.successes:
            return False
        begin = now - now % max(limit.span // BREAKER_PIECES, 1)
        self.counts.append((begin, reports.successes, reports.failures))
        self._drop_old_counts(now, limit.span)
        self.error = reports.error or self.error
        is_too_high = self.failures * SHARE_WHOLE >= limit.share * self.calls
        if reports.failures and self.calls >= limit.burst and is_too_high:
            self.open(now + limit.per, now)
        return True

    def _drop_old_counts(self, now: int, span: int) -> None:
        """Drop the pieces before the window, and join the counts of one piece."""
        pieces: dict[int, tuple[int, int]] = {}
        for begin, good, bad in self.counts:
            if begin > now - span:
                before = pieces.get(begin, (0, 0))
                pieces[begin] = before[0] + good, before[1] + bad
        self.counts = [(begin, *numbers) for begin, numbers in pieces.items()]
        self.failures = sum(bad for _, _, bad in self.counts)
        self.calls = self.failures + sum(good for _, good, _ in self.counts)

    def open(self, until: int, now: int) -> None:
        self.until, self.opened, self.half, self.tripped, self.counts = until, now, False, False, []

    def close(self) -> None:
        self.failures = self.calls = self.until = self.opened = 0
        self.half = self.tripped = False
        self.error, self.counts = "", []


# ---- reports of ends -------------------------------------------------------------------------------------


def reports_of(tx: Tx, name: str) -> BreakerReports:
    return tx.breaker_reports.setdefault(name, BreakerReports())


def report_end(tx: Tx, buckets: str | None, ack: Ack, began: int) -> None:
    """An attempt of a job with these buckets has ended."""
    if ack.fault:
        for name in _breakers_in(buckets):
            reports_of(tx, name).add_failure(began, ack.fault)
    elif ack.outcome is Outcome.SUCCEEDED:
        report_successes(tx, buckets, began)


def report_successes(tx: Tx, buckets: str | None, began: int) -> None:
    """Jobs with these buckets have succeeded; ``began`` is the latest start among them."""
    for name in _breakers_in(buckets):
        reports = reports_of(tx, name)
        reports.succeeded = max(reports.succeeded, began)


def report_lost(tx: Tx, jobs: list[tuple[str | None, int]], cause: str) -> None:
    """A worker is gone that ran jobs with these buckets and starts: one failure for each breaker."""
    began: dict[str, int] = {}
    for buckets, started in jobs:
        for name in _breakers_in(buckets):
            began[name] = max(began.get(name, 0), started)
    for name, started in began.items():
        reports_of(tx, name).add_failure(started, f"its worker {'is' if cause == Outcome.LOST else 'has'} {cause}")


def _breakers_in(buckets: str | None) -> list[str]:
    if buckets is None or BREAKER_SUFFIX not in buckets:
        return []
    return sorted({each.name for each in read_buckets(buckets) if is_breaker(each.name)})


def apply_reports(tx: Tx, limit_of: Callable[[str], CurrentLimit | None]) -> None:
    """Count the reports of the transaction, and wake the queues that wait for a changed breaker or a free probe.

    ``limit_of`` returns the limit of a bucket, or None if the limit is not known.
    """
    for name in sorted({*tx.breaker_reports, *filter(is_breaker, tx.released)}):
        reports = tx.breaker_reports.get(name)
        state = BreakerState.read(tx, name)
        if state is None and (reports is None or not (reports.failures or reports.successes)):
            continue
        limit = limit_of(name)
        if limit is None or limit.kind != BREAKER:
            continue
        _apply(tx, state or BreakerState(name), reports or BreakerReports(), limit)
    tx.breaker_reports.clear()


def _apply(tx: Tx, state: BreakerState, reports: BreakerReports, limit: CurrentLimit) -> None:
    before = state.until
    if state.apply(reports, limit, tx.now):
        state.write(tx)
    if state.until != before:
        tx.changed_breakers.append(state.row(tx.now))
    if state.until != before or 0 < before <= tx.now:
        wake_waiting_queues(tx, state.name)


def wake_waiting_queues(tx: Tx, bucket: str) -> None:
    """Wake the queues in which a job waits for this breaker or unkeyed limit."""
    tx.woken.update(queue for (queue,) in tx.all("take_waiting_queues", (bucket,)))


# ---- contract methods ------------------------------------------------------------------------------------


def trip_breaker(tx: Tx, breaker: str, span: int | None) -> bool:
    state = BreakerState(breaker)
    if span != 0:
        state.open(FOREVER if span is None else tx.now + span, tx.now)
        state.tripped = True
    return _set_state(tx, state)


def reset_breaker(tx: Tx, breaker: str) -> bool:
    return _set_state(tx, BreakerState(breaker))


def _set_state(tx: Tx, state: BreakerState) -> bool:
    """Write the state whatever it was before. False if there is no such breaker."""
    limit = read_limit(tx, state.name)
    if limit is None or limit.kind != BREAKER:
        return False
    state.write(tx)
    wake_waiting_queues(tx, state.name)
    return True


async def report_breaker(
    database: SqliteDatabase, breaker: str, started: int, good: int, fault: str
) -> BreakerRow | None:
    """Count ends of work that no job did. Most ends change nothing: a read finds that out without the write lock."""
    if not await database.read(lambda tx: _changes_state(tx, breaker, good, fault)):
        return None
    return await database.write(lambda tx: _report(tx, breaker, started, good, fault))


def _changes_state(tx: Tx, name: str, good: int, fault: str) -> bool:
    if fault or BreakerState.read(tx, name) is not None:
        return True
    limit = read_limit(tx, name)
    return limit is not None and good > 0 and limit.share > 0


def _report(tx: Tx, name: str, began: int, good: int, fault: str) -> BreakerRow | None:
    reports = reports_of(tx, name)
    reports.successes = good
    if good:
        reports.succeeded = began
    if fault:
        reports.add_failure(began, fault)
    apply_reports(tx, lambda bucket: read_limit(tx, bucket))
    return tx.changed_breakers[-1] if tx.changed_breakers else None
