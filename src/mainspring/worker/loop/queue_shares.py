"""How the claims of one worker are split between queues with weights: each queue has a deficit.

If a queue got fewer jobs than its share of a turn, the difference is its deficit and is added to its next share; what
it got above its share is subtracted. The deficits of the competing queues add up to zero, and each stays below one job.
A queue that had fewer jobs than were asked for, or whose cap left no headroom for its share, does not compete: the
other queues get its share, its deficit is zero, and it starts anew when it has jobs again. A queue that had more jobs
but found a limit used up does compete; its deficit is at most the number of jobs that were split in one turn.

A store answers with the jobs of one queue after the jobs of another. A turn may claim hundreds of short jobs, so
:func:`interleave` mixes them before they start: otherwise each queue would run as a block.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainspring.worker.records import Claim


class QueueShares:
    """The deficits of the queues for one kind of slot."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self.deficits = dict.fromkeys(weights, 0.0)

    def split(self, n: int, limits: Mapping[str, int]) -> dict[str, int]:
        """Split ``n`` jobs between the queues in ``limits``, which maps each to the largest number it can take.

        All ``n`` jobs are given out if the limits allow it.
        """
        given, left = dict.fromkeys(limits, 0), [queue for queue in limits if limits[queue] > 0]
        while n > 0 and left:
            shares = self._shares(n, left)
            full = [queue for queue in left if shares[queue] >= limits[queue]]
            if not full:
                return given | _round_shares(n, shares)
            for queue in full:
                given[queue] = min(n, limits[queue])
                n -= given[queue]
                left.remove(queue)
        return given

    def charge(self, got: Mapping[str, int], idle: Collection[str]) -> None:
        """Update the deficits: ``got`` is what each queue got. Queues in ``idle`` could not use their share."""
        bound = max(1, sum(got.values()))
        shares = self._shares(sum(n for queue, n in got.items() if queue not in idle), got.keys() - idle)
        for queue, n in got.items():
            deficit = 0.0 if queue in idle else shares[queue] - n
            self.deficits[queue] = max(-bound, min(bound, deficit))

    def _shares(self, n: int, queues: Collection[str]) -> dict[str, float]:
        """The share of each queue in ``n`` jobs, with its deficit.

        If the deficits of these queues do not add up to zero, because another queue has left, all of them bear the
        rest.
        """
        weight = sum(self._weights[queue] for queue in queues)
        total = sum(self.deficits[queue] for queue in queues)
        return {queue: (n - total) * self._weights[queue] / weight + self.deficits[queue] for queue in queues}


def _round_shares(n: int, shares: Mapping[str, float]) -> dict[str, int]:
    """The shares as whole numbers that add up to ``n``: rounded down, the rest to the queues that lost most by it."""
    given = {queue: max(0, math.floor(share)) for queue, share in shares.items()}
    left = n - sum(given.values())
    for queue in sorted(shares, key=lambda queue: given[queue] - shares[queue])[: max(0, left)]:
        given[queue] += 1
    for _ in range(-left):  # a queue with a negative share gets 0, so another queue must get less
        most = max((queue for queue in given if given[queue]), key=lambda queue: given[queue] - shares[queue])
        given[most] -= 1
    return given


def interleave(claims: Sequence[Claim], asked: Mapping[str, int]) -> Sequence[Claim]:
    """The claims of a turn in the order in which they start: each queue evenly among the others, its order unchanged.

    The numbers that were asked for follow the weights, so the k-th job of a queue that was asked for n jobs belongs at
    the part (k - 1/2) / n. The numbers of the claims do not follow the weights if a queue had fewer jobs than that: if
    each queue had 10 jobs left, they would start one by one in turns.
    """
    numbers = Counter(claim.queue for claim in claims)
    if len(numbers) < 2:
        return claims
    seen = dict.fromkeys(numbers, -0.5)
    places = []
    for n, claim in enumerate(claims):
        seen[claim.queue] += 1
        places.append((seen[claim.queue] / max(asked.get(claim.queue, 0), numbers[claim.queue]), n))
    return [claims[n] for _, n in sorted(places)]
