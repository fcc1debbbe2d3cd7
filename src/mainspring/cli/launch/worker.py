"""``mainspring worker``: a supervisor in this process, workers in child processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from mainspring.cli.common import named
from mainspring.cli.find_app import find_target
from mainspring.errors import InvalidOption
from mainspring.options.table import Option, options_for, resolve_options

ALIASES = {
    "queues": ("-Q",),
    "processes": ("-p",),
    "thread_slots": ("-t",),
    "until_empty": ("--burst",),
}
"""Short flags, and flags known from other job queues."""


def _flag(option: Option, default: str | None) -> Callable[[Any], Any]:
    """Build the flag of one worker option. The option's own check reads and checks the text."""
    names = [f"--{option.name.replace('_', '-')}", *ALIASES.get(option.name, ())]
    shown = default or option.shown_default or str(option.default)
    if option.type == "bool":
        return click.option(*names, option.name, is_flag=True, default=None, help=option.doc)
    if option.name == "concurrency":
        return click.option(
            *names, option.name, multiple=True, metavar="QUEUE=N", help=f"{option.doc} Repeat it for several queues."
        )
    metavar = {"Duration": "DURATION", "int": "N"}.get(option.type, "NAMES")
    return click.option(*names, option.name, default=None, metavar=metavar, help=f"{option.doc}  [default: {shown}]")


def worker_flags(**defaults: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add all worker options as flags; ``defaults`` override the defaults shown in the help."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options_for("worker")):
            command = _flag(option, defaults.get(option.name))(command)
        return command

    return add


def read_flags(given: dict[str, Any]) -> dict[str, Any]:
    """The options that were given: numbers as ``int``, pairs as a mapping."""
    read: dict[str, Any] = {}
    for option in options_for("worker"):
        value = given.get(option.name)
        if value is None or value == ():
            continue
        if option.name == "concurrency":
            read[option.name] = dict(_pair(item) for item in value)
        elif option.type == "int":
            read[option.name] = int(value) if value.lstrip("-").isdigit() else value
        else:
            read[option.name] = value
    return read


def _pair(text: str) -> tuple[str, Any]:
    queue, equals, number = text.partition("=")
    if not equals or not number.isdigit():
        raise InvalidOption("concurrency", text, "is not QUEUE=N", hint="--concurrency email=5")
    return queue, int(number)


def app_argument(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add APP as the first argument or as ``-A``, and ``--log-level``."""
    level = click.option(
        "-l", "--log-level", default=None, help="Log level; the default is the app's setting, else info."
    )
    flag = click.option("-A", "--app", metavar="APP", help="The same as the argument.")
    return click.argument("target", required=False, metavar="[APP]")(flag(level(command)))


@click.command()
@app_argument
@worker_flags()
def worker(target: str | None, app: str | None, log_level: str | None, **flags: Any) -> int:
    """Run workers for APP: module:object, module, file.py or file.py:object.

    Without APP, the app is $MAINSPRING_APP, the app of the project file, or the app in app.py, main.py or tasks.py.
    SIGTERM or SIGINT drains: the worker claims no more jobs, running jobs finish within the drain limit, and the rest
    go back to their queues. Exit codes: 0 all jobs finished, 3 jobs went back at the limit, 4 fast stop, 5 a process
    was killed, 1 the workers could not start.
    """
    from mainspring.launch.run import run_target

    found = find_target(target or named(app))
    given = read_flags(flags)
    resolve_options("worker", given, subject="mainspring worker")
    return run_target(found.target, given, log_level=log_level, path=[found.folder])
