"""``mainspring breakers``: what is stopped because it fails again and again; opened and closed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import answers, listing, on_store
from mainspring.cli.output import Shown, Table
from mainspring.cli.text import iso, seconds, short, span, when

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.breakers.manager import BreakerInfo

_name = click.argument("name", metavar="BREAKER")


@click.group()
def breakers() -> None:
    """Look at breakers; open and close them by hand, for the whole fleet."""


@breakers.command()
@on_store
@listing
def ls(app: Mainspring) -> Shown:
    """Every breaker that a job has named or code has entered."""
    return _shown(app.breakers.list())


@breakers.command()
@_name
@click.option("--for", "for_", metavar="DURATION", help="Try it again after this time; else it waits for a reset.")
@on_store
@answers
def trip(app: Mainspring, name: str, for_: str | None) -> Shown:
    """Open it: nothing that it guards starts."""
    app.breakers.trip(name, for_)
    return _shown([app.breakers.get(name)])


@breakers.command()
@_name
@on_store
@answers
def reset(app: Mainspring, name: str) -> Shown:
    """Close it and forget its failures."""
    app.breakers.reset(name)
    return _shown([app.breakers.get(name)])


def breaker_document(breaker: BreakerInfo) -> dict[str, Any]:
    return {
        "name": breaker.name,
        "state": breaker.state,
        "failures": breaker.failures,
        "calls": breaker.calls,
        "opened": iso(breaker.opened),
        "until": iso(breaker.until),
        "error": breaker.error,
        "tripped": breaker.tripped,
        "probing": breaker.probing,
        "probes": breaker.probes,
        "open_for": seconds(breaker.open_for),
        "threshold": breaker.threshold,
        "rate": breaker.rate,
        "over": seconds(breaker.over),
    }


def _shown(breakers: Sequence[BreakerInfo]) -> Shown:
    rows = [
        (
            each.name, each.state.replace("_", " "), _failures(each), _until(each),
            "by hand" if each.tripped else short(each.error),
        )
        for each in breakers
    ]  # fmt: skip
    table = Table(("breaker", "state", "failures", "until", "why"), rows, empty="no breakers")
    return Shown({"breakers": [breaker_document(each) for each in breakers]}, [table])


def _failures(breaker: BreakerInfo) -> str:
    if breaker.rate is None:
        return f"{breaker.failures}/{breaker.threshold}"
    return f"{breaker.failures} of {breaker.calls} in {span(breaker.over)}"


def _until(breaker: BreakerInfo) -> str:
    if breaker.state != "open":
        return ""
    return "it is reset" if breaker.until is None else when(breaker.until)
