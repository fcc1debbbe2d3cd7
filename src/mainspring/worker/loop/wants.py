"""The wants of one turn while they are made, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from mainspring.worker.records import Claim, Want

ALONE = "alone"
"""The kind of what a line asks for."""
SIDES = {"both": ("async", "thread"), "any": ("async", "thread"), "async": ("async",), "thread": ("thread",)}


class WantedLanes(Protocol):
    """Lanes that are asked for apart from the others, by who knows how many of them can be taken now."""

    kind: str
    """``async`` or ``thread``: whose slots it uses."""
    kinds: tuple[str, ...]
    """Of its base lanes, in every queue."""

    def ask(self, free: int) -> tuple[int, int]:
        """With so many free slots: how many jobs to ask for, and how many of the slots they take."""
        ...


Given = Mapping[tuple[str, str], int]
"""How many jobs, by group and kind."""


class Ask(NamedTuple):
    """A want, and on whose behalf it is made."""

    group: str
    kind: str
    """``both``, ``async``, ``thread``, ``any`` or ``alone``."""
    want: Want


class SlotSplit(NamedTuple):
    """Room of one kind that was shared by weight."""

    given: dict[str, int]
    full: set[str]
    """Those whose cap left no room for more."""


class PromisedSlots:
    """What is promised already in this turn."""

    def __init__(self, left: dict[str, int]) -> None:
        self.left = left
        """How many more jobs of each queue with a cap may be held."""
        self.taken = {"async": 0, "thread": 0}

    def take(self, queue: str, kind: str, n: int, slots: int | None = None) -> None:
        for side in SIDES[kind]:
            self.taken[side] += n if slots is None else slots
        if queue in self.left:
            self.left[queue] -= n


class TurnWants:
    """The wants of one turn, in their order."""

    def __init__(self) -> None:
        self.asks: list[Ask] = []
        self.by_age: dict[str, int] = {}
        """How many of each group are asked for by age alone."""
        self.splits: dict[str, SlotSplit] = {}

    def add(self, ask: Ask) -> None:
        self.asks.append(ask)
        self.by_age[ask.group] = self.by_age.get(ask.group, 0) + ask.want.oldest

    def split(self, kind: str, given: dict[str, int], full: set[str]) -> None:
        self.splits[kind] = SlotSplit(given, full)

    @property
    def filled(self) -> dict[tuple[str, str], int]:
        """What came for each ask, if it was all that was asked for."""
        return {(ask.group, ask.kind): ask.want.n for ask in self.asks}

    def attributed(self, got: Given) -> Given:
        """What came for each ask, of what came for its group and kind: the first ones were filled first."""
        found: dict[tuple[str, str], int] = {}
        left = {group: got.get((group, "both"), 0) + got.get((group, ALONE), 0) for group in self.by_age}
        for group, kind, want in self.asks:
            found[group, kind] = min(want.n, got.get((group, kind), 0), left[group])
            left[group] -= found[group, kind]
        return found


def of_line(name: str, capped: str) -> str:
    """What a line's lanes in one queue with a cap, or in all without, are known by."""
    return f"{name} {capped}"


def kind_of(claim: Claim) -> str:
    """The kind of the base lane that a claim came from."""
    rest = claim.lane[len(claim.queue) + 1 :]
    return next((kind for kind in ("async", "thread") if rest.startswith(kind)), "any")
