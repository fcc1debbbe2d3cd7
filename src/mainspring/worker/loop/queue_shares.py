"""How the claims of one worker are shared between queues with weights: a deficit for each queue.

What a queue got less than its part of what was handed out is its deficit, and goes on top of its part
the next time; what it got more is taken off. The deficits of those that compete add up to nothing and
stay below one job for each of them. Who had less than it was asked for, or no room for its part, does
not compete: its part is the others', nobody owes it anything, and it begins anew when it comes back.
Who had more but found a limit used up does compete, and is owed at most what was shared in one turn.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping


class QueueShares:
    """The deficits of the queues in one kind of room."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self.deficits = dict.fromkeys(weights, 0.0)

    def split(self, n: int, most: Mapping[str, int]) -> dict[str, int]:
        """Share ``n`` between these queues, each with the most that it can take. All of ``n``, if they can take it."""
        given, left = dict.fromkeys(most, 0), [queue for queue in most if most[queue] > 0]
        while n > 0 and left:
            parts = self._parts(n, left)
            full = [queue for queue in left if parts[queue] >= most[queue]]
            if not full:
                return given | _rounded(n, parts)
            for queue in full:
                given[queue] = min(n, most[queue])
                n -= given[queue]
                left.remove(queue)
        return given

    def charge(self, got: Mapping[str, int], idle: Collection[str]) -> None:
        """What each queue got of that which was shared; those in ``idle`` could not use their part."""
        most = max(1, sum(got.values()))
        parts = self._parts(sum(n for queue, n in got.items() if queue not in idle), got.keys() - idle)
        for queue, n in got.items():
            owed = 0.0 if queue in idle else parts[queue] - n
            self.deficits[queue] = max(-most, min(most, owed))

    def _parts(self, n: int, queues: Collection[str]) -> dict[str, float]:
        """The part of each of ``n`` with its deficit; what left with others is borne by all."""
        weight = sum(self._weights[queue] for queue in queues)
        owed = sum(self.deficits[queue] for queue in queues)
        return {queue: (n - owed) * self._weights[queue] / weight + self.deficits[queue] for queue in queues}


def _rounded(n: int, parts: Mapping[str, float]) -> dict[str, int]:
    """These parts as whole numbers, ``n`` in all: rounded down, the rest to those who lost most by it."""
    given = {queue: max(0, math.floor(part)) for queue, part in parts.items()}
    left = n - sum(given.values())
    for queue in sorted(parts, key=lambda queue: given[queue] - parts[queue])[: max(0, left)]:
        given[queue] += 1
    for _ in range(-left):  # one that had too much gets nothing, not less
        most = max((queue for queue in given if given[queue]), key=lambda queue: given[queue] - parts[queue])
        given[most] -= 1
    return given
