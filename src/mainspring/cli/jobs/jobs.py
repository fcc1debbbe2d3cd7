"""``mainspring jobs``: list jobs, show one job, its logs, and why it does not run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli import output
from mainspring.cli.common import OF_ENDED, filters, listing, on_store
from mainspring.cli.document import document, iso
from mainspring.cli.jobs.actions import cancel, retry, rm, run_now
from mainspring.cli.jobs.run_local import run
from mainspring.cli.jobs.tables import (
    as_json,
    compact,
    job_blocks,
    job_document,
    job_table,
    log_line,
    progress,
    whole_document,
)
from mainspring.cli.output import Shown
from mainspring.cli.root import CommandGroup
from mainspring.cli.text import line, to_json
from mainspring.errors import JobError
from mainspring.states import FINAL

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.info import JobInfo
    from mainspring.jobs.job import Job
    from mainspring.jobs.query import Query

FOLLOW = 0.5
"""Seconds between two reads of a job's log lines."""


@click.group(cls=CommandGroup)
def jobs() -> None:
    """List, show and change jobs."""


@jobs.command()
@on_store
@listing
@filters(*OF_ENDED, "flow")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="At most N.")
@click.option("--cursor", help="Continue after an earlier page.")
def ls(app: Mainspring, query: Query | None, limit: int, cursor: str | None) -> Shown:
    """List jobs, newest first. A job must match all filters."""
    page = app.jobs.list(query, limit=limit, cursor=cursor)
    blocks: list[output.Table | output.FactList | str] = [job_table(page.jobs)]
    if page.cursor is not None:
        blocks.append(f"More jobs: --cursor {page.cursor}")
    return Shown({"jobs": [job_document(job) for job in page.jobs], "cursor": page.cursor}, blocks)


@jobs.command()
@click.argument("id")
@on_store
@listing
def show(app: Mainspring, id: str) -> Shown:
    """Show one job: arguments, timeline, attempts, result."""
    job = app.jobs.get(id)
    info, result = job.info(), _result(app, job)
    extra = [] if result is None else [output.FactList([("result", compact(result))])]
    return Shown(whole_document(info, result=result), [*job_blocks(info), *extra])


@jobs.command()
@click.argument("id")
@on_store
@listing
def why(app: Mainspring, id: str) -> Shown:
    """Show why a job does not run: everything that a claim checks."""
    said = app.jobs.why(id)
    lines = [f"- {each.text}" for each in said.obstacles] or ["- nothing holds it back: a worker can claim it"]
    return Shown(document(said), ["\n".join([f"{said.id} is {said.state.value}", *lines])])


def _result(app: Mainspring, job: Job[Any]) -> Any:
    """The result, if it is stored and the task is known here: only the task knows which parts are secret."""
    if app.tasks.find(job.task) is None:
        return None
    try:
        return as_json(job.result(timeout=0))
    except JobError:
        return None


@jobs.command()
@click.argument("id")
@on_store
@click.option("-f", "--follow", is_flag=True, help="Continue until the job has finished.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; with --follow, one per line.")
def logs(app: Mainspring, id: str, follow: bool, as_json: bool) -> None:
    """Show the log lines of a job."""
    job, seen = app.jobs.get(id), 0
    while True:
        ended = not follow or job.info().state in FINAL
        found = job.logs(after=seen)
        if as_json and not follow:
            click.echo(to_json({"logs": [document(entry) for entry in found]}, compact=False))
            return
        for entry in found:
            click.echo(to_json(document(entry), compact=True) if as_json else log_line(entry))
            seen = entry.n
        if ended:
            return
        time.sleep(FOLLOW)


@jobs.command()
@click.argument("id")
@on_store
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document per line.")
def watch(app: Mainspring, id: str, as_json: bool) -> int:
    """Print each change until the job has finished. Exit code 1 unless it succeeded."""
    last: JobInfo | None = None
    for info in app.jobs.get(id).watch():
        click.echo(to_json(job_document(info), compact=True) if as_json else _news(info))
        last = info
    return 0 if last is not None and last.state == "succeeded" else 1


def _news(info: JobInfo) -> str:
    at = (iso(info.finished or info.started or info.enqueued) or "")[:19] + "Z"
    extra = progress(info.progress) if info.progress and not info.final else ""
    why = info.reason or ""
    return line(f"{at} {info.state} attempt {info.attempt} {why}{extra}".rstrip())


for each in (cancel, retry, run_now, rm, run):
    jobs.add_command(each)
