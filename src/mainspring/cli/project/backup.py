"""``mainspring backup`` and ``mainspring restore``: the file of a SQLite store."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mainspring.cli.common import answers, on_store, sure
from mainspring.cli.output import Shown
from mainspring.cli.root import Command
from mainspring.common.sizes import format_size
from mainspring.errors import ConfigError
from mainspring.stores.connect import engine_of, sqlite_path

if TYPE_CHECKING:
    from mainspring.app import Mainspring

_TOOLS = {
    "postgres": "PostgreSQL has its own tools: use pg_dump and pg_restore, or the backups of your provider",
    "redis": "Redis has its own snapshots: use BGSAVE and copy the RDB file, or the backups of your provider",
}


@click.command(cls=Command)
@click.argument("file", type=click.Path(dir_okay=False))
@functools.partial(on_store, all_namespaces=True)
@answers
def backup(app: Mainspring, file: str) -> Shown:
    """Copy a SQLite store to FILE while processes use it.

    The copy is one consistent moment of the store, with all its namespaces. FILE must not exist. For PostgreSQL and
    Redis use their own tools.
    """
    from mainspring.stores.sqlite.driver.backup import back_up

    path = _path_of(app)
    size = back_up(path, str(Path(file).absolute()))
    return Shown({"store": path, "file": file, "bytes": size}, [f"{path} was copied to {file} ({format_size(size)})"])


@click.command(cls=Command)
@click.argument("file", type=click.Path(dir_okay=False))
@functools.partial(on_store, make=True, all_namespaces=True)
@answers
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def restore(app: Mainspring, file: str, yes: bool) -> Shown:
    """Replace a SQLite store by the backup FILE.

    All jobs in the store are replaced by those in the backup. Refused while a process uses the store: stop workers and
    producers first.
    """
    from mainspring.stores.sqlite.driver.backup import restore as restore_file

    path = _path_of(app)
    if Path(path).exists():
        sure(f"{path} will be replaced, with all jobs in it.", yes)
    size = restore_file(path, str(Path(file).absolute()))
    return Shown(
        {"store": path, "file": file, "bytes": size}, [f"{path} was restored from {file} ({format_size(size)})"]
    )


def _path_of(app: Mainspring) -> str:
    """The file of the store; an error names the tool for a store that is a server."""
    url = app.settings.url
    if (tool := _TOOLS.get(engine_of(url))) is not None:
        raise ConfigError(tool)
    return str(Path(sqlite_path(url)).resolve())
