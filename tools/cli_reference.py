"""The reference page of the command line, from the commands themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import click

from mainspring.cli import cli

SHARED = {
    "app": "`-A`, `--app APP`: the app, as `module:object`, `module`, `file.py` or `file.py:object`",
    "url": "`--url URL`, `--namespace NAME`: the store instead of an app; no code is imported",
    "as_json": "`--json`: the answer as one JSON document with stable keys; times are ISO 8601 in UTC",
    "watch": "`--watch [SECONDS]`: the answer again and again (every 2 s) until Ctrl-C; with `--json` one a line",
}
"""Flags with the same meaning in every command, by parameter: the page describes them once."""

WORDS = {"app": "`-A`", "url": "*no code*", "as_json": "`--json`", "watch": "`--watch`"}

HEAD = f"""# The command line

`mainspring COMMAND`, or `python -m mainspring COMMAND`. See [the guide](../guides/command-line.md).

## Which app

The first of: what the command names (`-A`, before or after the command; the first argument of `worker` and `dev`),
`$MAINSPRING_APP`, `app =` of the nearest `mainspring.toml` or `[tool.mainspring]` in `pyproject.toml` here or above,
the one file among `app.py`, `main.py` and `tasks.py` here that makes exactly one app. Commands marked *no code* also
take a store instead: `--url`, `$MAINSPRING_URL`, or `url =` of the settings file. It must be there: only `migrate`
makes one.

## Exit codes

| code | meaning |
|---|---|
| 0 | fine |
| 1 | the answer is no: `check` found jobs that cannot be run, a job that was waited for did not succeed, \
something was refused, the question was answered with no |
| 2 | a mistake in the command, or an error that stopped it; one line on standard error says what and what to do |
| 130 | Ctrl-C |
| 141 | the reader closed the pipe (`... --watch \\| head -1`): the command ends without a message |

`worker` and `dev`: 0 started jobs finished; 3 jobs were handed back at the drain limit; 4 fast stop; 5 a process had to
be killed; 6 `--burst` or `--until-empty` left jobs that no live worker can run; 1 the workers could not start.

## Output

Tables with colours on a terminal if `rich` is installed (`pip install "mainspring[top]"`; `NO_COLOR` is obeyed), plain
aligned text everywhere else. Control characters in stored text are shown, never sent to the terminal.

## Flags that mean the same everywhere

- {(chr(10) + "- ").join(SHARED.values())}
"""


def page() -> str:
    """The whole page."""
    return HEAD + "\n" + "\n".join(_section(path, command) for path, command in commands(cli, "mainspring"))


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, by what one types."""
    if not isinstance(command, click.Group):
        yield path, command
        return
    for name, each in command.commands.items():
        yield from commands(each, f"{path} {name}")


def _section(path: str, command: click.Command) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [f"## {path}\n", f"```text\n{path} {usage}\n```\n", inspect.cleandoc(command.help or ""), ""]
    shared = [word for name, word in WORDS.items() if any(param.name == name for param in command.params)]
    if shared:
        lines += [f"Takes {', '.join(shared)}.\n"]
    own = [param for param in command.params if isinstance(param, click.Option) and not _said(param)]
    if own:
        lines += ["| flag | meaning |", "|---|---|", *(_row(param) for param in own), ""]
    return "\n".join(lines)


def _said(option: click.Option) -> bool:
    """Whether the flag has the same meaning in every command."""
    general = {"app", "url", "namespace", "as_json", "watch"}
    return option.name in general and "The same as" not in (option.help or "")


def _row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in sorted(option.opts, key=len))
    value = "" if option.is_flag else f" `{option.make_metavar(click.Context(click.Command('x')))}`"
    default = f" Default: {option.default}." if option.show_default else ""
    text = re.sub(r"  \[default: (.*)\]$", r" Default: \1.", option.help or "")
    cells = [f"{names}{value}", (text + default).strip()]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
