"""``mainspring queues``: list, pause, drain, purge, disable and configure queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import click

from mainspring.cli.common import answers, listing, on_store, sure
from mainspring.cli.document import document
from mainspring.cli.jobs.actions import describe_count, yes_flag
from mainspring.cli.output import Shown, Table, complain
from mainspring.cli.root import NO, CommandGroup
from mainspring.cli.text import when
from mainspring.errors import DrainTimeout
from mainspring.queues.manager import How, OnFull, Order
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.queues.manager import Configured, QueueInfo

COUNTED = (State.READY, State.SCHEDULED, State.RETRYING, State.BLOCKED, State.RUNNING)

_names = click.argument("names", nargs=-1, required=True, metavar="QUEUE...")
_name = click.argument("name", metavar="QUEUE")
_create = click.option("--create", is_flag=True, help="Also if nothing names this queue yet.")


@click.group(cls=CommandGroup)
def queues() -> None:
    """List queues; pause, drain, purge or configure them."""


@queues.command()
@on_store
@listing
def ls(app: Mainspring) -> Shown:
    """List queues with their jobs and settings."""
    return _shown(app.queues.list())


@queues.command()
@_names
@on_store
@answers
@_create
def pause(app: Mainspring, names: Sequence[str], create: bool) -> Shown:
    """Stop claims from these queues. They still accept new jobs."""
    app.queues.pause(*names, create=create)
    return _shown([app.queues.get(name) for name in names])


@queues.command()
@_names
@on_store
@answers
def resume(app: Mainspring, names: Sequence[str]) -> Shown:
    """Resume these queues."""
    app.queues.resume(*names)
    return _shown([app.queues.get(name) for name in names])


@queues.command()
@_name
@on_store
@answers
@click.option("--wait", is_flag=True, help="Wait until the queue is empty.")
@click.option("--timeout", metavar="DURATION", help="Stop waiting after DURATION; the queue stays draining.")
@_create
def drain(app: Mainspring, name: str, wait: bool, timeout: str | None, create: bool) -> Shown:
    """Refuse new jobs for this queue and finish the rest. Exit code 1 if it is not empty in time."""
    if timeout is not None and not wait:
        raise click.UsageError("--timeout needs --wait")
    try:
        return _shown([app.queues.drain(name, wait=wait, timeout=timeout, create=create)])
    except DrainTimeout as error:
        complain(error)
        return _shown([app.queues.get(name)])._replace(code=NO)


@queues.command()
@_name
@on_store
@answers
@yes_flag
def purge(app: Mainspring, name: str, yes: bool) -> Shown:
    """Delete all waiting jobs of this queue. Running jobs continue."""
    sure(f"All waiting jobs of queue {name!r} will be deleted.", yes)
    count = app.queues.purge(name)
    return Shown({"done": count}, [describe_count("deleted", count)])


@queues.command()
@_name
@on_store
@answers
@click.option(
    "--how",
    type=click.Choice(get_args(How)),
    default="hold",
    show_default=True,
    help="New jobs wait (hold), are cancelled as skipped (skip), or are refused (reject).",
)
@_create
def disable(app: Mainspring, name: str, how: How, create: bool) -> Shown:
    """Disable this queue: no job is claimed until it is enabled. Waiting jobs stay."""
    app.queues.disable(name, how, create=create)
    return _shown([app.queues.get(name)])


@queues.command()
@_names
@on_store
@answers
def enable(app: Mainspring, names: Sequence[str]) -> Shown:
    """Enable these queues."""
    app.queues.enable(*names)
    return _shown([app.queues.get(name) for name in names])


@queues.command()
@_name
@on_store
@answers
@click.option("--max-depth", metavar="N", help="Maximum number of waiting jobs, or none.")
@click.option("--on-full", type=click.Choice(get_args(OnFull)), help="What an enqueue does when the queue is full.")
@click.option(
    "--order", type=click.Choice(get_args(Order)), help="Within a priority: oldest (fifo) or newest (lifo) first."
)
@_create
def configure(
    app: Mainspring, name: str, max_depth: str | None, on_full: OnFull | None, order: Order | None, create: bool
) -> Shown:
    """Override the declared settings until they are reset."""
    given: Configured = {}
    if max_depth is not None:
        given["max_depth"] = _depth(max_depth)
    if on_full is not None:
        given["on_full"] = on_full
    if order is not None:
        given["order"] = order
    if not given:
        raise click.UsageError("give at least one of --max-depth, --on-full and --order")
    return _shown([app.queues.configure(name, create=create, **given)])


@queues.command()
@_name
@on_store
@answers
@click.option("--declared", is_flag=True, help="Also delete stored declarations that no code makes any more.")
def reset(app: Mainspring, name: str, declared: bool) -> Shown:
    """Remove overrides: use the declared settings again."""
    app.queues.reset(name, declared=declared)
    return _shown([app.queues.get(name)])


def _depth(text: str) -> int | None:
    if text == "none":
        return None
    if not text.isdecimal():
        raise click.BadParameter(f"{text!r} is neither a number nor none", param_hint="--max-depth")
    return int(text)


def queue_document(queue: QueueInfo) -> dict[str, Any]:
    return document(queue, without=("counts",), counts=_counts(queue), depth=queue.depth)


def _counts(queue: QueueInfo) -> dict[str, int]:
    return {state.value: queue.counts.get(state, 0) for state in COUNTED}


def _settings(queue: QueueInfo) -> str:
    """Settings that differ from the defaults."""
    said = [f"disabled ({queue.disabled.value})"] if queue.disabled is not None else []
    said += [f"{queue.depth:,} of {queue.max_depth:,}"] if queue.max_depth is not None else []
    said += [queue.order] if queue.order != "fifo" else []
    said += ["limited"] if queue.limits else []
    return ", ".join(said)


def queue_table(queues: Sequence[QueueInfo], *, title: str = "") -> Table:
    """A table of queues, with a settings column if a queue has settings."""
    said = [_settings(queue) for queue in queues]
    more = ("settings",) if any(said) else ()
    rows = [
        (each.name, each.mode.value, *_counts(each).values(), when(each.oldest), each.workers, *([words] * len(more)))
        for each, words in zip(queues, said, strict=True)
    ]
    return Table(("queue", "mode", *COUNTED, "oldest", "workers", *more), rows, title=title, empty="no queues")


def unserved_queues(queues: Sequence[QueueInfo]) -> list[str]:
    """One block with a line for each queue whose ready jobs no live worker would run; no block if there is none."""
    said = [queue.unserved for queue in queues if queue.unserved]
    return ["\n".join(said)] if said else []


def _shown(queues: Sequence[QueueInfo]) -> Shown:
    document = {"queues": [queue_document(queue) for queue in queues]}
    return Shown(document, [queue_table(queues), *unserved_queues(queues)])
