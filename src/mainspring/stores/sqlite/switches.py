"""One breaker: how it stands, what ends of work mean to it, and how many it lets through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainspring.breakers.records import FOREVER, BreakerRow

from .room import ANY, Room, Size

if TYPE_CHECKING:
    from .running import Running
    from .tx import Tx

_NEVER = -1
_PARTS = 10
_counts = msgspec.json.Decoder(list[tuple[int, int, int]]).decode


class Told:
    """The ends that one breaker hears of in a transaction."""

    __slots__ = ("bad", "error", "failed", "good", "succeeded")

    def __init__(self) -> None:
        self.succeeded = self.failed = _NEVER
        """When the last of those began that succeeded, and of those that failed."""
        self.bad = self.good = 0
        """How many failed; successes that are told in numbers."""
        self.error = ""

    def fail(self, began: int, error: str, n: int = 1) -> None:
        self.failed, self.error, self.bad = max(self.failed, began), error, self.bad + n


class Switch:
    """How a breaker stands. One that is closed and has nothing to forget has no row."""

    __slots__ = ("calls", "counts", "error", "failures", "half", "name", "opened", "tripped", "until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.failures = self.calls = 0
        self.until = 0
        """0 while it is closed."""
        self.opened = 0
        self.half = False
        """Somebody has begun to probe it."""
        self.tripped = False
        self.error = ""
        self.counts: list[tuple[int, int, int]] = []
        """Of one that goes by a share: the beginnings of parts of its window, successes, failures."""

    @classmethod
    def read(cls, tx: Tx, name: str) -> Switch | None:
        found = tx.first("breaker", (name,))
        if found is None:
            return None
        self = cls(name)
        self.failures, self.calls, self.until, self.opened, half, tripped, self.error, counts = found
        self.half, self.tripped, self.counts = bool(half), bool(tripped), _counts(counts)
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
                self._forget(now, span)
            error = self.error if self.failures else ""
            return BreakerRow(name=self.name, failures=self.failures, calls=self.calls, error=error)
        return BreakerRow(
            name=self.name, state="half_open" if self.until <= now else "open", failures=self.failures,
            calls=self.calls, opened=self.opened, until=None if self.until >= FOREVER else self.until,
            error=self.error, tripped=self.tripped,
        )  # fmt: skip

    # ---- what it hears ------------------------------------------------------------------------

    def hear(self, told: Told, limit: Size, now: int) -> bool:
        """Whether it has changed."""
        was_open = self.until > 0
        if was_open and (self.until > now or max(told.succeeded, told.failed) < self.until):
            return False
        if was_open and told.succeeded < self.until:
            self.error = told.error
            self.open(now + limit.per, now)
            return True
        if was_open:
            self.close()
        return (self._weigh if limit.share else self._count)(told, limit, now) or was_open

    def _count(self, told: Told, limit: Size, now: int) -> bool:
        before = self.failures
        self.counts, self.calls = [], 0
        if told.succeeded > _NEVER or told.good:
            self.failures = 0
        self.failures += told.bad
        self.error = told.error or self.error
        if told.bad and self.failures >= limit.burst:
            self.open(now + limit.per, now)
        return told.bad > 0 or self.failures != before

    def _weigh(self, told: Told, limit: Size, now: int) -> bool:
        if not told.bad and not told.good:
            return False
        begin = now - now % max(limit.span // _PARTS, 1)
        self.counts.append((begin, told.good, told.bad))
        self._forget(now, limit.span)
        self.error = told.error or self.error
        if told.bad and self.calls >= limit.burst and self.failures * 1_000_000 >= limit.share * self.calls:
            self.open(now + limit.per, now)
        return True

    def _forget(self, now: int, span: int) -> None:
        """What lies before the window goes, what is of one part of it is one."""
        parts: dict[int, tuple[int, int]] = {}
        for begin, good, bad in self.counts:
            if begin > now - span:
                before = parts.get(begin, (0, 0))
                parts[begin] = before[0] + good, before[1] + bad
        self.counts = [(begin, *numbers) for begin, numbers in parts.items()]
        self.failures = sum(bad for _, _, bad in self.counts)
        self.calls = self.failures + sum(good for _, good, _ in self.counts)

    def open(self, until: int, now: int) -> None:
        self.until, self.opened, self.half, self.tripped, self.counts = until, now, False, False, []

    def close(self) -> None:
        self.failures = self.calls = self.until = self.opened = 0
        self.half = self.tripped = False
        self.error, self.counts = "", []


class Guard(Room):
    """The room of a breaker: all, none, or as many as it has probes."""

    kind = "breaker"

    def __init__(self, tx: Tx, name: str, limit: Size, running: Running) -> None:
        super().__init__(tx, name, limit, running)
        self._span = limit.span if limit.share else 0
        self._switch = Switch.read(tx, name)
        self._used = self._taken = 0
        if self._switch is not None and self._switch.is_half_open(tx.now):
            values = (name, tx.now, self._switch.until, running.names(name))
            probes, guests, self.ends = tx.all("probes_used", values)[0]
            self._used = probes + guests

    @property
    def used(self) -> int:
        return self._used

    @property
    def switch(self) -> BreakerRow:
        return (self._switch or Switch(self._name)).row(self._tx.now, self._span)

    def most(self) -> int:
        if self._switch is None or not self._switch.until:
            return ANY
        return max(self.size - self._used, 0) if self._switch.until <= self._tx.now else 0

    def fits(self, cost: int) -> bool:  # noqa: ARG002
        return self.most() > 0

    def take(self, cost: int, n: int = 1) -> None:  # noqa: ARG002
        self._used += n
        self._taken += n

    def when(self, cost: int) -> int | None:  # noqa: ARG002
        until = 0 if self._switch is None else self._switch.until
        return until if self._tx.now < until < FOREVER else None

    def write(self) -> None:
        """The first probe is told of."""
        switch = self._switch
        if self._taken and switch is not None and switch.is_half_open(self._tx.now) and not switch.half:
            switch.half = True
            switch.write(self._tx)
            self._tx.news.append(switch.row(self._tx.now))
