"""What to ask the store for: free slots and room ahead, turned into wants.

Lanes. A job of a queue waits in ``queue/async``, ``queue/thread`` or, enqueued by name, in
``queue/any``; on terms beside these (see lanes). With room for both kinds all are asked for together,
in one order of priority; what is left of either kind's room is asked for alone.

A queue with a cap is asked for apart from the others, never claimed ahead, and counts what is held
of it. Room is shared out in a new order each turn; what gave less than it was asked for is *dry*
and is left out until something wakes it, so its room goes to the others: no slot idles while
any queue has work, at most one turn later.

With weights every queue is asked for apart, for its part of the room (see shares). A line of lanes that
has room of its own is asked for beside all that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from mainspring.jobs.lanes import KINDS, base_lane, base_of
from mainspring.worker.loop.queue_shares import QueueShares
from mainspring.worker.loop.wants import (
    ALONE,
    SIDES,
    Ask,
    Given,
    PromisedSlots,
    TurnWants,
    WantedLanes,
    kind_of,
    of_line,
)
from mainspring.worker.records import Claim, Want
from mainspring.worker.run.slots.base import AHEAD_MAX, SlotPool

_AGED = 20
"""One claim in so many is by age alone."""
_OPEN = ""
"""The group of the queues that are asked for together."""
_PLAIN: Mapping[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class Demand:
    """Keeps count of what is held, what was asked for and what is dry.

    ``kinds`` gives for each kind of slot the kinds of the base lanes to ask for.
    """

    def __init__(
        self,
        queues: Sequence[str],
        caps: Mapping[str, int],
        pools: Mapping[str, SlotPool],
        *,
        kinds: Mapping[str, tuple[str, ...]] = _PLAIN,
        weights: Mapping[str, float] | None = None,
        lines: Sequence[WantedLanes] = (),
    ) -> None:
        self._caps = {queue: caps[queue] for queue in queues if queue in caps}
        self._kinds = kinds
        self._weights = {queue: (weights or {}).get(queue, 1) for queue in queues}
        self._shares: dict[str, QueueShares] = {}
        open_queues = tuple(queue for queue in queues if queue not in caps)
        self._groups: dict[str, tuple[str, ...]] = {queue: (queue,) for queue in self._caps}
        if open_queues:
            self._groups[_OPEN] = open_queues
        self._lines = {f"line {n}": line for n, line in enumerate(lines)}
        self._line_of = {
            base_lane(queue, kind): name
            for name, line in self._lines.items()
            for queue in queues
            for kind in line.kinds
        }
        self._order = [*self._groups, *self._lines]
        self._pools = pools
        self._aio, self._thread = pools["async"], pools["thread"]
        self._dry: set[tuple[str, str]] = set()
        self._spared: set[tuple[str, str]] = set()
        """Those of the dry that may hold limited jobs, which wait for a free slot."""
        self._kept_out: set[tuple[str, str]] = set()
        """Those of the dry that found a limit used up: worth no turn of their own, but they compete in any other."""
        self._held = dict.fromkeys(self._caps, 0)
        self._named: dict[tuple[str, str], tuple[str, ...]] = {}  # lanes by group and kind
        self._asked = TurnWants()
        self._turns = 0
        self._woken = False  # since the last wants
        self._young: dict[str, int] = {}  # claims of each group since the last by age
        if set(self._weights.values()) - {1}:
            self.ask_apart()

    def ask_apart(self) -> None:
        """Share claims between queues by their weights, also by equal ones: before the first wants."""
        self._shares = {kind: QueueShares(self._weights) for kind in ("both", *KINDS)}
        self._groups = {queue: (queue,) for queue in (*self._caps, *self._groups.get(_OPEN, ()))}
        self._order = [_OPEN, *self._lines]
        self._named.clear()

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
        self._kept_out.clear()
        self._woken = True

    # ---- asking ------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        """Some slot has nothing to do."""
        return self._aio.held < self._aio.slots or self._thread.held < self._thread.slots

    @property
    def dry(self) -> bool:
        """Slots are free and the store had nothing for them."""
        room = self._room()
        if self._shares and any(any(most.values()) for _, _, most in self._contests(room)):
            return False  # the same as below at less cost
        if not self._shares and not self._lines:
            return not any(self._rooms(group, room) for group in self._order)
        return not self._plan().asks

    @property
    def half_ahead(self) -> int:
        """Half of the largest room ahead; 0 when nothing is claimed ahead."""
        return max(self._ahead(self._aio), self._ahead(self._thread)) // 2

    @property
    def urgent(self) -> bool:
        """Worth a turn now: work for an idle slot, or half of the room ahead is used up."""
        wanted = self.idle or self._low(self._aio) or self._low(self._thread)
        return (wanted or any(line.ask(0)[0] for line in self._lines.values())) and not self.dry

    def wants(self) -> tuple[Want, ...]:
        """The wants of the next turn; :meth:`heard` must follow."""
        self._order = self._order[1:] + self._order[:1]  # of a scheduler there is none
        self._turns += 1
        self._asked = self._plan()
        self._woken = False
        return tuple(ask.want for ask in self._asked.asks)

    def heard(self, claims: Sequence[Claim], *, partly: bool = False, held: Collection[str] = ()) -> None:
        """What the store gave for the last wants.

        ``partly``: it stopped before it had looked everywhere. ``held``: queues with jobs that limits had no room for.
        """
        plan, self._asked = self._asked, TurnWants()
        if not plan.asks:
            return
        enough = len(claims) >= sum(ask.want.n for ask in plan.asks)
        got: Given = plan.filled if enough else self._counted(claims)
        given = got if enough else plan.attributed(got)
        self._grow_older(plan, given)
        if self._shares:
            self._charge(plan, given, partly=partly, held=held)
        if enough or self._woken:
            return
        for group, kind, want in plan.asks:
            if got.get((group, kind), 0) < want.n:
                self._dry.add((group, kind))
                (self._kept_out.add if group in held else self._kept_out.discard)((group, kind))
                if want.limited is not None:
                    self._spared.add((group, kind))

    # ---- the reply ---------------------------------------------------------------------------

    def _counted(self, claims: Sequence[Claim]) -> Given:
        """Claims by group and kind; those of a group also as of both kinds."""
        got = Counter[tuple[str, str]]()
        for claim in claims:
            line = self._line_of.get(base_of(claim.lane)) if self._line_of else None
            if line is not None:
                got[of_line(line, claim.queue if claim.queue in self._caps else ""), ALONE] += 1
                continue
            group = claim.queue if claim.queue in self._groups else _OPEN
            kind = kind_of(claim)
            if kind == "any":  # asked for with the one kind that has slots, see _lanes
                kind = "async" if not self._thread.slots else "thread" if not self._aio.slots else kind
            got[group, kind] += 1
            got[group, "both"] += 1
        return got

    def _grow_older(self, plan: TurnWants, given: Given) -> None:
        for group, asked in plan.by_age.items():
            young = sum(n for (each, _), n in given.items() if each == group)
            self._young[group] = min(_AGED * AHEAD_MAX, self._young.get(group, 0) + young) - _AGED * min(young, asked)

    def _charge(self, plan: TurnWants, given: Given, *, partly: bool, held: Collection[str]) -> None:
        """Wants are filled in their order: where the store stopped, nobody knows what those behind have.

        Nor do those stop competing that others left no room in a limit: the next place there is theirs.
        """
        last = max((n for n, ask in enumerate(plan.asks) if given[ask.group, ask.kind]), default=0)
        looked_at = plan.asks[:last] if partly else plan.asks
        for kind, split in plan.splits.items():
            short = {ask.group for ask in looked_at if ask.kind == kind and given[ask.group, kind] < ask.want.n}
            got = {queue: given.get((queue, kind), 0) for queue in split.given}
            self._shares[kind].charge(got, short.difference(held) | split.full)

    # ---- the plan ----------------------------------------------------------------------------

    def _plan(self) -> TurnWants:
        plan, room = TurnWants(), self._room()
        for name in self._order:
            if name in self._lines:
                self._ask_line(plan, name, room)
            elif self._shares:
                self._ask_by_weight(plan, room)
            else:
                for kind, n in self._rooms(name, room):
                    self._ask(plan, room, name, kind, n)
        return plan

    def _room(self) -> PromisedSlots:
        return PromisedSlots({queue: cap - self._held[queue] for queue, cap in self._caps.items()})

    def _ask(self, plan: TurnWants, room: PromisedSlots, group: str, kind: str, n: int) -> None:
        self._add(plan, group, kind, n, self._lanes(group, kind), self._at_once(kind, n, room))
        room.take(group, kind, n)

    def _add(
        self, plan: TurnWants, group: str, kind: str, n: int, lanes: tuple[str, ...], limited: int | None = None
    ) -> None:
        young = max(0, self._young.get(group, 0)) - _AGED * plan.by_age.get(group, 0)
        oldest = n if young >= n * _AGED else 0  # all at once, then none for long: by age is the dearer way
        plan.add(Ask(group, kind, Want(lanes, n, oldest, limited)))

    def _rooms(self, group: str, room: PromisedSlots) -> list[tuple[str, int]]:
        """How many of each kind to ask this group for."""
        aio, thread = self._free(self._aio, group, room, "async"), self._free(self._thread, group, room, "thread")
        cap = room.left.get(group, aio + thread)
        both = min(aio, thread, cap)
        alone = min(aio - both, cap - both)
        rooms = [("both", both), ("async", alone), ("thread", min(thread - both, cap - both - alone))]
        if both > 0:
            if (group, "both") in self._dry:
                return []
        elif self._takes_any:
            rooms.append(("any", min(1, cap - sum(n for _, n in rooms if n > 0), aio + thread)))
        return [(kind, n) for kind, n in rooms if n > 0 and (group, kind) not in self._dry]

    def _ask_by_weight(self, plan: TurnWants, room: PromisedSlots) -> None:
        """The same for all queues at once, each for its part."""
        for kind, n, most in self._contests(room):
            shares = self._shares[kind]
            given = shares.split(n, most)
            plan.split(kind, given, {queue for queue in given if given[queue] == most[queue] < n})
            for queue in sorted(filter(given.get, given), key=shares.deficits.__getitem__, reverse=True):
                self._ask(plan, room, queue, kind, given[queue])

    def _contests(self, room: PromisedSlots) -> Iterator[tuple[str, int, dict[str, int]]]:
        """For each kind the room that queues compete for, and the most that each of them can take of it."""
        aio, thread = self._free(self._aio, _OPEN, room, "async"), self._free(self._thread, _OPEN, room, "thread")
        both = min(aio, thread)
        rooms = [("both", both), ("async", aio - both), ("thread", thread - both)]
        if not both and self._takes_any:
            rooms.append(("any", min(1, aio + thread)))
        for kind, n in rooms:
            if n > 0:
                yield kind, n, {queue: min(n, self._most(queue, kind, room)) for queue in self._competing(kind, both)}

    def _competing(self, kind: str, both: int) -> list[str]:
        """The queues that may have work of this kind; while there is one, those too that a limit had no room for."""
        kinds = (kind, "both") if both else (kind,)
        dry = {queue: {(queue, each) for each in kinds} & self._dry for queue in self._groups}
        if all(dry.values()):
            return []
        return [queue for queue, found in dry.items() if found <= self._kept_out]

    def _most(self, queue: str, kind: str, room: PromisedSlots) -> int:
        """The most that a queue may be asked for: as much as there is, unless it has a cap."""
        if queue not in self._caps:
            return AHEAD_MAX + self._aio.slots + self._thread.slots
        sides = [self._free(self._pools[side], queue, room, side) for side in ("async", "thread")]
        free = {"both": min(sides), "async": sides[0], "thread": sides[1], "any": sum(sides)}
        return max(0, min(free[kind], room.left[queue]))

    def _ask_line(self, plan: TurnWants, name: str, room: PromisedSlots) -> None:
        """The queues without a cap, or by turns one that has one."""
        line = self._lines[name]
        parts = [
            queue for queue in ("", *self._caps)
            if room.left.get(queue, 1) > 0 and (of_line(name, queue), ALONE) not in self._dry
            and self._line_lanes(line, queue)
        ]  # fmt: skip
        if not parts:
            return
        n, slots = line.ask(self._free(self._pools[line.kind], name, room, line.kind))
        queue = parts[self._turns // len(self._order) % len(parts)]
        n = min(n, room.left.get(queue, n))
        if n > 0:
            self._add(plan, of_line(name, queue), ALONE, n, self._line_lanes(line, queue))
            room.take(queue, line.kind, n, slots)

    @property
    def _takes_any(self) -> bool:
        """One kind is full. A job enqueued by name may be of either: looked at one by one, at most one waits."""
        return 0 < self._aio.slots >= self._aio.held and 0 < self._thread.slots >= self._thread.held

    def _free(self, pool: SlotPool, group: str, room: PromisedSlots, side: str) -> int:
        ahead = 0 if group in self._caps or group in self._lines else self._ahead(pool)
        return max(0, pool.slots + ahead - pool.held - room.taken[side])

    def _at_once(self, kind: str, n: int, room: PromisedSlots) -> int | None:
        """How many of ``n`` find a slot that is free now; None: all."""
        sides = [(self._pools[side], room.taken[side]) for side in SIDES[kind]]
        free = min(pool.slots - pool.held - taken for pool, taken in sides if pool.slots)
        return max(0, free) if free < n else None

    def _ahead(self, pool: SlotPool) -> int:
        """Claims ahead would keep a capped queue, or a line, from ever finding a slot: none while one may have work."""
        for queue, cap in self._caps.items():
            if self._held[queue] < cap and (queue, "both") not in self._dry:
                return 0
        for name in self._lines:
            if (of_line(name, ""), ALONE) not in self._dry:
                return 0
        return pool.pace.ahead()

    def _low(self, pool: SlotPool) -> bool:
        ahead = self._ahead(pool)
        return pool.slots + ahead - pool.held > ahead // 2

    # ---- lanes -------------------------------------------------------------------------------

    def _lanes(self, group: str, kind: str) -> tuple[str, ...]:
        lanes = self._named.get((group, kind))
        if lanes is None:
            kinds: tuple[str, ...] = KINDS if kind == "both" else (kind,)
            if (kind == "async" and not self._thread.slots) or (kind == "thread" and not self._aio.slots):
                kinds = (kind, "any")
            found = [each for plain in kinds for each in self._kinds[plain]]
            lanes = tuple(base_lane(queue, each) for queue in self._groups[group] for each in found)
            self._named[group, kind] = lanes
        return lanes

    def _line_lanes(self, line: WantedLanes, capped: str) -> tuple[str, ...]:
        """The lanes of a line in one queue with a cap, or in all without."""
        queues = (capped,) if capped else [each for queues in self._groups.values() for each in queues]
        return tuple(
            base_lane(queue, kind) for queue in queues for kind in line.kinds if capped or queue not in self._caps
        )
