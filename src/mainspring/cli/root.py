"""The root command group: it turns errors into messages and exit codes.

Exit codes: 0 success; 1 the answer is no; 2 wrong usage, or an error stopped the command; 130 Ctrl-C; 141 the reader
of standard output closed the pipe. ``worker`` and ``dev`` have their own codes.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from mainspring.cli.output import complain
from mainspring.common.handles import foreign_hint, later_hint, not_built
from mainspring.errors import MainspringError

NO = 1
WRONG = 2
INTERRUPTED = 130
CLOSED = 141
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class Command(click.Command):
    """A command that refuses a flag which was given twice."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        refuse_repeated(self, ctx, args)
        return super().parse_args(ctx, args)


class CommandGroup(click.Group):
    """A group whose commands, and which itself, refuse a flag that was given twice."""

    command_class = Command
    group_class = type

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        refuse_repeated(self, ctx, args)
        return super().parse_args(ctx, args)


def refuse_repeated(command: click.Command, ctx: click.Context, args: Sequence[str]) -> None:
    """Raise ``UsageError`` for a flag with one value that was given twice: click would use the last value.

    A flag for several values is collected (``multiple``), and a flag without a value may be repeated.
    """
    if ctx.resilient_parsing:
        return
    given = command.make_parser(ctx).parse_args(args=[*args])[2]
    for flag in dict.fromkeys(given):
        single = isinstance(flag, click.Option) and not (flag.multiple or flag.is_flag or flag.count)
        if single and given.count(flag) > 1:
            name = max(flag.opts, key=len)
            raise click.UsageError(f"{name} was given {given.count(flag)} times, and it takes one value.", ctx)


class Root(CommandGroup):
    """Print a ``MainspringError`` as one line with its fix. Any other exception is a bug and shows its traceback."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        _open_missing_streams()
        for stream in (sys.stdout, sys.stderr):
            if reconfigure := getattr(stream, "reconfigure", None):
                reconfigure(errors="backslashreplace")  # an unprintable letter must not end the command
        sys.exit(self._run(args, prog_name, complete_var, extra))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; a command of another library or of a later release gets its sentence."""
        name = args[0]
        if not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            if later_hint(name, "command"):
                raise not_built("command", name)
            if hint := foreign_hint(name, "command"):
                raise click.UsageError(f"No such command {name!r}.\n  {hint}", ctx)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _give_up_output()
            raise click.exceptions.Exit(CLOSED) from None
        return code

    def _run(
        self, args: Sequence[str] | None, prog_name: str | None, complete_var: str | None, extra: dict[str, Any]
    ) -> int:
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            return WRONG
        except click.ClickException as error:
            complain(error.format_message() + _help_hint(error))
            return WRONG
        except MainspringError as error:
            complain(error)
            return WRONG
        except click.Abort:
            return INTERRUPTED
        except OSError as error:
            _give_up_output()
            complain(f"cannot write to standard output: {error.strerror}" if error.errno in _FULL else error)
            return WRONG
        return code if isinstance(code, int) else 0


def _help_hint(error: click.ClickException) -> str:
    ctx = getattr(error, "ctx", None)
    return f"\n  See: {ctx.command_path} --help" if ctx is not None else ""


def _open_missing_streams() -> None:
    """Open ``/dev/null`` for closed streams (``>&-``), so that the next file opened does not get their descriptor."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - for as long as the process lives


def _give_up_output() -> None:
    """Discard the rest of standard output after its reader is gone."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
