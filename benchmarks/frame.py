"""What every benchmark is made of: what it was told, the rows it gives, and the arithmetic between them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

Engine = Literal["sqlite", "postgres", "redis"]
ENGINES: tuple[Engine, ...] = ("sqlite", "postgres", "redis")

DRAIN_FLOOR = 40_000
"""Below this many jobs the figures of a system that defers its acks are too good: such a run is not to be quoted."""


class Failed(Exception):
    """A system could not be measured; the text says why."""


@dataclasses.dataclass(frozen=True)
class Config:
    """What a run was told."""

    n: int = DRAIN_FLOOR
    rounds: int = 2
    scale: int = 1_000_000
    probes: int = 300
    idle_seconds: float = 20.0
    members: int = 100_000
    """Of the largest chord."""
    batch: int = 100_000
    """Members of the open batch."""
    engine: Engine = "sqlite"
    only: tuple[str, ...] = ()
    """Systems whose names begin so; all without."""
    limits: tuple[str, ...] = ()
    """Of the column ``limits`` only these, such as ``concurrency, 4``; all without."""
    trees: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Other trees of the project, by name: folders whose code is measured in turn with the code of this tree."""
    folder: str | None = None
    """Where the stores are made; it must be a real disk, for syncing to memory costs nothing."""
    say: Callable[[str], None] = print

    @contextmanager
    def scratch(self) -> Iterator[Path]:
        """A folder for one measurement, gone afterwards."""
        with TemporaryDirectory(prefix="bench-", dir=self.folder) as folder:
            yield Path(folder)


def of_tree(name: str, tree: str) -> str:
    """The name of a system, with the code of another tree."""
    return f"{name} @{tree}" if tree else name


def split_tree(name: str) -> tuple[str, str]:
    """The name of a system and of the tree whose code it has; "" is this tree."""
    plain, _, tree = name.partition(" @")
    return plain, tree


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the result: ``value`` is the median of ``samples``, one for each round."""

    column: str
    system: str
    value: float | None
    unit: str
    samples: tuple[float, ...] = ()
    goal: str = ""
    met: bool | None = None
    note: str = ""


class Samples:
    """Values by system and round, in the order in which systems were first measured."""

    def __init__(self) -> None:
        self._values: dict[str, dict[int, float]] = {}
        self._failures: dict[str, str] = {}

    def add(self, system: str, number: int, value: float) -> None:
        """What round ``number`` gave."""
        self._values.setdefault(system, {})[number] = value

    def fail(self, system: str, why: str) -> None:
        self._failures[system] = why

    def of(self, system: str) -> tuple[float, ...]:
        return tuple(self._values.get(system, {}).values())

    def systems(self) -> list[str]:
        return list(dict.fromkeys([*self._values, *self._failures]))

    def row(
        self,
        column: str,
        system: str,
        unit: str,
        *,
        at_least: float | None = None,
        at_most: float | None = None,
        note: str = "",
    ) -> Row:
        """The median of a system; with ``at_least`` or ``at_most`` it is held to that goal."""
        samples = self.of(system)
        why = self._failures.get(system, "")
        value = statistics.median(samples) if samples else None
        row = Row(column, system, value, unit, samples, note="; ".join(filter(None, (note, why))))
        return _held(row, at_least, at_most)

    def rows(self, column: str, unit: str) -> list[Row]:
        return [self.row(column, system, unit) for system in self.systems()]

    def ratio(
        self,
        column: str,
        top: str,
        bottom: str | Sequence[str],
        *,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> Row:
        """How many times ``bottom``, or the highest of several, is in ``top``.

        Round by round: neighbours in time share the machine's mood.
        """
        names = [bottom] if isinstance(bottom, str) else list(bottom)
        over, under = self._values.get(top, {}), self._highest(names)
        samples = tuple([value / under[number] for number, value in over.items() if under.get(number)])
        value = statistics.median(samples) if samples else None
        row = Row(
            column, f"{top} / {names[0] if len(names) == 1 else 'best of ' + ', '.join(names)}", value, "x", samples
        )
        return _held(row, at_least, at_most)

    def _highest(self, names: Iterable[str]) -> dict[int, float]:
        highest: dict[int, float] = {}
        for name in names:
            for number, value in self._values.get(name, {}).items():
                highest[number] = max(value, highest.get(number, value))
        return highest


def _held(row: Row, at_least: float | None, at_most: float | None) -> Row:
    """The row with its goal, if it has one."""
    if at_least is not None:
        met = None if row.value is None else row.value >= at_least
        return dataclasses.replace(row, goal=f">= {at_least:g} {row.unit}", met=met)
    if at_most is not None:
        met = None if row.value is None else row.value <= at_most
        return dataclasses.replace(row, goal=f"<= {at_most:g} {row.unit}", met=met)
    return row


def ratios_of_trees(rows: Sequence[Row]) -> list[Row]:
    """For each row of another tree: the value of this tree divided by it, round by round."""
    ours = {(row.column, row.system): row for row in rows}
    found = []
    for row in rows:
        plain, tree = split_tree(row.system)
        beside = ours.get((row.column, plain))
        if not tree or row.unit == "x" or beside is None or len(beside.samples) != len(row.samples):
            continue
        pairs = zip(beside.samples, row.samples, strict=True)
        samples = tuple([value / under for value, under in pairs if under])
        if samples:
            found.append(Row(row.column, f"{plain} / {row.system}", statistics.median(samples), "x", samples))
    return found


def percentile(values: Iterable[float], share: float) -> float:
    """The value below which ``share`` of all lie; the nearest one that was measured."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
