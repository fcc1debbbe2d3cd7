"""``mainspring locks``: list held locks, semaphores and elections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import listing, on_store
from mainspring.cli.document import document
from mainspring.cli.output import Shown, Table
from mainspring.cli.root import CommandGroup
from mainspring.cli.text import short, span, when

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.locks.manager import LockInfo


@click.group(cls=CommandGroup)
def locks() -> None:
    """List the locks of the whole fleet."""


@locks.command()
@on_store
@listing
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="At most N.")
def ls(app: Mainspring, limit: int) -> Shown:
    """List held locks, semaphore slots and elections. Each has its holder, since when, and until when."""
    found = app.locks.list(limit)
    return Shown({"locks": [_document(each) for each in found]}, [_table(found)])


def _document(lock: LockInfo) -> dict[str, Any]:
    holder = lock.holder
    return document(lock, without=("holder",), host=holder.host, pid=holder.pid, who=holder.who)


def _table(locks: Sequence[LockInfo]) -> Table:
    rows = [
        (each.name, each.kind, each.token, short(each.holder.who, 60) or "-", each.holder.host or "-",
         each.holder.pid or "-", when(each.since), span(each.remaining))
        for each in locks
    ]  # fmt: skip
    columns = ("lock", "kind", "token", "holder", "host", "pid", "since", "remaining")
    return Table(columns, rows, empty="no locks are held")
