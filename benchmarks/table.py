"""The result for people: every row, then goals with what was measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.frame import Row

_MET = {True: "yes", False: "NO", None: "not measured"}


def show(rows: Sequence[Row]) -> str:
    return "\n".join([*_all(rows), "", *goals(rows)])


def _all(rows: Iterable[Row]) -> list[str]:
    return _aligned([("column", "system", "median", "rounds", "unit", ""), *map(_line, rows)])


def _line(row: Row) -> tuple[str, ...]:
    return row.column, row.system, number(row.value), ", ".join(map(number, row.samples)), row.unit, row.note


def goals(rows: Iterable[Row]) -> list[str]:
    return _aligned([("goal", "", "wanted", "measured", "met"), *[_goal(row) for row in rows if row.goal]])


def _goal(row: Row) -> tuple[str, ...]:
    return row.column, row.system, row.goal, f"{number(row.value)} {row.unit}", _MET[row.met]


def number(value: float | None) -> str:
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _aligned(lines: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(cell) for cell in cells) for cells in zip(*lines, strict=True)]
    ruled = [lines[0], tuple("-" * width for width in widths), *lines[1:]]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in ruled]
