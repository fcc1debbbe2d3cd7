"""``mainspring explain``: every effective option of a task with its origin."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import click

from mainspring.cli.common import answers, on_code
from mainspring.cli.completion import task_names
from mainspring.cli.jobs.enqueue import name_of
from mainspring.cli.output import FactList, Shown, Table
from mainspring.cli.root import Command
from mainspring.cli.text import short
from mainspring.common.duration import format_duration
from mainspring.common.redact import HIDDEN, looks_secret, redact
from mainspring.options.table import options_for
from mainspring.tasks.spec import find_bad_signatures

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.options.table import Option
    from mainspring.tasks.task import BaseTask


@click.command(cls=Command)
@click.argument("task", shell_complete=task_names)
@on_code
@answers
def explain(app: Mainspring, task: str) -> Shown:
    """Show every effective option of TASK and its origin. The origin is a default, @task, or a route."""
    found = app.tasks.find(name_of(app, task))
    assert found is not None
    facts = {
        "task": found.name,
        "signature": _signature(found),
        "runs": {"async": "on the event loop", "thread": "in a thread", "process": "in a child process"}[
            found.declared.kind
        ],
        "declared": _place(found),
        "queue": found.queue,
        "aliases": list(found.aliases),
        "problem": next((error.message for error in find_bad_signatures([found.spec()])), None),
    }
    table = [*options_for("task"), *(options_for("bulk") if found.declared.bulk is not None else ())]
    rows = [_row(found, option) for option in table if option.name not in ("name", "aliases")]
    document = {**facts, "options": {name: {"value": value, "origin": origin} for name, value, origin in rows}}
    facts_block = FactList(
        [(name, ", ".join(value) if isinstance(value, list) else value) for name, value in facts.items() if value]
    )
    return Shown(document, [facts_block, Table(("option", "value", "origin"), rows, title="options")])


def _row(task: BaseTask[Any, Any], option: Option) -> tuple[str, str, str]:
    value = task.declared.options[option.name]
    given = option.name in task.declared.given
    if option.name == "queue" and task.queue != value:
        return "queue", task.queue, f"route of the app (the task declares {value})"
    return option.name, _value(option, value, given=given), "@task" if given else "default"


def _value(option: Option, value: Any, *, given: bool) -> str:
    """The value of an option as users write it."""
    if not given and option.shown_default:
        return option.shown_default
    if value is None:
        return "none"
    if option.type.startswith("Duration") and isinstance(value, int):
        return format_duration(value / 1_000_000)
    if isinstance(value, tuple | list | frozenset):
        return ", ".join(getattr(each, "__name__", None) or str(each) for each in value) or "none"
    if callable(value) and not isinstance(value, type):
        return str(getattr(value, "name", None) or getattr(value, "__qualname__", value))
    return short(redact(str(value)))


def _signature(task: BaseTask[Any, Any]) -> str:
    try:
        signature = inspect.signature(task.fn, eval_str=True)
    except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything; show its source instead
        signature = inspect.signature(task.fn)
    hidden = task.spec().hide
    shown = [
        each if each.default is each.empty else each.replace(default=_Default(each, hidden))
        for each in signature.parameters.values()
    ]
    return f"{task.fn.__name__}{signature.replace(parameters=shown)}"


class _Default:
    """The ``repr`` of a parameter's default, with secrets hidden."""

    def __init__(self, parameter: inspect.Parameter, hidden: Collection[str]) -> None:
        secret = parameter.name in hidden or looks_secret(parameter.name)
        self._text = HIDDEN if secret else redact(repr(parameter.default))

    def __repr__(self) -> str:
        return self._text


def _place(task: BaseTask[Any, Any]) -> str:
    code = getattr(inspect.unwrap(task.fn), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else task.fn.__module__
