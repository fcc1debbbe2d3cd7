"""``mainspring workers``: who is at work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import listing, on_store
from mainspring.cli.output import Shown, Table
from mainspring.cli.text import iso, seconds, short, span, when

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.worker.manager import WorkerInfo


@click.group()
def workers() -> None:
    """Look at the workers of the whole fleet."""


@workers.command()
@on_store
@listing
@click.option("--lost", is_flag=True, help="Also those that went silent, while they are remembered.")
def ls(app: Mainspring, lost: bool) -> Shown:
    """Every worker: where it runs, what it serves, how long ago it was heard of."""
    found = app.workers.list(lost=lost)
    return Shown({"workers": [worker_document(each) for each in found]}, [worker_table(found)])


def worker_document(worker: WorkerInfo) -> dict[str, Any]:
    return {
        "id": worker.id,
        "host": worker.host,
        "pid": worker.pid,
        "version": worker.version,
        "queues": list(worker.queues),
        "tasks": list(worker.tasks),
        "labels": list(worker.labels),
        "running": worker.running,
        "jobs": [str(job) for job in worker.jobs],
        "started": iso(worker.started),
        "seen": iso(worker.seen),
        "age": seconds(worker.age),
        "claiming": worker.claiming,
        "lost": worker.lost,
        "lease": seconds(worker.lease),
    }


def worker_table(workers: Sequence[WorkerInfo], *, title: str = "") -> Table:
    rows = [
        (each.id, each.host or "-", each.pid or "-", each.version or "-", short(",".join(each.queues), 40),
         each.running, _health(each), when(each.started))
        for each in workers
    ]  # fmt: skip
    columns = ("worker", "host", "pid", "version", "queues", "running", "last beat", "started")
    return Table(columns, rows, title=title, empty="no workers")


def _health(worker: WorkerInfo) -> str:
    if worker.lost:
        return "lost"
    return span(worker.age) if worker.claiming else f"{span(worker.age)}, claims nothing"
