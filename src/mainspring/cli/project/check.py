"""``mainspring check``: find stored jobs that this code cannot run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.cli.common import answers, on_code
from mainspring.cli.jobs.actions import describe_count
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.root import NO

if TYPE_CHECKING:
    from mainspring.app import Mainspring


@click.command()
@on_code
@answers
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Check only the newest N jobs.")
def check(app: Mainspring, limit: int | None) -> Shown:
    """Decode every live job with this code, before a deploy. Exit code 1 if a job cannot run."""
    from mainspring.jobs.check_stored import check as check_jobs

    found = check_jobs(app, limit=limit)
    rows = [(each.id, each.state, each.task, each.queue, each.why) for each in found.refused]
    names = ("id", "state", "task", "queue", "why")
    document = {"looked": found.looked, "refused": [dict(zip(names, map(str, row), strict=True)) for row in rows]}
    blocks: list[Table | FactList | str] = [
        f"{describe_count('checked', found.looked)}: this code cannot run {len(rows)} of them"
    ]
    return Shown(document, [*blocks, Table(names, rows)] if rows else blocks, NO if rows else 0)
