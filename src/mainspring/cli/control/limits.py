"""``mainspring limits``: list limits and change their size at run time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import answers, listing, on_store
from mainspring.cli.document import documents
from mainspring.cli.output import Shown, Table
from mainspring.cli.root import CommandGroup
from mainspring.common.duration import format_duration

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.limits.manager import LimitInfo

_name = click.argument("name", metavar="LIMIT")


@click.group(cls=CommandGroup)
def limits() -> None:
    """List limits; change their size for the whole fleet."""


@limits.command()
@on_store
@listing
def ls(app: Mainspring) -> Shown:
    """List every limit that a job has used."""
    return _shown(app.limits.list())


@limits.command("set")
@_name
@click.argument("size", type=click.IntRange(min=0))
@on_store
@answers
def set_size(app: Mainspring, name: str, size: int) -> Shown:
    """Set the size of a limit until it is reset; 0 stops it."""
    app.limits.set(name, size)
    return _shown([app.limits.get(name)])


@limits.command()
@_name
@on_store
@answers
def reset(app: Mainspring, name: str) -> Shown:
    """Use the declared size again."""
    app.limits.reset(name)
    return _shown([app.limits.get(name)])


@limits.command()
@_name
@on_store
@answers
def rm(app: Mainspring, name: str) -> Shown:
    """Delete a limit that no code declares any more."""
    app.limits.delete(name)
    return Shown({"deleted": name}, [f"deleted limit {name}"])


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
    return Shown({"limits": documents(limits)}, [table])
