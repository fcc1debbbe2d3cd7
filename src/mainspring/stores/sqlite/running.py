"""Who runs and names gates only: its own row is its place in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainspring.jobs.lanes import limit_label, limits_in

if TYPE_CHECKING:
    from .tx import Tx


class Running:
    """By lane, as it was when somebody first asked."""

    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._lanes: list[tuple[str, int]] | None = None

    def lanes(self, bucket: str) -> list[tuple[str, int]]:
        """Those that name a gate, and how many run there. Nobody in there names a bucket with a key."""
        if "=" in bucket:
            return []
        if self._lanes is None:
            self._lanes = self._tx.all("gated")
        label = limit_label(bucket)
        return [(lane, n) for lane, n in self._lanes if label in limits_in(lane)]

    def count(self, bucket: str) -> int:
        return sum(n for _, n in self.lanes(bucket))

    def names(self, bucket: str) -> str:
        """Those lanes, as a statement takes them."""
        return msgspec.json.encode([lane for lane, _ in self.lanes(bucket)]).decode()
