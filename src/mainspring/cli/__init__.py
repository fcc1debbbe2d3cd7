"""The command line: ``mainspring COMMAND``.

Every command is a thin layer over the public API: it finds the app or the store, calls ``app.<feature>``, and prints
a table or one JSON document.
"""

from __future__ import annotations

import click

from mainspring import __version__
from mainspring.cli.completion import completion
from mainspring.cli.control.breakers import breakers
from mainspring.cli.control.limits import limits
from mainspring.cli.control.locks import locks
from mainspring.cli.control.queues import queues
from mainspring.cli.control.status import status
from mainspring.cli.control.workers import workers
from mainspring.cli.examples import add_examples
from mainspring.cli.jobs.dead import dead
from mainspring.cli.jobs.enqueue import enqueue
from mainspring.cli.jobs.jobs import jobs
from mainspring.cli.launch.demo import demo
from mainspring.cli.launch.dev import dev
from mainspring.cli.launch.worker import worker
from mainspring.cli.project.backup import backup, restore
from mainspring.cli.project.check import check
from mainspring.cli.project.config import config
from mainspring.cli.project.explain import explain
from mainspring.cli.project.migrate import migrate
from mainspring.cli.root import Root
from mainspring.cli.schedules.schedules import schedules


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mainspring")
@click.option("-A", "--app", metavar="APP", help="The app: module:object, module, file.py or file.py:object.")
def cli(app: str | None) -> None:
    """Background work for Python on SQLite, PostgreSQL or Redis."""


for command in (
    dev, worker, enqueue, jobs, queues, schedules, limits, breakers, locks, dead, workers, status, config, explain,
    check, migrate, backup, restore, demo, completion,
):  # fmt: skip
    cli.add_command(command)
add_examples(cli)


def main() -> None:
    """Entry point."""
    cli.main(prog_name="mainspring")
