"""``mainspring limits``: how much may run or start in the whole fleet, and changing that while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import answers, listing, on_store
from mainspring.cli.output import Shown, Table
from mainspring.common.duration import format_duration

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.limits.manager import LimitInfo

_name = click.argument("name", metavar="LIMIT")


@click.group()
def limits() -> None:
    """Look at limits; set how much they let through, for the whole fleet."""


@limits.command()
@on_store
@listing
def ls(app: Mainspring) -> Shown:
    """Every limit that a job has named."""
    return _shown(app.limits.list())


@limits.command("set")
@_name
@click.argument("size", type=click.IntRange(min=0))
@on_store
@answers
def set_size(app: Mainspring, name: str, size: int) -> Shown:
    """Let SIZE through from now on, until it is reset; 0 lets nothing through."""
    app.limits.set(name, size)
    return _shown([app.limits.get(name)])


@limits.command()
@_name
@on_store
@answers
def reset(app: Mainspring, name: str) -> Shown:
    """Let through what the code declares."""
    app.limits.reset(name)
    return _shown([app.limits.get(name)])


@limits.command()
@_name
@on_store
@answers
def rm(app: Mainspring, name: str) -> Shown:
    """Forget a limit that no code declares any more."""
    app.limits.delete(name)
    return Shown({"deleted": name}, [f"limit {name} is forgotten"])


def limit_document(limit: LimitInfo) -> dict[str, Any]:
    return {
        "name": limit.name,
        "kind": limit.kind,
        "size": limit.size,
        "declared": limit.declared,
        "per": None if limit.per is None else limit.per.total_seconds(),
        "burst": limit.burst,
        "used": limit.used,
    }


def _shown(limits: Sequence[LimitInfo]) -> Shown:
    rows = [
        (
            limit.name, limit.kind, limit.used, limit.size,
            "" if limit.size == limit.declared else f"declared {limit.declared}",
            "" if limit.per is None else format_duration(limit.per.total_seconds()),
        )
        for limit in limits
    ]  # fmt: skip
    table = Table(("limit", "kind", "used", "size", "set", "per"), rows, empty="no limits")
    return Shown({"limits": [limit_document(limit) for limit in limits]}, [table])
