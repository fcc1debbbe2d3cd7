"""The children that one attempt makes: their ids come of what they are, so a repeat finds them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from mainspring.common.ids import derived_id

if TYPE_CHECKING:
    from mainspring.worker.run.attempt import RunningAttempt


class SpawnedChild(NamedTuple):
    """Who a child is and where it comes from."""

    id: bytes
    parent: UUID
    trace: str


class Spawned:
    """Counts equal calls of one attempt: the second of them is another child."""

    def __init__(self) -> None:
        self._counts: dict[bytes, itertools.count[int]] = {}

    def origin(self, attempt: RunningAttempt, identity: bytes) -> SpawnedChild:
        """The next child of this identity."""
        claim = attempt.claim
        number = next(self._counts.setdefault(identity, itertools.count(1)))
        made = derived_id(claim.id, b"spawn", b"%d" % claim.epoch, b"%d" % number, identity)
        return SpawnedChild(made, UUID(bytes=claim.id), attempt.trace)
