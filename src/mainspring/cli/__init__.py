"""The command line: ``mainspring COMMAND``. Speaks only to the app, to what it points to, and to the supervisor."""

from __future__ import annotations

import click

from mainspring import __version__
from mainspring.cli.breakers import breakers
from mainspring.cli.check import check
from mainspring.cli.completion import completion
from mainspring.cli.config import config
from mainspring.cli.dead import dead
from mainspring.cli.demo import demo
from mainspring.cli.dev import dev
from mainspring.cli.enqueue import enqueue
from mainspring.cli.explain import explain
from mainspring.cli.jobs import jobs
from mainspring.cli.limits import limits
from mainspring.cli.locks import locks
from mainspring.cli.migrate import migrate
from mainspring.cli.queues import queues
from mainspring.cli.root import Root
from mainspring.cli.schedules import schedules
from mainspring.cli.status import status
from mainspring.cli.worker import worker
from mainspring.cli.workers import workers


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mainspring")
@click.option("-A", "--app", metavar="APP", help="The app, for the command that follows.")
def cli(app: str | None) -> None:
    """Background work for Python on SQLite, PostgreSQL or Redis."""


for command in (
    dev, worker, enqueue, jobs, queues, schedules, limits, breakers, locks, dead, workers, status, config, explain,
    check, migrate, demo, completion,
):  # fmt: skip
    cli.add_command(command)


def main() -> None:
    """Entry point."""
    cli.main(prog_name="mainspring")
