"""A producer that waits for room in a full queue: for so long, and never two of them in step."""

from __future__ import annotations

import random
import time

from mainspring.errors import QueueFull

PATIENCE = 10.0
"""Seconds that an enqueue waits."""
_MOST = 1.0


class Room:
    """One wait, from the first refusal on."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def pause(self, full: QueueFull) -> float:
        """Seconds until the next try; the refusal itself if nobody waits there, or when patience is over."""
        if not full.waits:
            raise full
        waited = time.monotonic() - self._began
        if waited >= PATIENCE:
            raise QueueFull(full.queue, full.max_depth, full.retry_after, waits=True, waited=waited) from None
        return min(full.retry_after, _MOST, PATIENCE - waited) * random.uniform(0.5, 1.0)
