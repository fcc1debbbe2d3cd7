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
"""Spellings that users of other queues have in their fingers."""


def _flag(option: Option, default: str | None) -> Callable[[Any], Any]:
    """The command line flag of one worker option; its text is read and checked by the option's own check."""
    names = [f"--{option.name.replace('_', '-')}", *ALIASES.get(option.name, ())]
    shown = default or option.shown_default or str(option.default)
    if option.type == "bool":
        return click.option(*names, option.name, is_flag=True, default=None, help=option.doc)
    if option.name == "concurrency":
        return click.option(
            *names, option.name, multiple=True, metavar="QUEUE=N", help=f"{option.doc} May be given several times."
        )
    metavar = {"Duration": "DURATION", "int": "N"}.get(option.type, "NAMES")
    return click.option(*names, option.name, default=None, metavar=metavar, help=f"{option.doc}  [default: {shown}]")


def worker_flags(**defaults: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """All worker options as flags; ``defaults`` are those of this command, to be told of."""

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options_for("worker")):
            command = _flag(option, defaults.get(option.name))(command)
        return command

    return add


def read_flags(given: dict[str, Any]) -> dict[str, Any]:
    """Only what was given, as the options' checks want it: numbers as numbers, pairs as a mapping."""
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
    """APP as the first argument, or by ``-A``; and the level of the log."""
    level = click.option(
        "-l", "--log-level", default=None, help="Level of the log; info unless the app says otherwise."
    )
    flag = click.option("-A", "--app", metavar="APP", help="The same as the argument.")
    return click.argument("target", required=False, metavar="[APP]")(flag(level(command)))


@click.command()
@app_argument
@worker_flags()
def worker(target: str | None, app: str | None, log_level: str | None, **flags: Any) -> int:
    """Run workers for APP: module:object, module, file.py or file.py:object.

    Without APP it is $MAINSPRING_APP, the app of the project file, or the one in app.py, main.py or tasks.py. TERM
    or INT stops it: nothing more is claimed, what runs may finish within the drain limit, the rest is handed
    back. Exit code: 0 all finished, 3 handed back at the limit, 4 fast stop, 5 a process had to be killed, 1 could
    not start.
    """
    from mainspring.launch.run import run_target

    found = find_target(target or named(app))
    given = read_flags(flags)
    resolve_options("worker", given, subject="mainspring worker")
    return run_target(found.target, given, log_level=log_level, path=[found.folder])
