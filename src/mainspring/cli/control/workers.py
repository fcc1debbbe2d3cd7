"""``mainspring workers``: list the live workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import listing, on_store
from mainspring.cli.document import documents
from mainspring.cli.output import Shown, Table
from mainspring.cli.root import CommandGroup
from mainspring.cli.text import short, span, when

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.worker.manager import WorkerInfo


@click.group(cls=CommandGroup)
def workers() -> None:
    """List the workers of the whole fleet."""


@workers.command()
@on_store
@listing
@click.option("--lost", is_flag=True, help="Also list lost workers that are not pruned yet.")
def ls(app: Mainspring, lost: bool) -> Shown:
    """List workers: host, queues, running jobs, age of the last heartbeat."""
    found = app.workers.list(lost=lost)
    return Shown({"workers": documents(found)}, [worker_table(found)])


def worker_table(workers: Sequence[WorkerInfo], *, title: str = "") -> Table:
    rows = [
        (each.id, each.host or "-", each.pid or "-", each.version or "-", short(",".join(each.queues), 40),
         each.running, _health(each), when(each.started))
        for each in workers
    ]  # fmt: skip
    columns = ("worker", "host", "pid", "version", "queues", "running", "heartbeat", "started")
    return Table(columns, rows, title=title, empty="no workers")


def _health(worker: WorkerInfo) -> str:
    if worker.lost:
        return "lost"
    return span(worker.age) if worker.claiming else f"{span(worker.age)}, not claiming"
