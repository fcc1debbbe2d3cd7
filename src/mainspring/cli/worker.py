"""``mainspring worker``: a supervisor in this process, workers in child processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import click

from mainspring import options
from mainspring.errors import InvalidOption
from mainspring.options import Option

ALIASES = {
    "queues": ("-Q",),
    "processes": ("-p",),
    "thread_slots": ("-t",),
    "until_empty": ("--burst",),
}
"""Spellings that users of other queues have in their fingers."""


def _flag(option: Option) -> Callable[[Any], Any]:
    """The command line flag of one worker option; its text is read and checked by the option's own check."""
    names = [f"--{option.name.replace('_', '-')}", *ALIASES.get(option.name, ())]
    shown = option.shown_default or str(option.default)
    if option.type == "bool":
        return click.option(*names, option.name, is_flag=True, default=None, help=option.doc)
    if option.name == "concurrency":
        return click.option(
            *names, option.name, multiple=True, metavar="QUEUE=N", help=f"{option.doc} May be given several times."
        )
    return click.option(*names, option.name, default=None, metavar="TEXT", help=f"{option.doc}  [default: {shown}]")


def worker_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """All worker options as flags."""
    for option in reversed(options.table("worker")):
        command = _flag(option)(command)
    return command


def read_flags(given: dict[str, Any]) -> dict[str, Any]:
    """Only what was given, as the options' checks want it: numbers as numbers, pairs as a mapping."""
    read: dict[str, Any] = {}
    for option in options.table("worker"):
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


@click.command()
@click.argument("app", required=False)
@click.option("-A", "--app", "app_flag", metavar="APP", help="The same as the argument.")
@click.option("-l", "--log-level", default="info", show_default=True, help="Level of the log on standard error.")
@worker_flags
def worker(app: str | None, app_flag: str | None, log_level: str, **flags: Any) -> None:
    """Run workers for APP: module:object, module, file.py or file.py:object.

    Without APP it is $MAINSPRING_APP. TERM or INT stops it: nothing more is claimed, what runs may
    finish within the drain limit, the rest is handed back. Exit code: 0 all finished, 3 handed back
    at the limit, 4 fast stop, 5 a process had to be killed, 1 could not start.
    """
    target = app_flag or app or os.environ.get("MAINSPRING_APP")
    if not target:
        raise click.UsageError("which app? Give module:object or a file, or set MAINSPRING_APP.")
    from mainspring.running import run_target

    given = read_flags(flags)
    options.resolve("worker", given, subject="mainspring worker")
    sys.exit(run_target(target, given, log_level=log_level))
