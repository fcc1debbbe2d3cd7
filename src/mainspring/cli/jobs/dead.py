"""``mainspring dead``: the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import OF_DEAD, answers, filters, listing, on_store, sure
from mainspring.cli.document import documents
from mainspring.cli.jobs.actions import (
    describe_count,
    each_of,
    ids_argument,
    one_way,
    rate_flag,
    without_jobs,
    yes_flag,
)
from mainspring.cli.jobs.tables import job_blocks, job_document, job_table, whole_document
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.root import CommandGroup
from mainspring.cli.text import when

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.dead import DeadGroup
    from mainspring.jobs.query import Query


@click.group(cls=CommandGroup)
def dead() -> None:
    """Show, retry and delete dead jobs (dead letters)."""


@dead.command()
@on_store
@listing
@filters(*OF_DEAD)
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), metavar="N", help="At most N.")
@click.option("--cursor", help="Continue after an earlier page.")
def ls(app: Mainspring, query: Query | None, limit: int, cursor: str | None) -> Shown:
    """List dead jobs, newest first."""
    page = app.dead.list(query, limit=limit, cursor=cursor)
    blocks: list[Table | FactList | str] = [job_table(page.jobs, empty="no dead jobs")]
    if page.cursor is not None:
        blocks.append(f"More jobs: --cursor {page.cursor}")
    return Shown({"jobs": [job_document(job) for job in page.jobs], "cursor": page.cursor}, blocks)


@dead.command()
@click.argument("id")
@on_store
@listing
def show(app: Mainspring, id: str) -> Shown:
    """Show one dead job: arguments, timeline, attempts."""
    info = app.dead.get(id)
    return Shown(whole_document(info), job_blocks(info))


@dead.command()
@on_store
@listing
@click.option(
    "--by", type=click.Choice(["error", "task", "queue"]), default="error", show_default=True, help="What to count by."
)
def stats(app: Mainspring, by: Any) -> Shown:
    """Count dead jobs by error, task or queue."""
    groups = app.dead.stats(by=by)
    return Shown({"by": by, "groups": documents(groups)}, [group_table(groups, by)])


@dead.command()
@ids_argument
@on_store
@answers
@filters(*OF_DEAD)
@click.option("--all", "everything", is_flag=True, help="Retry all dead jobs.")
@yes_flag
@rate_flag
def retry(app: Mainspring, ids: Sequence[str], query: Query | None, everything: bool, yes: bool, rate: float) -> Shown:
    """Run dead jobs again under the same id. They get all their retries."""
    if everything and (ids or query is not None):
        raise click.UsageError("--all means every dead job: give no ids and no filters")
    if not everything and one_way(ids, query):
        return each_of(app, ids, "retried", lambda job: job.retry())
    from mainspring.jobs.query import Query

    wanted = query or Query.everything()
    app.dead.retry(without_jobs(wanted), rate=rate)
    if not everything:
        sure("Dead jobs will be retried.", yes)
    count = app.dead.retry(wanted, rate=rate)
    return Shown({"done": count, "refused": []}, [describe_count("retried", count)])


@dead.command()
@ids_argument
@on_store
@answers
@filters(*OF_DEAD)
@click.option("--older-than", metavar="DURATION", help="Only jobs that died more than DURATION ago.")
@yes_flag
def rm(app: Mainspring, ids: Sequence[str], query: Query | None, older_than: str | None, yes: bool) -> Shown:
    """Delete dead jobs for good, by id, filters or age."""
    if ids and older_than is not None:
        raise click.UsageError("give ids or --older-than, not both")
    if older_than is None and one_way(ids, query):
        return each_of(app, ids, "deleted", lambda job: job.delete())
    if query is not None:
        app.dead.delete(without_jobs(query))
    sure("Dead jobs will be deleted for good.", yes)
    count = app.dead.delete(query, older_than=older_than)
    return Shown({"done": count, "refused": []}, [describe_count("deleted", count)])


def group_table(groups: Sequence[DeadGroup], by: str, *, title: str = "") -> Table:
    rows = [(each.value, each.count, when(each.first), when(each.last)) for each in groups]
    return Table((by, "count", "first", "last"), rows, title=title, empty="no dead jobs")
