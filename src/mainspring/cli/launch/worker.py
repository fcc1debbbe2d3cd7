"""``mainspring worker``: a supervisor in this process, workers in child processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mainspring.cli.common import named
from mainspring.cli.find_app import find_target
from mainspring.cli.flags import flags, read_flags
from mainspring.options.table import resolve_options


def app_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add APP as the first argument or as ``-A``, and ``--log-level``."""
    level = click.option(
        "-l", "--log-level", default=None, help="Log level; the default is the app's setting, else info."
    )
    flag = click.option("-A", "--app", metavar="APP", help="The same as the argument.")
    return click.argument("target", required=False, metavar="[APP]")(flag(level(command)))


@click.command()
@app_argument
@flags("worker")
def worker(target: str | None, app: str | None, log_level: str | None, **given_flags: Any) -> int:
    """Run workers for APP: module:object, module, file.py or file.py:object.

    Without APP, the app is $MAINSPRING_APP, the app of the project file, or the app in app.py, main.py or tasks.py.
    SIGTERM or SIGINT drains: the worker claims no more jobs, running jobs finish within the drain limit, and the rest
    go back to their queues. Exit codes: 0 all jobs finished, 3 jobs went back at the limit, 4 fast stop, 5 a process
    was killed, 1 the workers could not start.
    """
    from mainspring.launch.run import run_target

    found = find_target(target or named(app))
    given = read_flags("worker", given_flags)
    resolve_options("worker", given, subject="mainspring worker")
    return run_target(found.target, given, log_level=log_level, path=[found.folder])
