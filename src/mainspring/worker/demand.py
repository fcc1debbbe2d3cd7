"""What to ask the store for: free slots and room ahead, turned into wants.

Lanes. A job of a queue waits in ``queue/async``, ``queue/thread`` or, enqueued by name, in
``queue/any``. With room for both kinds the three are asked for together, in one order of priority;
what is left of either kind's room is asked for alone.

A queue with a cap is asked for apart from the others, never claimed ahead, and counts what is held
of it. Room is shared out in a new order each turn; what gave less than it was asked for is *dry*
and is left out until something wakes it, so its room goes to the others: no slot idles while
any queue has work, at most one turn later.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from mainspring.lanes import base_lane
from mainspring.records import Claim, Want
from mainspring.worker.pools.base import AHEAD_MAX, Pool

_AGED = 20
"""One claim in so many is by age alone."""


class _Ask(NamedTuple):
    group: str
    kind: str
    """``both``, ``async``, ``thread`` or ``any``."""
    want: Want


class Demand:
    """Keeps count of what is held, what was asked for and what is dry."""

    def __init__(self, queues: Sequence[str], caps: Mapping[str, int], pools: Mapping[str, Pool]) -> None:
        self._caps = {queue: caps[queue] for queue in queues if queue in caps}
        open_queues = [queue for queue in queues if queue not in caps]
        self._groups: dict[str, tuple[str, ...]] = {queue: (queue,) for queue in self._caps}
        if open_queues:
            self._groups[""] = tuple(open_queues)
        self._order = list(self._groups)
        self._aio, self._thread = pools["async"], pools["thread"]
        self._sides = (("async", self._aio), ("thread", self._thread))
        self._dry: set[tuple[str, str]] = set()
        self._spared: set[tuple[str, str]] = set()
        """Those of the dry that may hold limited jobs, which wait for a free slot."""
        self._held = dict.fromkeys(self._caps, 0)
        self._asked: list[_Ask] = []
        self._woken = False  # since the last wants
        self._young = 0  # claims since the last by age

    # ---- counting ----------------------------------------------------------------------------

    def took(self, queue: str) -> None:
        if queue in self._held:
            self._held[queue] += 1

    def released(self, queue: str) -> None:
        if queue in self._held:
            self._held[queue] -= 1
        if self._spared:
            self._dry -= self._spared
            self._spared.clear()

    def wake(self) -> None:
        """There may be work in any lane: also of those that a turn under way asks for, which may have come too soon."""
        self._dry.clear()
        self._spared.clear()
        self._woken = True

    # ---- asking ------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Some slot has nothing to do."""
        return self._aio.held < self._aio.slots or self._thread.held < self._thread.slots

    @property
    def dry(self) -> bool:
        """Slots are free and the store had nothing for them."""
        return not self._plan()

    @property
    def half_ahead(self) -> int:
        """Half of the largest room ahead; 0 when nothing is claimed ahead."""
        return max(self._ahead(self._aio), self._ahead(self._thread)) // 2

    @property
    def urgent(self) -> bool:
        """Worth a turn now: work for an idle slot, or half of the room ahead is used up."""
        return (self.idle or self._low(self._aio) or self._low(self._thread)) and not self.dry

    def wants(self) -> tuple[Want, ...]:
        """The wants of the next turn; :meth:`heard` must follow."""
        self._order = self._order[1:] + self._order[:1]  # of a scheduler there is none
        self._asked = self._plan()
        self._woken = False
        return tuple(ask.want for ask in self._asked)

    def heard(self, claims: Sequence[Claim]) -> None:
        """What the store gave for the last wants."""
        asked, self._asked = self._asked, []
        if not asked:
            return
        aged = min(len(claims), sum(ask.want.oldest for ask in asked))
        self._young = min(_AGED * AHEAD_MAX, self._young + len(claims)) - _AGED * aged
        if self._woken or len(claims) >= sum(ask.want.n for ask in asked):
            return
        got: dict[tuple[str, str], int] = {}
        for claim in claims:
            group = claim.queue if claim.queue in self._caps else ""
            for key in ((group, _kind_of(claim)), (group, "both")):
                got[key] = got.get(key, 0) + 1
        for group, kind, want in asked:
            if got.get((group, kind), 0) < want.n:
                self._dry.add((group, kind))
                if want.limited is not None:
                    self._spared.add((group, kind))

    def _plan(self) -> list[_Ask]:
        plan: list[_Ask] = []
        taken = {"async": 0, "thread": 0}
        young = max(0, self._young)
        for group in self._order:
            for kind, n in self._shares(group, taken):
                oldest = n if young >= n * _AGED else 0  # all at once, then none for long: by age is the dearer way
                young -= oldest * _AGED
                plan.append(_Ask(group, kind, Want(self._lanes(group, kind), n, oldest, self._free(kind, n, taken))))
                for side in taken:
                    taken[side] += n if kind in (side, "both", "any") else 0
        return plan

    def _shares(self, group: str, taken: Mapping[str, int]) -> list[tuple[str, int]]:
        """How many of each kind to ask this group for."""
        aio = self._room(self._aio, group, taken["async"])
        thread = self._room(self._thread, group, taken["thread"])
        cap = self._caps[group] - self._held[group] if group else aio + thread
        both = min(aio, thread, cap)
        alone = min(aio - both, cap - both)
        shares = [("both", both), ("async", alone), ("thread", min(thread - both, cap - both - alone))]
        if both > 0:
            if (group, "both") in self._dry:
                return []
        elif self._aio.held <= self._aio.slots and self._thread.held <= self._thread.slots:
            # One kind is full. A job enqueued by name may be of either: looked at one by one, at most one waits.
            shares.append(("any", min(1, cap, aio + thread)))
        return [(kind, n) for kind, n in shares if n > 0 and (group, kind) not in self._dry]

    def _room(self, pool: Pool, group: str, taken: int) -> int:
        ahead = 0 if group else self._ahead(pool)
        return max(0, pool.slots + ahead - pool.held - taken)

    def _free(self, kind: str, n: int, taken: Mapping[str, int]) -> int | None:
        """How many of ``n`` find a slot that is free now; None: all."""
        pools = {"async": (self._aio,), "thread": (self._thread,)}.get(kind, (self._aio, self._thread))
        free = min(max(0, pool.slots - pool.held - taken[side]) for side, pool in self._sides if pool in pools)
        return free if free < n else None

    def _ahead(self, pool: Pool) -> int:
        """Claims ahead would keep a capped queue from ever finding a free slot: none while one may have work."""
        for queue, cap in self._caps.items():
            if self._held[queue] < cap and (queue, "both") not in self._dry:
                return 0
        return pool.pace.ahead()

    def _low(self, pool: Pool) -> bool:
        ahead = self._ahead(pool)
        return pool.slots + ahead - pool.held > ahead // 2

    def _lanes(self, group: str, kind: str) -> tuple[str, ...]:
        kinds = {"both": ("async", "thread", "any"), "any": ("any",)}.get(kind, (kind,))
        if (kind == "async" and not self._thread.slots) or (kind == "thread" and not self._aio.slots):
            kinds = (kind, "any")
        return tuple(base_lane(queue, each) for queue in self._groups[group] for each in kinds)


def _kind_of(claim: Claim) -> str:
    """The kind of the base lane that a claim came from."""
    rest = claim.lane[len(claim.queue) + 1 :]
    return next((kind for kind in ("async", "thread") if rest.startswith(kind)), "any")
