"""``mainspring locks``: who holds what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import listing, on_store
from mainspring.cli.output import Shown, Table
from mainspring.cli.text import iso, seconds, short, span, when

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.locks.manager import LockInfo


@click.group()
def locks() -> None:
    """Look at the locks of the whole fleet."""


@locks.command()
@on_store
@listing
@click.option("--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True, help="At most so many.")
def ls(app: Mainspring, limit: int) -> Shown:
    """Every lock, place of a semaphore and office that is held: by whom, since when, for how long unless renewed."""
    found = app.locks.list(limit)
    return Shown({"locks": [lock_document(each) for each in found]}, [_table(found)])


def lock_document(lock: LockInfo) -> dict[str, Any]:
    return {
        "name": lock.name,
        "kind": lock.kind,
        "token": lock.token,
        "host": lock.holder.host,
        "pid": lock.holder.pid,
        "who": lock.holder.who,
        "since": iso(lock.since),
        "until": iso(lock.until),
        "remaining": seconds(lock.remaining),
    }


def _table(locks: Sequence[LockInfo]) -> Table:
    rows = [
        (each.name, each.kind, each.token, short(each.holder.who, 60) or "-", each.holder.host or "-",
         each.holder.pid or "-", when(each.since), span(each.remaining))
        for each in locks
    ]  # fmt: skip
    columns = ("lock", "kind", "token", "holder", "host", "pid", "since", "remaining")
    return Table(columns, rows, empty="no locks are held")
