"""``mainspring dev``: workers that start anew when their code changes."""

from __future__ import annotations

from typing import Any

import click

from mainspring import options
from mainspring.cli.finding import find_target
from mainspring.cli.frame import named
from mainspring.cli.output import complain
from mainspring.cli.worker import app_argument, read_flags, worker_flags
from mainspring.errors import NotBuilt

DRAIN = "5s"
"""How long jobs may take to finish at a change."""


@click.command()
@app_argument
@click.option("--engine", metavar="NAME", help="Start a database for development (of a later release).")
@worker_flags(drain=DRAIN)
def dev(target: str | None, app: str | None, engine: str | None, log_level: str | None, **flags: Any) -> int:
    """Run workers for APP and start them anew whenever one of its files changes.

    They drain for 5 s at a change, unless --drain says otherwise. Code that cannot be imported is shown with its
    traceback, and the old workers go on. Ctrl-C ends; the exit code is that of ``mainspring worker``.
    """
    if engine is not None:
        raise NotBuilt("mainspring dev", "--engine", hint="Leave it out: SQLite needs no server.")
    from mainspring.reload import Assignment, Reloader

    found = find_target(target or named(app))
    given = {"drain": DRAIN, **read_flags(flags)}
    options.resolve("worker", given, subject="mainspring dev")
    return Reloader(Assignment(found.target, found.folder, given, log_level), complain).run()
