"""Successes of tasks whose breakers go by a share of failures, told in numbers: with a failure, or once a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from mainspring.outcomes import Ack
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.worker.attempt import Attempt

EVERY = 1.0
"""Seconds between two words about successes alone."""


class Tallies:
    """Those of one worker."""

    def __init__(self) -> None:
        self._good: Counter[str] = Counter()
        self._told = 0.0

    def due(self, acks: Iterable[Ack], held: Mapping[bytes, Attempt], now: float) -> tuple[tuple[str, int], ...]:
        """What a turn with these acks tells, by breaker."""
        failing = False
        for ack in acks:
            attempt = held.get(ack.id)
            guard = None if attempt is None else attempt.spec.breaker
            if guard is None or attempt is None or not guard.weighs:
                continue
            failing = failing or bool(ack.fault)
            if ack.to is State.SUCCEEDED:
                self._good[guard.limit(attempt.spec.name).name] += 1
        if not self._good or not (failing or now - self._told >= EVERY):
            return ()
        self._told = now
        told = tuple(self._good.items())
        self._good.clear()
        return told
