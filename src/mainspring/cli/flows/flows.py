"""``mainspring flows``: list, show, draw, cancel and retry flows and batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import click

from mainspring.cli.common import answers, listing, moment, on_store, sure
from mainspring.cli.document import document, documents
from mainspring.cli.flows.tree import draw_tree
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.root import NO, CommandGroup
from mainspring.cli.text import short, when
from mainspring.flows.info import FlowState

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.flows.info import FlowInfo
    from mainspring.jobs.info import JobInfo

DEAD_SHOWN = 10
"""Dead jobs whose errors ``show`` prints."""

_id = click.argument("id", metavar="ID")


@click.group(cls=CommandGroup)
def flows() -> None:
    """List, show, cancel and retry flows and batches. ID is the id of a flow or of any job in it."""


@flows.command()
@click.option("--state", type=click.Choice(get_args(FlowState)), help="Only flows in this state.")
@click.option("--tag", help="Only flows with this tag.")
@click.option("--since", metavar="WHEN", help="Enqueued at or after WHEN: 2h (ago) or 2026-01-31T12:00Z.")
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="How many flows to list.")
@on_store
@listing
def ls(app: Mainspring, state: FlowState | None, tag: str | None, since: str | None, limit: int) -> Shown:
    """List the newest flows and batches."""
    found = app.flows.list(state=state, tag=tag, since=moment(since, "since"), limit=limit)
    rows = [
        (str(flow.id), flow.name, flow.state, flow.jobs or "", when(flow.enqueued), when(flow.finished))
        for flow in found
    ]
    table = Table(("id", "name", "state", "jobs", "enqueued", "finished"), rows, empty="no flows")
    return Shown({"flows": [document(flow, without=("counts", "nodes")) for flow in found]}, [table])


@flows.command()
@_id
@on_store
@listing
def show(app: Mainspring, id: str) -> Shown:
    """Show a flow as a tree, with states and errors."""
    flow = app.flows.get(id)
    is_batch = any(node.kind == "batch" for node in flow.nodes)
    closed = app.flows.batch_of(flow.id).counts().closed if is_batch else None
    dead = app.jobs.list(state="dead", flow=flow.id, limit=DEAD_SHOWN).jobs if "dead" in flow.counts else ()
    errors = [{"id": str(job.id), "task": job.task, "error": _error(job)} for job in dead]
    shown = document(flow, dead=errors)
    if closed is not None:
        shown["closed"] = closed
    table = Table(("dead job", "task", "error"), [(job.id, job.task, short(_error(job))) for job in dead])
    return Shown(shown, [_facts(flow, closed), draw_tree(flow), *([table] if dead else [])])


@flows.command()
@_id
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot"]),
    default="mermaid",
    show_default=True,
    help="The language of the graph.",
)
@on_store
@answers
def graph(app: Mainspring, id: str, form: str) -> Shown:
    """Print a flow as a graph, for Markdown or Graphviz."""
    found = app.flows.graph(id)
    data = {"nodes": documents(found.nodes), "edges": documents(found.edges)}
    return Shown(data, [found.dot() if form == "dot" else found.mermaid()])


@flows.command()
@_id
@click.option("--reason", default="", help="The reason, which the jobs of the flow show.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@on_store
@answers
def cancel(app: Mainspring, id: str, reason: str, yes: bool) -> Shown:
    """Cancel a flow with all of its jobs."""
    flow = app.flows.get(id)
    sure(f"Cancel the flow {flow.name!r} with {flow.jobs} jobs.", yes)
    done = app.flows.cancel(flow.id, reason)
    text = f"cancelled flow {flow.id}" if done else f"flow {flow.id} had ended already: {flow.state}"
    return Shown({"cancelled": done, "id": str(flow.id)}, [text], 0 if done else NO)


@flows.command()
@_id
@on_store
@answers
def retry(app: Mainspring, id: str) -> Shown:
    """Run a failed flow again from where it failed."""
    flow = app.flows.get(id)
    jobs = app.flows.retry(flow.id)
    return Shown({"retried": jobs, "id": str(flow.id)}, [f"flow {flow.id} runs again: {jobs} jobs, with joins"])


@flows.command()
@_id
@on_store
@answers
def close(app: Mainspring, id: str) -> Shown:
    """Close a batch that its producer has left open."""
    flow = app.flows.get(id)
    batch = app.flows.batch_of(flow.id)
    batch.close()
    return Shown(document(batch.counts(), id=str(flow.id)), [f"closed batch {flow.id}"])


def _error(job: JobInfo) -> str:
    return f"{job.error.type}: {job.error.message}" if job.error else str(job.reason or "")


def _facts(flow: FlowInfo, closed: bool | None) -> FactList:
    rows: list[tuple[str, object]] = [
        ("flow", flow.id), ("name", flow.name), ("state", flow.state), ("enqueued", when(flow.enqueued)),
    ]  # fmt: skip
    if flow.finished is not None:
        rows.append(("finished", when(flow.finished)))
    if flow.expires is not None and flow.finished is None:
        rows.append(("time limit", when(flow.expires)))
    if flow.key is not None:
        rows.append(("key", flow.key))
    if closed is not None:
        rows.append(("batch", "closed" if closed else "open: jobs can be added"))
    rows.append(("jobs", ", ".join(f"{n:,} {state}" for state, n in flow.counts.items()) or "none"))
    return FactList(rows)
