"""``mainspring dev``: workers that restart when the code changes, with a private database server if asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import named
from mainspring.cli.find_app import URL, find_target
from mainspring.cli.flags import flags, read_flags
from mainspring.cli.launch.worker import WorkerCommand, app_argument, log_flags
from mainspring.cli.output import complain
from mainspring.errors import ConfigError
from mainspring.options.table import resolve_options
from mainspring.settings.project import project_root

if TYPE_CHECKING:
    from mainspring.testing.servers import Engine

DRAIN = "5s"
"""Drain limit at a change."""
FOLDER = ".mainspring"
"""Folder of the private server's data, in the project."""
ENGINES: dict[Engine, str] = {"postgres": "psycopg", "redis": "hiredis"}
"""The driver module of each engine; the extra of the same name installs it."""


@click.command(cls=WorkerCommand)
@app_argument
@click.option(
    "--engine", type=click.Choice([*ENGINES]), metavar="NAME",
    help="Start a private postgres or redis server for this project; its data stay in .mainspring/.",
)  # fmt: skip
@flags("worker", drain=DRAIN)
def dev(
    target: str | None, app: str | None, engine: Engine | None, log_level: str | None, log_format: str | None,
    **given_flags: Any,
) -> int:  # fmt: skip
    """Run workers for APP; restart them when a file changes.

    Prints one line for each job that ends. At a change, running jobs have 5 s to finish (--drain). If the new code
    cannot be imported, its traceback is shown and the old workers continue. Press Ctrl-C to stop. The exit codes are
    those of ``mainspring worker``.
    """
    from mainspring.launch.reload import Assignment, Reloader

    found = find_target(named(app, target))
    given = {"drain": DRAIN, **read_flags("worker", given_flags)}
    resolve_options("worker", given, subject="mainspring dev")
    with _server(engine, Path(found.folder)) as url:
        log = {**log_flags(log_level, log_format), "jobs": "info"}
        return Reloader(Assignment(found.target, found.folder, given, log, url), complain).run()


@contextmanager
def _server(engine: Engine | None, folder: Path) -> Iterator[str | None]:
    """Run the private server and yield its URL; yield None if no engine is asked for."""
    if engine is None:
        yield None
        return
    from mainspring.testing import servers

    home = project_root(folder / "app.py") / FOLDER
    try:
        if find_spec(ENGINES[engine]) is None:
            fix = f"pip install 'mainspring[{engine}]'"
            raise servers.EngineMissing(f"the driver {ENGINES[engine]} is not installed", fix)
        with servers.kept(engine, home) as server:
            complain(f"{engine} runs at {server.url}, data in {server.home}\nElsewhere: export {URL}='{server.url}'")
            yield server.url
    except servers.EngineMissing as error:
        raise ConfigError(f"--engine {engine}: {error.what}", hint=error.fix) from None
    except servers.ServerFailed as error:
        raise ConfigError(f"--engine {engine}: {error}") from None
