"""``mainspring jobs run``: run the code of a stored job in this process, for debugging."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import mainspring
from mainspring.cli.common import answers, on_code
from mainspring.cli.jobs.tables import as_json, compact
from mainspring.cli.output import Shown
from mainspring.cli.root import NO, Command
from mainspring.cli.text import block
from mainspring.common.redact import redact

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.check_stored import StoredCall

_OURS = str(Path(mainspring.__file__).parent) + os.sep


@click.command(cls=Command)
@click.argument("id")
@on_code
@answers
@click.option("--local", is_flag=True, help="Required: confirms that the code runs in this process.")
@click.option("--pdb", is_flag=True, help="Open the debugger where the code raises an exception.")
def run(app: Mainspring, id: str, local: bool, pdb: bool) -> Shown:
    """Call the task of a stored job in this process. The stored job does not change.

    It is a plain call of the task: no middleware, no lifespan, no retries. Exit code 1 if the task raises an exception.
    """
    if not local:
        raise click.UsageError("jobs run on workers; to run the code in this process, add --local")
    from mainspring.jobs.check_stored import open_stored
    from mainspring.observe import logs

    logs.configure(app.settings.logs, worker=True)
    stored = open_stored(app, id)
    click.echo(f"mainspring: running the code of job {id} in this process; the stored job does not change", err=True)
    try:
        value = as_json(_call(stored))
    except Exception as error:  # noqa: BLE001 - the task may raise anything, and the command shows it
        click.echo(block(redact("".join(traceback.format_exception(_theirs(error))))), err=True)
        if pdb:
            _debug(error)
        return Shown({"id": id, "result": None, "error": redact(f"{type(error).__name__}: {error}")}, [], NO)
    return Shown({"id": id, "result": value, "error": None}, [compact(value)])


def _call(stored: StoredCall) -> Any:
    import asyncio

    value = stored.task.declared.call(stored.args, stored.kwargs)
    return asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value


async def _awaited(value: Any) -> Any:
    return await value


def _theirs(error: Exception) -> Exception:
    """The error without our own frames at the top of its traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return error.with_traceback(trace or error.__traceback__)


def _debug(error: Exception) -> None:
    import pdb  # noqa: T100 - the user asked for it

    with redirect_stdout(sys.__stdout__):
        pdb.post_mortem(error.__traceback__)
