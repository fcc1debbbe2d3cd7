"""The command line: ``mainspring COMMAND``. Speaks only to the app and to the supervisor."""

from __future__ import annotations

import sys

import click

from mainspring import __version__
from mainspring.cli.demo import demo
from mainspring.cli.worker import worker
from mainspring.errors import MainspringError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mainspring")
def cli() -> None:
    """Background work for Python on SQLite, PostgreSQL or Redis."""


cli.add_command(demo)
cli.add_command(worker)


def main() -> None:
    """Entry point. Errors of ours are told with their fix; everything else is a bug and shows its traceback."""
    try:
        cli.main()
    except MainspringError as error:
        click.echo(f"mainspring: {error}", err=True)
        sys.exit(2)
