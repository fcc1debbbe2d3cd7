"""What the acks of a turn mean to breakers, where their order or their number matters: the store knows neither.

A breaker that counts failures in a row hears of those that no success of the same turn came after. To one that
goes by a share, successes are told in numbers: with a failure, or once a second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from mainspring.common.clock import LONG_AGO
from mainspring.jobs.outcomes import Ack
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.worker.run.attempt import RunningAttempt

EVERY = 1.0
"""Seconds between two words about successes alone."""


class BreakerCounts:
    """Those of one worker."""

    def __init__(self) -> None:
        self._good: Counter[str] = Counter()
        self._told = LONG_AGO

    def in_a_row(self, acks: Sequence[Ack], held: Mapping[bytes, RunningAttempt]) -> Sequence[Ack]:
        """The acks without the faults that are forgotten: a success came after them, and they alone open nothing."""
        if not any([ack.fault for ack in acks]):  # noqa: C419  # a generator costs 3 x as much for one
            return acks
        row: dict[str, list[int]] = {}
        forgotten: set[int] = set()
        for n, ack in enumerate(acks):
            attempt = held.get(ack.id)
            guard = None if attempt is None else attempt.spec.breaker
            if guard is None or attempt is None or guard.weighs:
                continue
            faults = row.setdefault(guard.name or attempt.spec.name, [])
            if ack.fault:
                faults.append(n)
            elif ack.to is State.SUCCEEDED:
                forgotten.update(faults if len(faults) < guard.options["failures"] else ())
                faults.clear()
        return [msgspec.structs.replace(ack, fault="") if n in forgotten else ack for n, ack in enumerate(acks)]

    def due(self, acks: Iterable[Ack], held: Mapping[bytes, RunningAttempt], now: float) -> tuple[tuple[str, int], ...]:
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
