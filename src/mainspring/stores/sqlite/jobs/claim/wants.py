"""Hand out jobs for the wants of a turn: suspects first, then base lanes and the lanes beside them, merged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from mainspring.jobs.lanes import is_fair, is_limited
from mainspring.stores.sqlite.driver.statements import sizes
from mainspring.stores.sqlite.fair import fair_queues
from mainspring.stores.sqlite.lanes import costs_in, queue_of
from mainspring.stores.sqlite.limits.waiting import open_due_lanes
from mainspring.stores.sqlite.queues import paused_queues
from mainspring.stores.sqlite.rows import claim_of, claim_order
from mainspring.worker.records import Claim, Want

from .keyed import KeyedLaneSet
from .picker import ABOVE_ALL_PRIORITIES, NO_COSTS, JobSource, LaneSource, PickedJob, Picker, UnkeyedLimits

if TYPE_CHECKING:
    from mainspring.stores.sqlite.driver.transaction import Row, Tx
    from mainspring.stores.sqlite.limits.buckets import Capacities
    from mainspring.worker.records import Turn

PATIENCE = 200
"""Lanes without capacity that a want looks at, in one lane set, before it leaves the others to the next turn."""
_decode_tasks = msgspec.json.Decoder(frozenset[str]).decode
_decode_limits = msgspec.json.Decoder(tuple[str, ...]).decode


class LaneSet(NamedTuple):
    """A lane without keys, or the lanes with keys that share base, unkeyed limits and marks."""

    name: str
    unkeyed: tuple[str, ...] = ()
    keyed: bool = False

    @property
    def limited(self) -> bool:
        return bool(self.unkeyed) or (self.keyed and is_limited(self.name))

    @property
    def fair(self) -> bool:
        return self.keyed and is_fair(self.name)


class TurnClaims:
    """The claims of a turn in the order of its wants, and what the worker has to know about missing ones."""

    def __init__(self, suspects: int = 0) -> None:
        self.claims: list[Claim] = []
        self.suspects = suspects
        """How many more suspects may be claimed."""
        self.passed = False
        """A want with ``ahead`` passed over jobs that may start in a free slot only."""
        self.more = False
        self.next_at: int | None = None

    def add_missing(self, sources: Iterable[JobSource], moments: Iterable[int | None]) -> None:
        """A want got fewer jobs than it asked for: tell whether to ask again, and when."""
        self.more = self.more or any(source.looked >= PATIENCE for source in sources)
        self.next_at = min((at for at in (*moments, self.next_at) if at is not None), default=None)


def hand_out(tx: Tx, turn: Turn, tasks: str, capacities: Capacities) -> TurnClaims:
    """Claim jobs for each want. ``tasks`` are those that the worker registered, as JSON."""
    handed = TurnClaims(turn.suspects)
    for want, behind in _pairs(_without_paused(tx, turn.wants)):
        lane_sets = _lane_sets(tx, want, tasks)
        before = len(handed.claims)
        is_served = _serve_want(tx, turn, want, behind.n if behind else 0, lane_sets, capacities, handed)
        if behind and not is_served and len(handed.claims) - before >= want.n:
            _serve_want(tx, turn, behind, 0, lane_sets, capacities, handed)
    if handed.claims:
        capacities.write()
    return handed


def _pairs(wants: Sequence[Want]) -> list[tuple[Want, Want | None]]:
    """Each want with the want ahead in the same lanes that follows it. That gets nothing if the first gets too few."""
    found: list[tuple[Want, Want | None]] = []
    for want in wants:
        if want.n <= 0 or not want.lanes:
            continue
        if want.ahead and found and found[-1][1] is None and found[-1][0].lanes == want.lanes:
            found[-1] = (found[-1][0], want)
        else:
            found.append((want, None))
    return found


def _without_paused(tx: Tx, wants: Sequence[Want]) -> Sequence[Want]:
    """The wants without the lanes of paused and disabled queues."""
    paused = paused_queues(tx) if wants else None
    if not paused:
        return wants
    return [replace(each, lanes=tuple(lane for lane in each.lanes if queue_of(lane) not in paused)) for each in wants]


def _lane_sets(tx: Tx, want: Want, tasks: str) -> tuple[list[LaneSet], list[LaneSet]]:
    """The lane sets that a want can be served from: the usual ones, and those of suspects."""
    usual, suspected = [LaneSet(lane) for lane in want.lanes], list[LaneSet]()
    beside = tx.sized("lane_sets_beside", len(want.lanes), want.lanes).fetchall()
    known = _decode_tasks(tasks) if beside else frozenset()
    for name, suspect, task, unkeyed, keyed in beside:
        found = LaneSet(name, _decode_limits(unkeyed) if unkeyed else (), bool(keyed))
        if task is None or task in known:
            (suspected if suspect else usual).append(found)
    return usual, suspected


# ---- one want ----------------------------------------------------------------------------------------------


def _serve_want(
    tx: Tx,
    turn: Turn,
    want: Want,
    behind: int,
    all_lane_sets: tuple[list[LaneSet], list[LaneSet]],
    capacities: Capacities,
    handed: TurnClaims,
) -> bool:
    """Claim jobs for a want. If one statement can do it, it claims ``behind`` more jobs ahead; then returns True."""
    lane_sets, suspected = all_lane_sets
    picker = Picker(PATIENCE, ahead=want.ahead)
    suspect_sources: list[JobSource] = []
    if suspected and handed.suspects > 0:
        suspect_sources = _sources(tx, capacities, suspected, want, picker)
        picker.pick(suspect_sources, min(want.n, handed.suspects))
        handed.suspects -= len(picker.picked)
    left = want.n - len(picker.picked)
    if len(lane_sets) > 1:
        lane_sets = [each for each in lane_sets if _may_have_jobs(tx, each)]
    is_plain = len(lane_sets) == 1 and not lane_sets[0].keyed
    priority = _only_priority(tx, lane_sets[0].name) if is_plain else None
    bulk = None
    if priority is not None and lane_sets[0].limited:
        bulk = BulkLane(tx, capacities, lane_sets[0], priority, left + behind, ahead=want.ahead or behind > 0)
        if not bulk.has_capacity():
            priority = None
    sources = [] if priority is not None else _sources(tx, capacities, lane_sets, want, picker)
    picker.pick(sources, left)
    claims = _claim_ids(tx, turn, list(picker.picked.values()))
    if priority is not None and left > 0:
        found = _claim_from_lane(tx, turn, lane_sets[0].name, priority, left + behind)
        claims += found
        if bulk is not None:
            bulk.take(len(found))
    handed.claims += claims
    handed.passed = handed.passed or any(source.passed for source in (*suspect_sources, *sources))
    moments = [source.end() for source in (*suspect_sources, *sources)]
    if len(claims) < want.n:
        handed.add_missing((*suspect_sources, *sources), moments)
    return priority is not None and left > 0


class BulkLane:
    """A lane with unkeyed limits and jobs of one priority, from which one statement may claim all wanted jobs, if
    capacity allows."""

    def __init__(
        self, tx: Tx, capacities: Capacities, lane: LaneSet, priority: int, n: int, *, ahead: bool = False
    ) -> None:
        self._tx = tx
        self._capacities = capacities
        self._lane = lane
        self._priority = priority
        self._n = n
        self._limits = UnkeyedLimits(tx, capacities, lane.name, lane.unkeyed, ahead=ahead)
        self._costs: Mapping[str, int] = NO_COSTS

    def has_capacity(self) -> bool:
        """Whether all wanted jobs fit, without a look at each job."""
        if not self._fits():
            return False
        return not self._limits.count_costs or (self._costs_are_equal() and self._fits())

    def _fits(self) -> bool:
        return self._n <= self._limits.available(self._costs)

    def _costs_are_equal(self) -> bool:
        """Whether the first jobs of the lane all have the same costs."""
        values = (self._lane.name, self._tx.now, self._n, self._priority)
        found = {text for (text,) in self._tx.all("head_buckets", values)}
        self._costs = costs_in(found.pop()) if len(found) == 1 else NO_COSTS
        return not found and min(self._costs.values(), default=0) > 0

    def take(self, n: int) -> None:
        """Record the starts of the claimed jobs."""
        self._capacities.take(self._lane.unkeyed, self._costs, n)


def _may_have_jobs(tx: Tx, lane_set: LaneSet) -> bool:
    """Whether the lane has a ready job. Lanes with keys count always: they may have a moment to wait for."""
    return lane_set.keyed or tx.first("next_priority", (lane_set.name, ABOVE_ALL_PRIORITIES)) is not None


def _only_priority(tx: Tx, lane: str) -> int | None:
    """The priority of all ready jobs of a lane; None if it has jobs of several priorities, or no job."""
    ((highest, lowest),) = tx.all("priorities", (lane,))
    return highest if highest == lowest else None


def _sources(
    tx: Tx, capacities: Capacities, lane_sets: Sequence[LaneSet], want: Want, picker: Picker
) -> list[JobSource]:
    sources = [_source(tx, capacities, each, want, picker) for each in lane_sets if not each.fair]
    fair = [each for each in lane_sets if each.fair]
    return [*sources, *fair_queues(tx, capacities, fair, want.n, picker)] if fair else sources


def _source(tx: Tx, capacities: Capacities, lane_set: LaneSet, want: Want, picker: Picker) -> JobSource:
    if lane_set.keyed:
        open_due_lanes(tx, lane_set.name)
        return KeyedLaneSet(tx, capacities, lane_set.name, lane_set.unkeyed, want.n, picker)
    return LaneSource(tx, capacities, lane_set.name, lane_set.unkeyed, ahead=picker.ahead)


# ---- the statements ----------------------------------------------------------------------------------------


def _claim_from_lane(tx: Tx, turn: Turn, lane: str, priority: int, n: int) -> list[Claim]:
    """Claim the first jobs of a lane by one statement; all its jobs have this priority."""
    rows = tx.all("claim", (lane, tx.now, n, turn.worker, turn.number, priority))
    rows.sort(key=claim_order)
    return [claim_of(row) for row in rows]


def _claim_ids(tx: Tx, turn: Turn, picked: list[PickedJob]) -> list[Claim]:
    rows: dict[bytes, Row] = {}
    for start, end in sizes(len(picked)):
        values = [tx.now, turn.worker, turn.number, *(each.id for each in picked[start:end])]
        rows.update((row[0], row) for row in tx.sized("claim_ids", end - start, values).fetchall())
    holds = [(bucket, each.id, rows[each.id][1]) for each in picked for bucket in each.held]
    if holds:
        tx.cursor.executemany(tx.sql["add_job_hold"], holds)
    return [claim_of(rows[each.id]) for each in picked]
