"""``mainspring check``: find tasks with bad signatures, schedules without a function, and jobs that cannot run."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import answers, on_code
from mainspring.cli.jobs.actions import describe_count
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.root import NO, Command

if TYPE_CHECKING:
    from mainspring.app import Mainspring


@click.command(cls=Command)
@functools.partial(on_code, argument=True)
@answers
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Check only the newest N jobs.")
def check(app: Mainspring, limit: int | None) -> Shown:
    """Check the tasks, and decode every live job with this code.

    Use it before a deploy. The exit code is 1 if a task or a job cannot run, or if a schedule declares nothing.
    """
    from mainspring.jobs.check_stored import check as check_jobs

    found = check_jobs(app, limit=limit)
    rows = [(each.id, each.state, each.task, each.queue, each.why) for each in found.refused]
    names = ("id", "state", "task", "queue", "why")
    document = {
        "looked": found.looked,
        "refused": [dict(zip(names, map(str, row), strict=True)) for row in rows],
        "bad_tasks": [{"task": each.task, "why": each.why} for each in found.bad_tasks],
        "bad_schedules": list(found.bad_schedules),
    }
    blocks: list[Table | FactList | str] = [*(each.why for each in found.bad_tasks), *found.bad_schedules]
    verdict = f"cannot run {len(rows)} of them" if rows else "can run all of them"
    blocks.append(f"{describe_count('checked', found.looked)}: this code {verdict}")
    bad = rows or found.bad_tasks or found.bad_schedules
    return Shown(document, [*blocks, Table(names, rows)] if rows else blocks, NO if bad else 0)
