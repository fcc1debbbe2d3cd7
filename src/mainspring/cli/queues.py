"""``mainspring queues``: what waits where, and what each queue does with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from mainspring.cli.common import answers, listing, on_store, sure
from mainspring.cli.job_actions import told, yes_flag
from mainspring.cli.output import Shown, Table, complain
from mainspring.cli.root import NO
from mainspring.cli.text import iso, when
from mainspring.errors import DrainTimeout
from mainspring.queues.manager import How, OnFull, Order

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.queues.manager import Configured, QueueInfo

COUNTED = ("ready", "scheduled", "retrying", "blocked", "running")

_names = click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
_name = click.argument("name", metavar="QUEUE")


@click.group()
def queues() -> None:
    """Look at queues; pause, drain, purge, disable and configure them for the whole fleet."""


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


@queues.command()
@_name
@on_store
@answers
@click.option(
    "--how",
    type=click.Choice(get_args(How)),
    default="hold",
    show_default=True,
    help="What becomes of new jobs: they wait, end at once as skipped, or are refused.",
)
def disable(app: Mainspring, name: str, how: How) -> Shown:
    """Switch this queue off: it hands out no jobs until it is enabled. What waits in it waits."""
    app.queues.disable(name, how)
    return _shown([app.queues.get(name)])


@queues.command()
@_names
@on_store
@answers
def enable(app: Mainspring, names: Sequence[str]) -> Shown:
    """Switch these queues on again."""
    app.queues.enable(*names)
    return _shown([app.queues.get(name) for name in names])


@queues.command()
@_name
@on_store
@answers
@click.option("--max-depth", metavar="N", help="Most jobs that may wait in it; none: any number.")
@click.option("--on-full", type=click.Choice(get_args(OnFull)), help="What an enqueue does when that many wait.")
@click.option("--order", type=click.Choice(get_args(Order)), help="Of equal priority the oldest first, or the newest.")
def configure(app: Mainspring, name: str, max_depth: str | None, on_full: OnFull | None, order: Order | None) -> Shown:
    """Set how this queue works, over what the code declares, until it is reset."""
    given: Configured = {}
    if max_depth is not None:
        given["max_depth"] = _depth(max_depth)
    if on_full is not None:
        given["on_full"] = on_full
    if order is not None:
        given["order"] = order
    if not given:
        raise click.UsageError("say at least one of --max-depth, --on-full and --order")
    return _shown([app.queues.configure(name, **given)])


@queues.command()
@_name
@on_store
@answers
@click.option("--declared", is_flag=True, help="Forget also what code has declared, if no code does any more.")
def reset(app: Mainspring, name: str, declared: bool) -> Shown:
    """Let this queue work as the code declares it."""
    app.queues.reset(name, declared=declared)
    return _shown([app.queues.get(name)])


def _depth(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is not a number, nor none", param_hint="--max-depth")
    return int(text)


def queue_document(queue: QueueInfo) -> dict[str, Any]:
    counts: dict[str, int] = {state: queue.counts.get(state, 0) for state in COUNTED}  # type: ignore[call-overload]  # a State is its word
    return {
        "name": queue.name,
        "mode": queue.mode.value,
        "since": iso(queue.since),
        "counts": counts,
        "oldest": iso(queue.oldest),
        "depth": queue.depth,
        "max_depth": queue.max_depth,
        "on_full": queue.on_full,
        "order": queue.order,
        "limits": list(queue.limits),
        "disabled": None if queue.disabled is None else queue.disabled.value,
        "disabled_since": iso(queue.disabled_since),
        "disabled_by": queue.disabled_by,
    }


def _settings(queue: QueueInfo) -> str:
    """What is not as in every other queue."""
    said = [f"disabled ({queue.disabled.value})"] if queue.disabled is not None else []
    said += [f"{queue.depth:,} of {queue.max_depth:,}"] if queue.max_depth is not None else []
    said += [queue.order] if queue.order != "fifo" else []
    said += ["limited"] if queue.limits else []
    return ", ".join(said)


def queue_table(queues: Sequence[QueueInfo], *, title: str = "") -> Table:
    """With a column for settings if there are any."""
    said = [_settings(queue) for queue in queues]
    more = ("settings",) if any(said) else ()
    rows = [
        (each["name"], each["mode"], *each["counts"].values(), when(queue.oldest), *([words] if more else []))
        for each, queue, words in (
            (queue_document(queue), queue, words) for queue, words in zip(queues, said, strict=True)
        )
    ]
    return Table(("queue", "mode", *COUNTED, "oldest", *more), rows, title=title, empty="no queues")


def _shown(queues: Sequence[QueueInfo]) -> Shown:
    return Shown({"queues": [queue_document(queue) for queue in queues]}, [queue_table(queues)])
