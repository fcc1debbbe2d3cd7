"""``mainspring worker``: a supervisor in this process, workers in child processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mainspring.cli.common import named
from mainspring.cli.find_app import find_target
from mainspring.cli.flags import flags, read_flags
from mainspring.cli.root import Command
from mainspring.common.handles import foreign_hint
from mainspring.options.table import resolve_options


class WorkerCommand(Command):
    """A command that starts workers: a flag of another library's worker gets the sentence of the table."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if hint := foreign_hint(error.option_name, "worker flag"):
                raise click.UsageError(f"No such option {error.option_name!r}.\n  {hint}", ctx) from None
            raise


def app_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add APP as the first argument or as ``-A``, ``--log-level`` and ``--log-format``."""
    level = click.option(
        "-l", "--log-level", default=None, help="Log level; the default is the app's setting, else info."
    )
    form = click.option("--log-format", metavar="auto|text|json", default=None, help="Log format: auto, text or json.")
    flag = click.option("-A", "--app", metavar="APP", help="The same as the argument.")
    return click.argument("target", required=False, metavar="[APP]")(flag(level(form(command))))


def log_flags(level: str | None, form: str | None) -> dict[str, str]:
    """The log settings that the command line gives."""
    return {name: value for name, value in (("level", level), ("format", form)) if value is not None}


@click.command(cls=WorkerCommand)
@app_argument
@flags("worker")
def worker(
    target: str | None, app: str | None, log_level: str | None, log_format: str | None, **given_flags: Any
) -> int:
    """Run workers for APP.

    APP is module:object, module, file.py or file.py:object. Without APP, the app is $MAINSPRING_APP, the app of the
    project file, or the app in app.py, main.py or tasks.py.
    SIGTERM or SIGINT drains: the worker claims no more jobs, running jobs finish within the drain limit, and the rest
    go back to their queues. Exit codes: 0 started jobs finished, 3 jobs went back at the limit, 4 fast stop, 5 a
    process was killed, 6 jobs are left that no live worker can run (--burst, --until-empty), 1 the workers could not
    start.
    """
    from mainspring.launch.run import run_target

    found = find_target(named(app, target))
    given = read_flags("worker", given_flags)
    resolve_options("worker", given, subject="mainspring worker")
    return run_target(found.target, given, log=log_flags(log_level, log_format), path=[found.folder])
