"""``mainspring check``: can this code run the jobs that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainspring.cli.common import answers, on_code
from mainspring.cli.job_actions import told
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.root import NO

if TYPE_CHECKING:
    from mainspring.app import Mainspring


@click.command()
@on_code
@answers
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Look at no more than so many, the newest.")
def check(app: Mainspring, limit: int | None) -> Shown:
    """Read every live job with the code that is here, before a deploy. Exit code 1 if one cannot be run."""
    from mainspring.jobs.check_stored import check as check_jobs

    found = check_jobs(app, limit=limit)
    rows = [(each.id, each.state, each.task, each.queue, each.why) for each in found.refused]
    names = ("id", "state", "task", "queue", "why")
    document = {"looked": found.looked, "refused": [dict(zip(names, map(str, row), strict=True)) for row in rows]}
    blocks: list[Table | FactList | str] = [
        f"{told('looked at', found.looked)}, {len(rows)} of them this code cannot run"
    ]
    return Shown(document, [*blocks, Table(names, rows)] if rows else blocks, NO if rows else 0)
