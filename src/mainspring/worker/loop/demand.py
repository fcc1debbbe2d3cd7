"""What to ask the store for: free slots, and jobs claimed ahead, turned into wants.

Lanes. A job of a queue waits in ``queue/async``, ``queue/thread`` or, when it was enqueued by name, in ``queue/any``;
with terms, in lanes beside these (see ``jobs/lanes.py``). While both kinds of slots are free, all lanes are asked for
together, in one order of priority. What remains free of either kind is asked for in a want of its own.

A number in ``concurrency=`` limits the jobs of both kinds of slots together; then nothing is claimed ahead. A queue
with a cap (``concurrency={"email": 5}``) has a want of its own, is never claimed ahead, and its held jobs are counted.
The order of the wants changes each turn. A want that gave fewer jobs than it asked for is *dry*: it is left out until
something wakes it, so its slots go to the other queues. No slot is idle for more than one turn while any queue has
work.

Each want is sent in two parts: the jobs for slots that are free now, and behind these parts of all wants, with
``ahead=True``, the jobs that will wait for a slot. Some jobs with limits need a free slot and are not claimed ahead. If
the store passed over such jobs, nothing more is claimed ahead until they have had slots: else jobs claimed ahead would
take every slot.

With weights, every queue has a want of its own, for its share of the free slots (see ``queue_shares.py``). Bulk tasks
ask for their lanes in wants of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from mainspring.jobs.lanes import KINDS, base_lane, base_of
from mainspring.worker.loop.queue_shares import QueueShares, interleave
from mainspring.worker.records import Claim, Want
from mainspring.worker.run.slots.base import AHEAD_MAX, LaneRequest, SlotPool

_UNCAPPED = ""
"""The group of the queues without a cap, which are asked for together."""
_SEPARATE = "separate"
"""The kind of a want for separate lanes."""
_SIDES = {"both": ("async", "thread"), "any": ("async", "thread"), "async": ("async",), "thread": ("thread",)}
"""The pools whose slots a want of each kind uses."""
_PLAIN: Mapping[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}

JobCounts = Mapping[tuple[str, str], int]
"""Numbers of jobs, by group and kind."""


class SeparateLanes(Protocol):
    """Lanes that are asked for in a want of their own: those of one bulk task, or of one pool of process slots."""

    kind: str
    """The name of the slots that its jobs use."""
    kinds: tuple[str, ...]
    """The kinds of its base lanes, in every queue."""

    def request(self, free: int, *, ahead: bool) -> LaneRequest:
        """What to ask for with ``free`` free slots. ``ahead``: whether some jobs may wait for a slot."""
        ...


class GroupWant(NamedTuple):
    """What to ask for in one group of queues, or in separate lanes."""

    group: str
    kind: str
    """``both``, ``async``, ``thread``, ``any`` or ``separate``."""
    lanes: tuple[str, ...]
    n: int
    now: int
    """How many of the ``n`` jobs find a free slot. The others are claimed ahead."""


class SlotSplit(NamedTuple):
    """Slots of one kind that were split between queues by weight."""

    given: dict[str, int]
    capped: set[str]
    """The queues that could not take more because of their cap."""


class PromisedSlots:
    """The slots that earlier wants of the same turn use."""

    def __init__(self, headroom: dict[str, int]) -> None:
        self.headroom = headroom
        """For each queue with a cap: how many more of its jobs the worker may hold."""
        self.promised = Counter[str]()
        self.total = 0

    def take(self, queue: str, kind: str, n: int, slots: int | None = None) -> None:
        """A want asks for ``n`` jobs, which use ``slots`` slots (by default ``n``)."""
        used = n if slots is None else slots
        self.total += used
        for side in _SIDES.get(kind, (kind,)):
            self.promised[side] += used
        if queue in self.headroom:
            self.headroom[queue] -= n


class TurnWants:
    """The wants of one turn, in their order."""

    def __init__(self) -> None:
        self.wants: list[GroupWant] = []
        self.splits: dict[str, SlotSplit] = {}

    def to_send(self) -> tuple[Want, ...]:
        """The wants for free slots, then those for jobs claimed ahead."""
        now = [Want(each.lanes, each.now) for each in self.wants if each.now]
        return (*now, *[Want(each.lanes, each.n - each.now, ahead=True) for each in self.wants if each.n > each.now])

    def full_counts(self) -> JobCounts:
        """The jobs of each want, if the store gave all that was asked for."""
        return {(each.group, each.kind): each.n for each in self.wants}

    def by_group(self) -> Counter[str]:
        """How many jobs were asked for in each group. With weights of queues, a group is a queue."""
        found = Counter[str]()
        for each in self.wants:
            found[each.group] += each.n
        return found

    def assign(self, got: JobCounts) -> JobCounts:
        """The jobs of each want, from the jobs of each group and kind: the store fills earlier wants first."""
        found: dict[tuple[str, str], int] = {}
        groups = {each.group for each in self.wants}
        left = {group: got.get((group, "both"), 0) + got.get((group, _SEPARATE), 0) for group in groups}
        for group, kind, _, n, _ in self.wants:
            found[group, kind] = min(n, got.get((group, kind), 0), left[group])
            left[group] -= found[group, kind]
        return found

    def examined(self, assigned: JobCounts) -> list[GroupWant]:
        """The wants that a store which stopped early has certainly examined to their end: those before the last want
        that got jobs, or, with a part claimed ahead, before the last want that got more than fits into free slots."""
        got = [assigned[each.group, each.kind] for each in self.wants]
        last = max((at for at, n in enumerate(got) if n), default=0)
        last_ahead = max((at for at, n in enumerate(got) if n > self.wants[at].now), default=0)
        return [each for at, each in enumerate(self.wants) if at < (last_ahead if each.n > each.now else last)]


class Demand:
    """Counts the held jobs, remembers what was asked for and which wants are dry, and builds the next wants.

    ``lane_kinds`` gives, for each kind of slot, the kinds of the base lanes to ask for.
    """

    def __init__(
        self,
        queues: Sequence[str],
        caps: Mapping[str, int],
        pools: Mapping[str, SlotPool],
        *,
        max_jobs: int | None = None,
        lane_kinds: Mapping[str, tuple[str, ...]] = _PLAIN,
        weights: Mapping[str, float] | None = None,
        separate: Sequence[SeparateLanes] = (),
    ) -> None:
        self._caps = {queue: caps[queue] for queue in queues if queue in caps}
        self._max_jobs = max_jobs
        self._lane_kinds = lane_kinds
        self._weights = {queue: (weights or {}).get(queue, 1) for queue in queues}
        self._shares: dict[str, QueueShares] = {}
        uncapped = tuple(queue for queue in queues if queue not in caps)
        self._groups: dict[str, tuple[str, ...]] = {queue: (queue,) for queue in self._caps}
        if uncapped:
            self._groups[_UNCAPPED] = uncapped
        self._separate = {f"separate {n}": lanes for n, lanes in enumerate(separate)}
        self._separate_of = {
            base_lane(queue, kind): name
            for name, lanes in self._separate.items()
            for queue in queues
            for kind in lanes.kinds
        }
        self._order = [*self._groups, *self._separate]
        self._pools = pools
        self._aio, self._thread = pools["async"], pools["thread"]
        self._all_pools = tuple(pools.values())
        self._own_slots = sum(pool.slots for pool in self._all_pools)  # without the slots that waiting bodies lend
        self._dry: set[tuple[str, str]] = set()
        self._passed = False
        """The store passed over jobs that need a free slot: claim nothing ahead until they have had slots."""
        self._limit_blocked: set[tuple[str, str]] = set()
        """Dry wants whose jobs found a limit used up. They cause no turn, but they compete in every turn."""
        self._held = dict.fromkeys(self._caps, 0)
        self._lane_cache: dict[tuple[str, str], tuple[str, ...]] = {}  # by group and kind
        self._asked = TurnWants()
        self._asked_by_queue: Mapping[str, int] = {}
        """For queues with weights: how many jobs of each were asked for in the turn that was answered last."""
        self._turns = 0
        self._woken = False  # since the last wants
        if set(self._weights.values()) - {1}:
            self.share_by_weight()

    def share_by_weight(self) -> None:
        """Split the slots between queues by their weights, also by equal weights. Call before the first wants."""
        self._shares = {kind: QueueShares(self._weights) for kind in ("both", *KINDS)}
        self._groups = {queue: (queue,) for queue in (*self._caps, *self._groups.get(_UNCAPPED, ()))}
        self._order = [_UNCAPPED, *self._separate]
        self._lane_cache.clear()

    # ---- counting ----------------------------------------------------------------------------

    def count_claim(self, queue: str) -> None:
        """The worker holds one more job of this queue."""
        if queue in self._held:
            self._held[queue] += 1

    def count_release(self, queue: str) -> None:
        """The worker holds one job less of this queue."""
        if queue in self._held:
            self._held[queue] -= 1

    def wake(self) -> None:
        """Any lane may have work, also a lane of the turn in flight: the store may have read that lane before."""
        self._dry.clear()
        self._limit_blocked.clear()
        self._woken = True

    # ---- the next wants ----------------------------------------------------------------------

    @property
    def has_idle_slot(self) -> bool:
        if self._max_jobs is not None and not self._left():
            return False
        return any(pool.held < pool.slots for pool in self._all_pools)

    @property
    def is_dry(self) -> bool:
        """Slots are free, and the store had no jobs for them."""
        promised = self._promised()
        if self._shares and any(any(limits.values()) for _, _, limits in self._shared_slots(promised)):
            return False  # the same answer as below, at less cost
        if not self._shares and not self._separate:
            return not any(self._free_by_kind(group, promised) for group in self._order)
        return not self._build().wants

    @property
    def half_ahead(self) -> int:
        """Half of the larger number of claims ahead; 0 when nothing is claimed ahead."""
        return max(self._ahead(self._aio), self._ahead(self._thread)) // 2

    @property
    def is_urgent(self) -> bool:
        """Worth a turn now: there may be work for an idle slot, or half of the claims ahead are used up."""
        wanted = self.has_idle_slot or self._half_used(self._aio) or self._half_used(self._thread)
        return (
            wanted or any(lanes.request(0, ahead=self._may_claim_ahead).n for lanes in self._separate.values())
        ) and not self.is_dry

    def next_wants(self) -> tuple[Want, ...]:
        """The wants of the next turn. :meth:`record_reply` must follow."""
        self._order = self._order[1:] + self._order[:1]  # empty for a worker with the role scheduler alone
        self._turns += 1
        self._asked = self._build()
        self._woken = False
        return self._asked.to_send()

    def record_reply(
        self, claims: Sequence[Claim], *, partial: bool = False, blocked: Collection[str] = (), passed: bool = False
    ) -> None:
        """The store's answer to the last wants.

        ``partial``: the store stopped before it had looked at all lanes. ``blocked``: queues with jobs that a limit
        without a key had no capacity for. ``passed``: a want with ``ahead`` passed over jobs that need a free slot.
        """
        asked, self._asked = self._asked, TurnWants()
        if self._shares:
            self._asked_by_queue = asked.by_group()
        if not asked.wants:
            return
        enough = len(claims) >= sum(each.n for each in asked.wants)
        # While all jobs come from limits, there may be more of these: claim ahead when other jobs are in their turn.
        self._passed = passed or (self._passed and enough and all("#" in claim.lane for claim in claims))
        got: JobCounts = asked.full_counts() if enough else self._count_claims(claims)
        if self._shares:
            assigned = got if enough else asked.assign(got)
            self._charge_shares(asked, assigned, partial=partial, blocked=blocked)
        if enough or self._woken:
            return
        for group, kind, _, n, _ in asked.wants:
            if passed and kind != "any":
                continue  # its next want is for free slots alone, and may get the jobs that were passed over
            if got.get((group, kind), 0) < n:
                self._dry.add((group, kind))
                (self._limit_blocked.add if group in blocked else self._limit_blocked.discard)((group, kind))

    def in_start_order(self, claims: Sequence[Claim]) -> Sequence[Claim]:
        """The claims of the reply recorded last, in the order in which they start."""
        return interleave(claims, self._asked_by_queue) if self._shares else claims

    # ---- the reply ---------------------------------------------------------------------------

    def _count_claims(self, claims: Sequence[Claim]) -> JobCounts:
        """Claims by group and kind. A claim of a group counts for its kind and for ``both``."""
        got = Counter[tuple[str, str]]()
        for claim in claims:
            separate = self._separate_of.get(base_of(claim.lane)) if self._separate_of else None
            if separate is not None:
                got[_separate_group(separate, claim.queue if claim.queue in self._caps else ""), _SEPARATE] += 1
                continue
            group = claim.queue if claim.queue in self._groups else _UNCAPPED
            kind = _kind_of(claim)
            if kind == "any":  # asked for together with the only kind that has slots, see _lanes
                kind = "async" if not self._thread.slots else "thread" if not self._aio.slots else kind
            got[group, kind] += 1
            got[group, "both"] += 1
        return got

    def _charge_shares(self, asked: TurnWants, assigned: JobCounts, *, partial: bool, blocked: Collection[str]) -> None:
        """Charge what each queue got.

        The store fills wants in their order: where it stopped, the wants behind are unknown, and are not charged as
        idle. A queue whose jobs found a limit used up by other queues also keeps competing: it gets the next place.
        """
        examined = asked.examined(assigned) if partial else asked.wants
        for kind, split in asked.splits.items():
            short = {each.group for each in examined if each.kind == kind and assigned[each.group, kind] < each.n}
            got = {queue: assigned.get((queue, kind), 0) for queue in split.given}
            self._shares[kind].charge(got, short.difference(blocked) | split.capped)

    # ---- building ----------------------------------------------------------------------------

    def _build(self) -> TurnWants:
        wants, promised = TurnWants(), self._promised()
        for name in self._order:
            if name in self._separate:
                self._add_separate(wants, name, promised)
            elif self._shares:
                self._add_by_weight(wants, promised)
            else:
                for kind, n in self._free_by_kind(name, promised):
                    self._add_group(wants, promised, name, kind, n)
        return wants

    def _promised(self) -> PromisedSlots:
        return PromisedSlots({queue: cap - self._held[queue] for queue, cap in self._caps.items()})

    def _add_group(self, wants: TurnWants, promised: PromisedSlots, group: str, kind: str, n: int) -> None:
        wants.wants.append(GroupWant(group, kind, self._lanes(group, kind), n, self._now(kind, n, promised)))
        promised.take(group, kind, n)

    def _free_by_kind(self, group: str, promised: PromisedSlots) -> list[tuple[str, int]]:
        """How many jobs of each kind to ask for in this group."""
        aio = self._free(self._aio, group, promised, "async")
        thread = self._free(self._thread, group, promised, "thread")
        cap = promised.headroom.get(group, aio + thread)
        if self._max_jobs is not None:
            cap = min(cap, self._left(promised))
        both = min(aio, thread, cap)
        alone = min(aio - both, cap - both)
        free = [("both", both), ("async", alone), ("thread", min(thread - both, cap - both - alone))]
        if both > 0:
            if (group, "both") in self._dry:
                return []
        elif self._takes_any:
            free.append(("any", min(1, cap - sum(n for _, n in free if n > 0), aio + thread)))
        return [(kind, n) for kind, n in free if n > 0 and (group, kind) not in self._dry]

    def _add_by_weight(self, wants: TurnWants, promised: PromisedSlots) -> None:
        """One want per queue and kind, each for the queue's share."""
        for kind, n, limits in self._shared_slots(promised):
            shares = self._shares[kind]
            given = shares.split(n, limits)
            wants.splits[kind] = SlotSplit(given, {queue for queue in given if given[queue] == limits[queue] < n})
            for queue in sorted(filter(given.get, given), key=shares.deficits.__getitem__, reverse=True):
                self._add_group(wants, promised, queue, kind, given[queue])

    def _shared_slots(self, promised: PromisedSlots) -> Iterator[tuple[str, int, dict[str, int]]]:
        """For each kind: the free slots that queues compete for, and the largest number that each queue can take."""
        aio = self._free(self._aio, _UNCAPPED, promised, "async")
        thread = self._free(self._thread, _UNCAPPED, promised, "thread")
        both = min(aio, thread)
        free = [("both", both), ("async", aio - both), ("thread", thread - both)]
        if not both and self._takes_any and (self._max_jobs is None or self._left(promised) > max(aio, thread)):
            free.append(("any", min(1, aio + thread)))
        for kind, n in free:
            if n > 0:
                queues = self._competing_queues(kind, both)
                yield kind, n, {queue: min(n, self._max_for_queue(queue, kind, promised)) for queue in queues}

    def _competing_queues(self, kind: str, both: int) -> list[str]:
        """The queues that may have work of this kind. If there is one, also the queues that a limit blocks."""
        kinds = (kind, "both") if both else (kind,)
        dry = {queue: {(queue, each) for each in kinds} & self._dry for queue in self._groups}
        if all(dry.values()):
            return []
        return [queue for queue, found in dry.items() if found <= self._limit_blocked]

    def _max_for_queue(self, queue: str, kind: str, promised: PromisedSlots) -> int:
        """The largest number of jobs to ask for in this queue: all that is free, unless the queue has a cap."""
        if queue not in self._caps:
            return AHEAD_MAX + self._aio.slots + self._thread.slots
        sides = [self._free(self._pools[side], queue, promised, side) for side in ("async", "thread")]
        free = {"both": min(sides), "async": sides[0], "thread": sides[1], "any": sum(sides)}
        return max(0, min(free[kind], promised.headroom[queue]))

    def _add_separate(self, wants: TurnWants, name: str, promised: PromisedSlots) -> None:
        """One want for separate lanes: in the queues without a cap, or in one queue with a cap, in turns."""
        lanes = self._separate[name]
        queues = [
            queue for queue in ("", *self._caps)
            if promised.headroom.get(queue, 1) > 0 and (_separate_group(name, queue), _SEPARATE) not in self._dry
            and self._separate_lanes(lanes, queue)
        ]  # fmt: skip
        if not queues:
            return
        queue = queues[self._turns // len(self._order) % len(queues)]
        free = self._free(self._pools[lanes.kind], name, promised, lanes.kind)
        asked = lanes.request(free, ahead=self._may_claim_ahead and not queue)
        n = min(asked.n, promised.headroom.get(queue, asked.n))
        if n > 0:
            group = _separate_group(name, queue)
            wants.wants.append(GroupWant(group, _SEPARATE, self._separate_lanes(lanes, queue), n, min(n, asked.now)))
            promised.take(queue, lanes.kind, n, asked.slots)

    @property
    def _may_claim_ahead(self) -> bool:
        return self._max_jobs is None and not self._passed

    @property
    def _takes_any(self) -> bool:
        """One kind is full. A job enqueued by name may be of either kind: ask for one, so that at most one waits."""
        return 0 < self._aio.slots >= self._aio.held and 0 < self._thread.slots >= self._thread.held

    def _free(self, pool: SlotPool, group: str, promised: PromisedSlots, side: str) -> int:
        ahead = 0 if group in self._caps or group in self._separate else self._ahead(pool)
        free = pool.slots + ahead - pool.held - promised.promised[side]
        return max(0, free if self._max_jobs is None else min(free, self._left(promised)))

    def _left(self, promised: PromisedSlots | None = None) -> int:
        """How many more jobs the worker may hold by ``concurrency=N``. Bodies that wait for other jobs do not count."""
        assert self._max_jobs is not None
        lent = sum(pool.slots for pool in self._all_pools) - self._own_slots
        taken = 0 if promised is None else promised.total
        return max(0, self._max_jobs + lent - sum(pool.held for pool in self._all_pools) - taken)

    def _now(self, kind: str, n: int, promised: PromisedSlots) -> int:
        """How many of ``n`` jobs find a slot that is free now."""
        sides = [(self._pools[side], promised.promised[side]) for side in _SIDES[kind]]
        return max(0, min(n, *[pool.slots - pool.held - taken for pool, taken in sides if pool.slots]))

    def _ahead(self, pool: SlotPool) -> int:
        """How many jobs to claim ahead. None while a capped queue or a bulk task may have work: they need free slots,
        and claims ahead would take every slot before them. None with ``concurrency=N``: a claim ahead of one kind of
        slot could start in it while the jobs of the other kind use up N."""
        if self._max_jobs is not None or self._passed:
            return 0
        for queue, cap in self._caps.items():
            if self._held[queue] < cap and (queue, "both") not in self._dry:
                return 0
        for name, lanes in self._separate.items():
            if self._pools[lanes.kind] is pool and (_separate_group(name, ""), _SEPARATE) not in self._dry:
                return 0
        return pool.claim_ahead.size()

    def _half_used(self, pool: SlotPool) -> bool:
        ahead = self._ahead(pool)
        return pool.slots + ahead - pool.held > ahead // 2

    # ---- lanes -------------------------------------------------------------------------------

    def _lanes(self, group: str, kind: str) -> tuple[str, ...]:
        lanes = self._lane_cache.get((group, kind))
        if lanes is None:
            kinds: tuple[str, ...] = KINDS if kind == "both" else (kind,)
            if (kind == "async" and not self._thread.slots) or (kind == "thread" and not self._aio.slots):
                kinds = (kind, "any")
            found = [each for plain in kinds for each in self._lane_kinds[plain]]
            lanes = tuple(base_lane(queue, each) for queue in self._groups[group] for each in found)
            self._lane_cache[group, kind] = lanes
        return lanes

    def _separate_lanes(self, lanes: SeparateLanes, capped: str) -> tuple[str, ...]:
        """Separate lanes in one queue with a cap, or (with ``capped=""``) in all queues without a cap."""
        queues = (capped,) if capped else [each for queues in self._groups.values() for each in queues]
        return tuple(
            base_lane(queue, kind) for queue in queues for kind in lanes.kinds if capped or queue not in self._caps
        )


def _separate_group(name: str, capped: str) -> str:
    """The group name of separate lanes in one queue with a cap, or (with ``capped=""``) in the other queues."""
    return f"{name} {capped}"


def _kind_of(claim: Claim) -> str:
    """The kind of the base lane that a claim came from."""
    rest = claim.lane[len(claim.queue) + 1 :]
    if rest.startswith("process"):  # in a test, whose pools are threads; else such lanes are separate
        return "thread"
    return next((kind for kind in ("async", "thread") if rest.startswith(kind)), "any")
