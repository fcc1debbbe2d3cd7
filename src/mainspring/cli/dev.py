"""``mainspring dev``: workers that start anew when their code changes, on a server of their own if asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import named
from mainspring.cli.find_app import URL, find_target
from mainspring.cli.output import complain
from mainspring.cli.worker import app_argument, read_flags, worker_flags
from mainspring.errors import ConfigError
from mainspring.options.table import resolve_options
from mainspring.settings.project import project_root

if TYPE_CHECKING:
    from mainspring.testing.servers import Engine

DRAIN = "5s"
"""How long jobs may take to finish at a change."""
FOLDER = ".mainspring"
"""Where a server of the project keeps its data."""
ENGINES: dict[Engine, str] = {"postgres": "psycopg", "redis": "redis"}
"""Each with its driver; the extra that installs it has the engine's name."""


@click.command()
@app_argument
@click.option(
    "--engine", type=click.Choice([*ENGINES]), metavar="NAME",
    help="Start a server for this project, postgres or redis, and work on it. Its data stay in .mainspring/.",
)  # fmt: skip
@worker_flags(drain=DRAIN)
def dev(target: str | None, app: str | None, engine: Engine | None, log_level: str | None, **flags: Any) -> int:
    """Run workers for APP and start them anew whenever one of its files changes.

    They drain for 5 s at a change, unless --drain says otherwise. Code that cannot be imported is shown with its
    traceback, and the old workers go on. Ctrl-C ends; the exit code is that of ``mainspring worker``.
    """
    from mainspring.launch.reload import Assignment, Reloader

    found = find_target(target or named(app))
    given = {"drain": DRAIN, **read_flags(flags)}
    resolve_options("worker", given, subject="mainspring dev")
    with _server(engine, Path(found.folder)) as url:
        return Reloader(Assignment(found.target, found.folder, given, log_level, url), complain).run()


@contextmanager
def _server(engine: Engine | None, folder: Path) -> Iterator[str | None]:
    """The URL of a server of the project's own, which runs meanwhile; None if none is asked for."""
    if engine is None:
        yield None
        return
    from mainspring.testing import servers

    home = project_root(folder / "app.py") / FOLDER
    try:
        if find_spec(ENGINES[engine]) is None:
            fix = f"pip install 'mainspring[{engine}]'"
            raise servers.EngineMissing(f"its driver {ENGINES[engine]} is not installed", fix)
        with servers.kept(engine, home) as server:
            complain(f"{engine} is at {server.url}, its data in {server.home}\nElsewhere: export {URL}='{server.url}'")
            yield server.url
    except servers.EngineMissing as error:
        raise ConfigError(f"--engine {engine}: {error.what}", hint=error.fix) from None
    except servers.ServerFailed as error:
        raise ConfigError(f"--engine {engine}: {error}") from None
