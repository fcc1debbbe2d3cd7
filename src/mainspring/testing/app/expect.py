"""Whether a job was enqueued as expected, and the message if it was not."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.codec import dumps, loads
from mainspring.common.handles import without_options
from mainspring.common.redact import redact, spelled
from mainspring.errors import InvalidOption, UnknownArgument, UnknownTask, did_you_mean, shown
from mainspring.jobs.info import JobInfo
from mainspring.jobs.records import JobBody, JobRow
from mainspring.tasks.task import BaseTask

if TYPE_CHECKING:
    from mainspring.app import Mainspring

_MOST_SHOWN = 20
_body_of = msgspec.json.Decoder(JobBody).decode


class Expected:
    """An expected task with expected arguments; arguments that are not named may have any value."""

    def __init__(
        self, app: Mainspring, task: BaseTask[Any, Any] | str | None, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> None:
        self.name = _name_of(app, task)
        known = None if self.name is None else app.tasks.find(self.name)
        self._defaults: dict[str, Any] = {}
        wanted = dict(kwargs)
        if known is not None:
            parameters = _parameters(known)
            wanted = _bound(known.name, parameters, args, kwargs)
            self._defaults = {
                name: _as_stored(each.default) for name, each in parameters.items() if each.default is not each.empty
            }
        elif args:
            wanted["@"] = list(args)
        self._wanted = {name: _as_stored(value) for name, value in wanted.items()}
        self._hidden = () if known is None else known.spec().hide

    def check(self, app: Mainspring, rows: Sequence[JobRow]) -> None:
        """Raise ``UnknownTask`` for a name that neither the app nor a job of the test has: no job could fit it."""
        if self.name is None or self.name in app.settings.routes.table or app.tasks.find(self.name) is not None:
            return
        if self.name not in {row.task for row in rows}:
            hint = f"For a task of another program count its jobs: t.jobs.count(task={self.name!r})."
            raise UnknownTask(self.name, app.tasks, hint=hint)

    def describe_missing(self, app: Mainspring) -> str:
        """The sentence for a job that was not enqueued, with the nearest task if the app has no such task."""
        if self.name is None or app.tasks.find(self.name) is not None:
            return f"{self} was not enqueued."
        return f"{self} was not enqueued, and the app has no such task{did_you_mean(self.name, app.tasks)}."

    def fits(self, row: JobRow) -> bool:
        """Whether this job is as expected."""
        if self.name is not None and row.task != self.name:
            return False
        stored = {**self._defaults, **loads(_body_of(row.record).args, dict[str, Any])}
        return all(name in stored and stored[name] == value for name, value in self._wanted.items())

    def __str__(self) -> str:
        given = redact(spelled(self._wanted, self._hidden))
        return f"{self.name or 'a job'}({given})" if given or self.name else "a job"


def describe(jobs: Sequence[JobInfo]) -> str:
    """The enqueued jobs, one line for each job, without secrets."""
    if not jobs:
        return "Nothing was enqueued."
    lines = [f"  {line(job)}" for job in jobs[:_MOST_SHOWN]]
    if len(jobs) > _MOST_SHOWN:
        lines.append(f"  ... and {len(jobs) - _MOST_SHOWN} more")
    return "\n".join(["Enqueued were:", *lines])


def line(job: JobInfo) -> str:
    """One job in one line: ``shop.send(to='a@b.c')  queue=default  state=ready``."""
    given = ", ".join(f"{name}={shown(value)}" for name, value in job.args.items())
    return f"{job.task}({given})  queue={job.queue}  state={job.state.value}"


def _name_of(app: Mainspring, task: BaseTask[Any, Any] | str | None) -> str | None:
    if task is None or isinstance(task, str):
        found = None if task is None else app.tasks.find(task)
        return task if found is None else found.name
    if isinstance(task, BaseTask):
        if app.tasks.find(task.name) is None:
            raise UnknownTask(task.name, list(app.tasks))
        without_options(task, "task", hint="Compare the options of the returned job: t.assert_enqueued(send).queue.")
        return task.name
    raise InvalidOption("task", task, "is neither a task nor the name of a task", hint="Pass the decorated function.")


def _parameters(task: BaseTask[Any, Any]) -> dict[str, inspect.Parameter]:
    """The parameters that are arguments of the task, by name."""
    declared = task.spec().signature.parameters
    return {name: each for name, each in inspect.signature(task.fn).parameters.items() if name in declared}


def _bound(
    task: str, parameters: Mapping[str, inspect.Parameter], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """The expected arguments by name; an unknown name is an error of the test."""
    names = list(parameters)
    if len(args) > len(names):
        raise UnknownArgument(task, "", names, why=f"has {len(names)} arguments, {len(args)} were expected")
    wanted = {**dict(zip(names, args, strict=False)), **kwargs}
    for name in wanted:
        if name not in parameters:
            raise UnknownArgument(task, name, names)
    return wanted


def _as_stored(value: Any) -> Any:
    """The value as it is read from a stored job."""
    try:
        return loads(dumps(value))
    except Exception:  # noqa: BLE001 - a value that cannot be stored equals no stored value
        return value
