"""``mainspring queues``: what waits where, and what each queue does with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.acting import told, yes_flag
from mainspring.cli.frame import answers, listing, on_store, sure
from mainspring.cli.output import Shown, Table, complain
from mainspring.cli.root import NO
from mainspring.cli.text import iso, when
from mainspring.errors import DrainTimeout

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.queues import QueueInfo

COUNTED = ("ready", "scheduled", "retrying", "blocked", "running")

_names = click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
_name = click.argument("name", metavar="QUEUE")


@click.group()
def queues() -> None:
    """Look at queues; pause, resume, drain and purge them for the whole fleet."""


@queues.command()
@on_store
@listing
def ls(app: Mainspring) -> Shown:
    """Every queue that has a live job, is not open, or is used by a task of the app."""
    return _shown(app.queues.list())


@queues.command()
@_names
@on_store
@answers
def pause(app: Mainspring, names: Sequence[str]) -> Shown:
    """Hand out no more jobs of these queues; they still take new ones."""
    app.queues.pause(*names)
    return _shown([app.queues.get(name) for name in names])


@queues.command()
@_names
@on_store
@answers
def resume(app: Mainspring, names: Sequence[str]) -> Shown:
    """Open these queues again."""
    app.queues.resume(*names)
    return _shown([app.queues.get(name) for name in names])


@queues.command()
@_name
@on_store
@answers
@click.option("--wait", is_flag=True, help="Until the queue is empty.")
@click.option("--timeout", metavar="DURATION", help="Wait no longer than this; the queue stays draining.")
def drain(app: Mainspring, name: str, wait: bool, timeout: str | None) -> Shown:
    """Take no more jobs for this queue and run what it has. Exit code 1 if it is not empty in time."""
    if timeout is not None and not wait:
        raise click.UsageError("--timeout is how long to --wait: give both")
    try:
        return _shown([app.queues.drain(name, wait=wait, timeout=timeout)])
    except DrainTimeout as error:
        complain(error)
        return _shown([app.queues.get(name)])._replace(code=NO)


@queues.command()
@_name
@on_store
@answers
@yes_flag
def purge(app: Mainspring, name: str, yes: bool) -> Shown:
    """Delete all jobs that wait in this queue. Those that run go on."""
    sure(f"All jobs that wait in queue {name!r} will be deleted.", yes)
    count = app.queues.purge(name)
    return Shown({"done": count}, [told("deleted", count)])


def queue_document(queue: QueueInfo) -> dict[str, Any]:
    counts: dict[str, int] = {state: queue.counts.get(state, 0) for state in COUNTED}  # type: ignore[call-overload]  # a State is its word
    return {
        "name": queue.name,
        "mode": queue.mode.value,
        "since": iso(queue.since),
        "counts": counts,
        "oldest": iso(queue.oldest),
    }


def queue_table(queues: Sequence[QueueInfo], *, title: str = "") -> Table:
    rows = [
        (each["name"], each["mode"], *each["counts"].values(), when(queue.oldest))
        for each, queue in ((queue_document(queue), queue) for queue in queues)
    ]
    return Table(("queue", "mode", *COUNTED, "oldest"), rows, title=title, empty="no queues")


def _shown(queues: Sequence[QueueInfo]) -> Shown:
    return Shown({"queues": [queue_document(queue) for queue in queues]}, [queue_table(queues)])
