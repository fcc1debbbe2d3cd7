"""``mainspring enqueue``: enqueue a job from the command line."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import answers, on_store
from mainspring.cli.completion import task_names
from mainspring.cli.find_app import check_store
from mainspring.cli.flags import flags, read_flags, read_value
from mainspring.cli.jobs.tables import as_json, compact
from mainspring.cli.output import Shown, complain
from mainspring.cli.root import NO, Command
from mainspring.errors import (
    JobCancelled,
    JobDead,
    ResultTimeout,
    Undecodable,
    UnknownTask,
    WrongArgument,
)

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.call import Call
    from mainspring.jobs.job import Job


@click.command(cls=Command)
@click.argument("task", shell_complete=task_names)
@click.argument("arguments", nargs=-1, metavar="[VALUE | NAME=VALUE]...")
@on_store
@answers
@flags("job")
@click.option("--unknown", is_flag=True, help="Accept a task that this app does not know.")
@click.option("--wait", is_flag=True, help="Wait until the job has finished; print its result.")
@click.option("--wait-timeout", metavar="DURATION", help="Stop waiting after DURATION; the job is not affected.")
def enqueue(
    app: Mainspring, task: str, arguments: Sequence[str], unknown: bool, wait: bool, wait_timeout: str | None,
    **given: Any,
) -> Shown:  # fmt: skip
    """Enqueue a job of TASK and print its id.

    A VALUE is JSON (3, true, null, '[1, 2]') or plain text, whichever the task accepts. TASK may be the end of the
    task's name. Put -- before a negative number. With --wait, the exit code is 1 unless the job succeeded.
    """
    refuse_timeout(wait_timeout, wait=wait)
    check_store(app)
    call = call_of(app, name_of(app, task, unknown=unknown), arguments)
    job = call.options(**read_flags("job", given)).enqueue()
    if not job.created:
        complain(f"job {job.id} already holds this key; no new job was created")
    document = {"id": str(job.id), "task": job.task, "created": job.created}
    return waited(job, wait_timeout, document) if wait else Shown(document, [str(job.id)])


def refuse_timeout(timeout: str | None, *, wait: bool) -> None:
    """Refuse ``--wait-timeout`` without ``--wait``."""
    if timeout is not None and not wait:
        raise click.UsageError("--wait-timeout needs --wait")


def waited(job: Job[Any], timeout: str | None, document: dict[str, Any], *, known: bool = True) -> Shown:
    """Wait for the job. Show its result only if its task is ``known`` here: only the task knows what is secret."""
    click.echo(str(job.id), err=True)
    try:
        value = job.result(timeout)
    except (JobDead, JobCancelled, ResultTimeout) as error:
        complain(error)
        return Shown({**document, "state": job.info().state, "result": None}, [], NO)
    shown = as_json(value) if known else None
    return Shown({**document, "state": job.info().state, "result": shown}, [compact(shown)] if known else [])


# ---- arguments -------------------------------------------------------------------------------------


def read_arguments(words: Sequence[str], texts: frozenset[int] = frozenset()) -> tuple[list[Any], dict[str, Any]]:
    """Values by position and by name: ``name=value`` where the name could be one of Python's.

    Words at the positions in ``texts`` are plain text.
    """
    args, kwargs = [], {}
    for n, word in enumerate(words):
        read = str if n in texts else read_value
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            args.append(read(word))
        elif name in kwargs:
            raise click.UsageError(f"argument {name!r} is given twice")
        else:
            kwargs[name] = read(text)
    return args, kwargs


# ---- the task -------------------------------------------------------------------------------------


def name_of(app: Mainspring, task: str, *, unknown: bool | None = None) -> str:
    """The full name of a known task. An unknown name is an error, because it is most likely misspelt.

    ``unknown`` is the flag ``--unknown`` of the command; None: the command does not have this flag.
    """
    app.import_included()
    names = sorted(app.tasks)
    if unknown or task in names:
        return task
    near = [name for name in names if name.endswith((f".{task}", f":{task}"))]
    if len(near) == 1:
        return near[0]
    if near:
        raise UnknownTask(task, hint=f"Several tasks end with this name: {', '.join(near)}.")
    hint = f"Known tasks: {', '.join(names) or 'none'}."
    if unknown is not None:
        hint += " If workers of another app run this task, add --unknown."
    raise UnknownTask(task, names, hint=hint)


def call_of(app: Mainspring, task: str, words: Sequence[str]) -> Call[Any]:
    """Build the call. ``42`` looks like JSON; if the task wants text, the word is passed as text."""
    texts: frozenset[int] = frozenset()
    found = _tried(app, task, words, texts)
    for n in range(len(words)):
        if not isinstance(found, WrongArgument):
            return found
        other = _tried(app, task, words, texts | {n})
        if not isinstance(other, WrongArgument) or _comes_after(app, task, other.argument, found.argument):
            found, texts = other, texts | {n}
    if isinstance(found, WrongArgument):
        raise found
    return found


def _comes_after(app: Mainspring, task: str, one: str, other: str) -> bool:
    """Whether an argument is checked after another one, which is then correct, like all before it."""
    known = app.tasks.find(task)
    names = [] if known is None else [*inspect.signature(known.fn).parameters]
    return one in names and other in names and names.index(one) > names.index(other)


def _tried(app: Mainspring, task: str, words: Sequence[str], texts: frozenset[int]) -> Call[Any] | WrongArgument:
    """Try a call. A type that JSON does not have (datetime, UUID) is decoded from text, as a worker does it."""
    from mainspring.codec import dumps_call

    args, kwargs = read_arguments(words, texts)
    try:
        return app.call(task, *args, **kwargs)
    except WrongArgument as refused:
        if (known := app.tasks.find(task)) is None:
            return refused
        try:
            typed, named = known.spec().signature.decode_call(dumps_call(task, tuple(args), kwargs))
            return app.call(task, *typed, **named)
        except (Undecodable, WrongArgument):
            return refused
