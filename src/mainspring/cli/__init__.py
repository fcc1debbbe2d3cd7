"""The command line: ``mainspring COMMAND``.

Every command is a thin layer over the public API: it finds the app or the store, calls ``app.<feature>``, and prints
a table or one JSON document. The module of a command is imported when the command is used: a start of a worker
needs one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from importlib import import_module

import click

from mainspring import __version__
from mainspring.cli.examples import add_examples
from mainspring.cli.root import Root

_MODULES = {
    "dev": "launch.dev", "worker": "launch.worker", "enqueue": "jobs.enqueue", "jobs": "jobs.jobs",
    "queues": "control.queues", "schedules": "schedules.schedules", "limits": "control.limits",
    "breakers": "control.breakers", "locks": "control.locks", "dead": "jobs.dead", "workers": "control.workers",
    "flows": "flows.flows",
    "status": "control.status", "config": "project.config", "explain": "project.explain", "check": "project.check",
    "migrate": "project.migrate", "backup": "project.backup", "restore": "project.backup", "demo": "launch.demo",
    "completion": "completion",
}  # fmt: skip
"""The module of each command below ``mainspring.cli``. The command has the name of a function in it."""


class Commands(MutableMapping[str, click.Command]):
    """The commands by name, each imported when it is asked for."""

    def __init__(self) -> None:
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._loaded:
            command: click.Command = getattr(import_module(f"mainspring.cli.{_MODULES[name]}"), name)
            add_examples(command, name)
            self._loaded[name] = command
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**_MODULES, **self._loaded})

    def __len__(self) -> int:
        return len({**_MODULES, **self._loaded})

    def __contains__(self, name: object) -> bool:
        return name in _MODULES or name in self._loaded


@click.group(cls=Root, commands=Commands(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="mainspring")
@click.option("-A", "--app", metavar="APP", help="The app: module:object, module, file.py or file.py:object.")
def cli(app: str | None) -> None:
    """Background work for Python on SQLite, PostgreSQL or Redis."""


add_examples(cli, below=False)


def main() -> None:
    """Entry point."""
    cli.main(prog_name="mainspring")
