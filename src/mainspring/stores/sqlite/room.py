"""One bucket: how much of it is used, and what still fits. The kinds that count starts are in :mod:`.rates`."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainspring.limits.records import PLENTIFUL

if TYPE_CHECKING:
    from .running import Running
    from .tx import Tx

ANY = 1 << 62
"""More than anybody asks for."""


class Size(NamedTuple):
    """What a limit lets through now, as the statement ``limit`` returns it."""

    kind: str
    size: int
    per: int
    burst: int
    share: int = 0
    span: int = 0


class Room:
    """That of a bucket whose limit is not known: everything fits. The kinds of limits narrow it."""

    kind = ""
    costs = False
    """Whether it matters what a start costs."""
    ends: int | None = None
    """When the first guest's time is over."""

    def __init__(self, tx: Tx, name: str, limit: Size, running: Running) -> None:  # noqa: ARG002
        self._tx = tx
        self._name = name
        self.size = limit.size

    @property
    def used(self) -> int:
        return 0

    def most(self) -> int:
        """How many starts that cost 1 fit."""
        return ANY

    def fits(self, cost: int) -> bool:  # noqa: ARG002  # here and below: for those who count
        return True

    def is_roomy(self, cost: int) -> bool:
        """Whether there is much left after a start."""
        return self.spare() >= cost

    def spare(self) -> int:
        """How much can be used before there is not much left."""
        return self.most() - max(self.size // 2, PLENTIFUL)

    def take(self, cost: int, n: int = 1) -> None:
        """So many starts."""

    def when(self, cost: int) -> int | None:  # noqa: ARG002
        """The moment at which a start fits that does not fit now; None if nobody knows."""
        return None

    def correct(self, cost: int, real: int) -> bool:  # noqa: ARG002
        """A start cost something else than was thought; whether there is more room now. Written at once."""
        return False

    def slow(self, until: int) -> None:
        """Let nothing through until then. Written at once."""

    def write(self) -> None:
        """Write down what was taken."""


class Places(Room):
    """So many at any instant."""

    kind = "concurrency"

    def __init__(self, tx: Tx, name: str, limit: Size, running: Running) -> None:
        super().__init__(tx, name, limit, running)
        held, guests, self.ends = tx.all("places_used", (name, tx.now))[0]
        self._used: int = running.count(name) + held + guests

    @property
    def used(self) -> int:
        return self._used

    def most(self) -> int:
        return max(self.size - self._used, 0)

    def fits(self, cost: int) -> bool:  # noqa: ARG002
        return self._used < self.size

    def take(self, cost: int, n: int = 1) -> None:  # noqa: ARG002
        self._used += n
