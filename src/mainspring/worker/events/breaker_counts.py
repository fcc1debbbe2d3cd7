"""Successes and failures of one turn, as breakers count them: the store knows neither their order nor their number.

For a breaker that counts failures in a row, a failure is dropped if a success in the same turn came after it. A breaker
that counts a share of failures gets the number of successes: together with a failure, or once a second.
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
"""Seconds between two reports of successes without a failure."""


class BreakerCounts:
    """The counts of one worker."""

    def __init__(self) -> None:
        self._successes: Counter[str] = Counter()
        self._sent_at = LONG_AGO

    def drop_outdated_faults(self, acks: Sequence[Ack], held: Mapping[bytes, RunningAttempt]) -> Sequence[Ack]:
        """The acks without faults before a later success of the turn, unless these faults alone open a breaker."""
        if not any([ack.fault for ack in acks]):  # noqa: C419  # a generator takes 3 times as long for one ack
            return acks
        in_a_row: dict[str, list[int]] = {}
        outdated: set[int] = set()
        for n, ack in enumerate(acks):
            attempt = held.get(ack.id)
            breaker = None if attempt is None else attempt.spec.breaker
            if breaker is None or attempt is None or breaker.uses_rate:
                continue
            faults = in_a_row.setdefault(breaker.name or attempt.spec.name, [])
            if ack.fault:
                faults.append(n)
            elif ack.to is State.SUCCEEDED:
                outdated.update(faults if len(faults) < breaker.options["failures"] else ())
                faults.clear()
        return [msgspec.structs.replace(ack, fault="") if n in outdated else ack for n, ack in enumerate(acks)]

    def take_successes(
        self, acks: Iterable[Ack], held: Mapping[bytes, RunningAttempt], now: float
    ) -> tuple[tuple[str, int], ...]:
        """Count the successes in ``acks``. Returns the counts to send with this turn, by breaker."""
        failing = False
        for ack in acks:
            attempt = held.get(ack.id)
            breaker = None if attempt is None else attempt.spec.breaker
            if breaker is None or attempt is None or not breaker.uses_rate:
                continue
            failing = failing or bool(ack.fault)
            if ack.to is State.SUCCEEDED:
                self._successes[breaker.limit(attempt.spec.name).name] += 1
        if not self._successes or not (failing or now - self._sent_at >= EVERY):
            return ()
        self._sent_at = now
        counts = tuple(self._successes.items())
        self._successes.clear()
        return counts
