"""``mainspring breakers``: list circuit breakers; open and close them by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import answers, listing, on_store
from mainspring.cli.document import documents
from mainspring.cli.output import Shown, Table
from mainspring.cli.root import CommandGroup
from mainspring.cli.text import short, span, when

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.breakers.manager import BreakerInfo

_name = click.argument("name", metavar="BREAKER")


@click.group(cls=CommandGroup)
def breakers() -> None:
    """List breakers; open and close them for the whole fleet."""


@breakers.command()
@on_store
@listing
def ls(app: Mainspring) -> Shown:
    """List every breaker that a job or code has used."""
    return _shown(app.breakers.list())


@breakers.command()
@_name
@click.option(
    "--for",
    "for_",
    metavar="DURATION",
    help="Half-open after DURATION; else it stays open until reset.",
)
@on_store
@answers
def trip(app: Mainspring, name: str, for_: str | None) -> Shown:
    """Open a breaker: nothing that it guards starts."""
    app.breakers.trip(name, for_)
    return _shown([app.breakers.get(name)])


@breakers.command()
@_name
@on_store
@answers
def reset(app: Mainspring, name: str) -> Shown:
    """Close a breaker and clear its failures."""
    app.breakers.reset(name)
    return _shown([app.breakers.get(name)])


def _shown(breakers: Sequence[BreakerInfo]) -> Shown:
    rows = [
        (
            each.name, each.state.replace("_", " "), _failures(each), _until(each),
            "by hand" if each.tripped else short(each.error),
        )
        for each in breakers
    ]  # fmt: skip
    table = Table(("breaker", "state", "failures", "until", "why"), rows, empty="no breakers")
    return Shown({"breakers": documents(breakers)}, [table])


def _failures(breaker: BreakerInfo) -> str:
    if breaker.rate is None:
        return f"{breaker.failures}/{breaker.threshold}"
    return f"{breaker.failures} of {breaker.calls} in {span(breaker.over)}"


def _until(breaker: BreakerInfo) -> str:
    if breaker.state != "open":
        return ""
    return "reset" if breaker.until is None else when(breaker.until)
