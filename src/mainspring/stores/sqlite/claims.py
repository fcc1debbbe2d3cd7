"""Hand out work: suspects first, then base lanes and the lanes beside them as one line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from mainspring.jobs.lanes import is_fair, is_limited
from mainspring.worker.records import Claim, Want

from .fair import fair_lines
from .keyed import KeyedLine
from .modes import paused
from .parking import open_due
from .picking import NO_COSTS, Gates, LaneLine, Line, Picked, Picker
from .places import costs_in, queue_of
from .rooms import Rooms
from .statements import sizes
from .tx import OF_PART

if TYPE_CHECKING:
    from mainspring.worker.records import Turn

    from .tx import Row, Tx

PATIENCE = 200
"""Lanes without room that a want looks at, in one group, before it leaves the others to the next turn."""
_names = msgspec.json.Decoder(frozenset[str]).decode
_gates = msgspec.json.Decoder(tuple[str, ...]).decode


class Group(NamedTuple):
    """A lane without keys, or the lanes with keys of one group."""

    name: str
    gates: tuple[str, ...] = ()
    keyed: bool = False

    @property
    def limited(self) -> bool:
        return bool(self.gates) or (self.keyed and is_limited(self.name))

    @property
    def fair(self) -> bool:
        return self.keyed and is_fair(self.name)


class Handed:
    """The claims of a turn, in the order of its wants, and what it should know of those it did not get."""

    def __init__(self) -> None:
        self.claims: list[Claim] = []
        self.short: list[bytes] = []
        self.more = False
        self.next_at: int | None = None

    def fell_short(self, lines: Iterable[Line], moments: Iterable[int | None]) -> None:
        self.more = self.more or any(line.looked >= PATIENCE for line in lines)
        self.next_at = min((at for at in (*moments, self.next_at) if at is not None), default=None)


def hand_out(tx: Tx, turn: Turn, tasks: str, rooms: Rooms) -> Handed:
    handed = Handed()
    suspects = turn.suspects
    for want in _open(tx, turn.wants):
        if want.n <= 0 or not want.lanes:
            continue
        usual, suspected = _groups(tx, want, tasks)
        if len(usual) == 1 and not suspected and not want.oldest:
            handed.claims += _claim_from(tx, turn, usual[0].name, want.n)
            continue
        picker = Picker(want.limited, PATIENCE)
        apart: list[Line] = []
        if suspected and suspects > 0:
            apart = _lines(tx, rooms, suspected, want, picker)
            picker.pick(apart, min(want.n, suspects))
            suspects -= len(picker.picked)
        _give(tx, turn, Asked(want, usual, picker, apart), rooms, handed)
    if handed.claims:
        rooms.write()
    return handed


class Asked(NamedTuple):
    """A want, where its jobs can stand, and the suspects that were picked for it."""

    want: Want
    groups: list[Group]
    picker: Picker
    apart: list[Line]


def _give(tx: Tx, turn: Turn, asked: Asked, rooms: Rooms, handed: Handed) -> None:
    want, groups, picker, apart = asked
    left = want.n - len(picker.picked)
    if len(groups) > 1:
        groups = [group for group in groups if _has_jobs(tx, group)]
    plain = len(groups) == 1 and not groups[0].keyed and not want.oldest
    gated = Gated(tx, rooms, groups[0], left) if plain and groups[0].limited else None
    if gated is not None:
        plain = gated.has_room(picker)
    lines = [] if plain else _lines(tx, rooms, groups, want, picker)
    if left > 0 and want.oldest > 0:
        picker.pick(lines, min(left, want.oldest), aged=True)
    picker.pick(lines, want.n - len(picker.picked))
    claims = _claim_ids(tx, turn, list(picker.picked.values()))
    if plain and left > 0:
        found = _claim_from(tx, turn, groups[0].name, left)
        claims += found
        if gated is not None:
            handed.short += gated.take(found)
    handed.claims += claims
    handed.short += [each.id for each in picker.picked.values() if each.is_short]
    moments = [line.end() for line in (*apart, *lines)]
    if len(claims) < want.n:
        handed.fell_short((*apart, *lines), moments)


class Gated:
    """A lane without keys that may have room for all that are wanted of it."""

    def __init__(self, tx: Tx, rooms: Rooms, group: Group, n: int) -> None:
        self._tx = tx
        self._rooms = rooms
        self._group = group
        self._n = n
        self._gates = Gates(tx, rooms, group.name, group.gates)
        self._costs: Mapping[str, int] = NO_COSTS

    def has_room(self, picker: Picker) -> bool:
        """Whether it may give so many without a look at each."""
        if not self._fits(picker):
            return False
        return not self._gates.costs or (self._cost_the_same() and self._fits(picker))

    def _fits(self, picker: Picker) -> bool:
        return self._n <= min(self._gates.most(self._costs), self._gates.spare(self._costs) + picker.limited)

    def _cost_the_same(self) -> bool:
        """Whether all of its first do."""
        found = {text for (text,) in self._tx.all("head_buckets", (self._group.name, self._tx.now, self._n))}
        self._costs = costs_in(found.pop()) if len(found) == 1 else NO_COSTS
        return not found and min(self._costs.values(), default=0) > 0

    def take(self, claims: Sequence[Claim]) -> list[bytes]:
        """What was claimed so uses up what it costs; those that are short of what is left."""
        spare = self._gates.spare(self._costs)
        self._rooms.take(self._group.gates, self._costs, len(claims))
        return [each.id for each in claims[spare:]]


def _has_jobs(tx: Tx, group: Group) -> bool:
    """Whether there is somebody to hand out or, of lanes with keys, to wait for."""
    return group.keyed or bool(tx.all("heads", (group.name, tx.now, 1)))


def _lines(tx: Tx, rooms: Rooms, groups: Sequence[Group], want: Want, picker: Picker) -> list[Line]:
    lines = [_line(tx, rooms, group, want, picker) for group in groups if not group.fair]
    fair = [group for group in groups if group.fair]
    return [*lines, *fair_lines(tx, rooms, fair, want.n, picker)] if fair else lines


def _line(tx: Tx, rooms: Rooms, group: Group, want: Want, picker: Picker) -> Line:
    if group.keyed:
        open_due(tx, group.name)
        return KeyedLine(tx, rooms, group.name, group.gates, want.n, picker)
    return LaneLine(tx, rooms, group.name, group.gates, picker)


def _open(tx: Tx, wants: Sequence[Want]) -> Sequence[Want]:
    """What is wanted of queues that are not paused."""
    held = paused(tx) if wants else None
    if not held:
        return wants
    return [replace(each, lanes=tuple(lane for lane in each.lanes if queue_of(lane) not in held)) for each in wants]


def _groups(tx: Tx, want: Want, tasks: str) -> tuple[list[Group], list[Group]]:
    """Where the jobs of a want can stand: the usual places, and the suspects'."""
    usual, suspected = [Group(lane) for lane in want.lanes], list[Group]()
    beside = tx.sized("groups_beside", len(want.lanes), want.lanes).fetchall()
    known = _names(tasks) if beside else frozenset()
    for name, suspect, task, gates, keyed in beside:
        group = Group(name, _gates(gates) if gates else (), bool(keyed))
        if (task is None or task in known) and not (group.keyed and group.limited and want.limited == 0):
            (suspected if suspect else usual).append(group)
    return usual, suspected


def _claim_from(tx: Tx, turn: Turn, lane: str, n: int) -> list[Claim]:
    """Straight from a lane that nothing limits and nobody stands beside."""
    rows = tx.all("claim", (lane, tx.now, n, turn.worker, turn.number))
    rows.sort(key=_order)
    return [claim_of(row) for row in rows]


def _order(row: Row) -> tuple[int, int]:
    return -row[5], row[14]


def _claim_ids(tx: Tx, turn: Turn, picked: list[Picked]) -> list[Claim]:
    rows: dict[bytes, Row] = {}
    for start, end in sizes(len(picked)):
        values = [tx.now, turn.worker, turn.number, *(each.id for each in picked[start:end])]
        rows.update((row[0], row) for row in tx.sized("claim_ids", end - start, values).fetchall())
    holds = [(bucket, each.id, rows[each.id][1]) for each in picked for bucket in each.held]
    if holds:
        tx.cursor.executemany(tx.sql["hold"], holds)
    return [claim_of(rows[each.id]) for each in picked]


def claim_of(row: Row) -> Claim:
    return Claim(
        row[0], row[1], row[2], row[3], row[4], row[5], row[6], row[7], row[8], row[9] == 1, row[10], row[11],
        row[12], row[13], row[15] & OF_PART > 0,
    )  # fmt: skip
