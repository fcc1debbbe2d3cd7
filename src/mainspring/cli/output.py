"""Print what a command returns: JSON, tables by rich on a terminal, plain aligned text elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple

import click

from mainspring.cli.text import block, line, to_json

STYLES = {
    "ready": "cyan", "scheduled": "blue", "blocked": "blue", "retrying": "yellow", "running": "bold green",
    "succeeded": "green", "dead": "bold red", "cancelled": "magenta", "paused": "yellow", "draining": "yellow",
    "lost": "red", "disabled": "yellow", "orphaned": "magenta",
}  # fmt: skip
"""Colours of a cell by its first word."""


class Table(NamedTuple):
    """Rows under headings; ``empty`` is printed when there are no rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    title: str = ""
    empty: str = "none"


class FactList(NamedTuple):
    """Names and values, one pair per line."""

    rows: Sequence[tuple[str, object]]
    title: str = ""


class Shown(NamedTuple):
    """The answer of a command: the document for ``--json``, the blocks for a terminal, and the exit code."""

    document: Any
    blocks: Sequence[Table | FactList | str]
    code: int = 0


def show(answer: Shown, *, as_json: bool, compact: bool = False) -> None:
    """Write one answer to standard output."""
    if as_json:
        click.echo(to_json(answer.document, compact=compact))
    elif _rich_terminal():
        _show_rich(answer.blocks)
    elif answer.blocks:
        click.echo("\n\n".join(_plain(each) for each in answer.blocks))


def watch(ask: Callable[[], Shown], every: float, *, as_json: bool) -> int:
    """Print the answer every ``every`` seconds until Ctrl-C; with JSON, one document per line."""
    first = True
    while True:
        answer = ask()
        if sys.stdout.isatty() and not as_json:
            click.clear()
        elif not first and not as_json:
            click.echo()
        show(answer, as_json=as_json, compact=True)
        sys.stdout.flush()
        first = False
        time.sleep(every)


def complain(message: object) -> None:
    """Print a message to standard error."""
    click.echo(f"mainspring: {block(message)}", err=True)


# ---- plain -----------------------------------------------------------------------------------------


def _plain(each: Table | FactList | str) -> str:
    if isinstance(each, str):
        return block(each)
    text = _plain_facts(each) if isinstance(each, FactList) else _plain_table(each)
    return f"{each.title}\n{text}" if each.title else text


def _plain_table(table: Table) -> str:
    if not table.rows:
        return table.empty
    rows = [[name.upper() for name in table.columns], *([line(cell) for cell in row] for row in table.rows)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(table.columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _plain_facts(facts: FactList) -> str:
    width = max((len(line(name)) for name, _ in facts.rows), default=0)
    return "\n".join(f"{line(name).ljust(width)}  {line(value)}".rstrip() for name, value in facts.rows)


# ---- rich ------------------------------------------------------------------------------------------


def _rich_terminal() -> bool:
    """Whether standard output is a terminal with colours and ``rich`` is installed."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and find_spec("rich") is not None


def _show_rich(blocks: Sequence[Table | FactList | str]) -> None:
    console = _console()
    for number, each in enumerate(blocks):
        if number:
            console.print()
        if not isinstance(each, str) and each.title:
            console.print(each.title, style="bold")
        shown = _rich(each)
        if isinstance(each, str) or not each.rows:
            console.print(shown, soft_wrap=True)
        else:
            _print_whole(shown, console)


def _print_whole(table: Any, console: Any) -> None:
    """Wrap cells between words. If even single words do not fit, wrap nothing, so that an id can be copied whole."""
    from rich.measure import Measurement

    room = console.options.update(width=10_000)
    for column in table.columns:
        cells = [column.header, *column.cells]
        column.min_width = max(Measurement.get(console, room, cell).minimum for cell in cells)
    least = sum(column.min_width + 2 for column in table.columns)
    wide = least - 2 > console.width
    (_console(Measurement.get(console, room, table).maximum) if wide else console).print(table, crop=False)


def _console(width: int | None = None) -> Any:
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=width)


def _rich(each: Table | FactList | str) -> Any:
    from rich.table import Table as RichTable
    from rich.text import Text

    match each:
        case str():
            return Text(block(each))
        case Table(rows=[]) | Table(rows=()):
            return Text(each.empty, style="dim")
        case Table():
            table = RichTable(*(name.upper() for name in each.columns), box=None, pad_edge=False, header_style="bold")
            for row in each.rows:
                table.add_row(*(_cell(value) for value in row))
            return table
        case FactList():
            table = RichTable.grid(padding=(0, 2))
            for name, value in each.rows:
                table.add_row(Text(line(name), style="dim"), _cell(value))
            return table


def _cell(value: object) -> Any:
    from rich.text import Text

    text = line(value)
    return Text(text, style=STYLES.get(text.partition(" ")[0], ""), overflow="fold")
