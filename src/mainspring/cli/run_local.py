"""``mainspring jobs run``: run the code of a stored job here, to see what it does."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import answers, on_code
from mainspring.cli.documents import as_json, compact
from mainspring.cli.output import Shown
from mainspring.cli.root import NO
from mainspring.cli.text import block
from mainspring.common.redact import redact

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.check_stored import StoredCall

_OURS = str(Path(__file__).parent.parent) + os.sep


@click.command()
@click.argument("id")
@on_code
@answers
@click.option("--local", is_flag=True, help="Needed: it says that the code runs here, in this process.")
@click.option("--pdb", is_flag=True, help="Open the debugger where the code raises.")
def run(app: Mainspring, id: str, local: bool, pdb: bool) -> Shown:
    """Call the code of a stored job with its arguments, in this process. The job itself is not touched.

    As in a plain call of the task, there is no worker around it: no middleware, no lifespan, no retries.
    Exit code 1 if it raises.
    """
    if not local:
        raise click.UsageError("a job runs on a worker; to run its code in this process say --local")
    from mainspring.jobs.check_stored import open_stored
    from mainspring.observe import logs

    logs.configure(app.settings.logs, worker=True)
    stored = open_stored(app, id)
    click.echo(f"mainspring: runs the code of job {id} here; the job is not touched", err=True)
    try:
        value = as_json(_call(stored))
    except Exception as error:  # noqa: BLE001 - whatever the task raises is what was asked for
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
    """The error without the frames that only call."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    return error.with_traceback(trace or error.__traceback__)


def _debug(error: Exception) -> None:
    import pdb  # noqa: T100 - the user asked for it

    with redirect_stdout(sys.__stdout__):
        pdb.post_mortem(error.__traceback__)
