"""``@app.task``, ``@app.bulk_task`` and ``@app.schedule``, which an app and a ``Tasks()`` share.

The three functions are methods of both classes: each class names them in its body, so ``help(Mainspring)`` shows them
and a subclass can override them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption
from mainspring.tasks.declaration import TaskHome
from mainspring.tasks.registry import remember_begun
from mainspring.tasks.task import AsyncTask, BaseTask, Task, declare

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration
    from mainspring.jobs.call import Call
    from mainspring.options.typed import By, ScheduleOptions, TaskOptions
    from mainspring.schedules.declare import Declaration
    from mainspring.worker.run.context import AsyncContext, Context

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """The decorator that ``@app.task(...)`` with options returns."""

    # A coroutine function is also a function that returns a coroutine: the overloads overlap, and the first one wins.
    @overload
    def __call__(  # type: ignore[overload-overlap]  # see above
        self, fn: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # see above
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class BulkDecorator(Protocol):
    """The decorator that ``@app.bulk_task(...)`` returns."""

    @overload
    def __call__(
        self, fn: Callable[[AsyncContext, list[A]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> AsyncTask[[A], R]: ...
    @overload
    def __call__(
        self, fn: Callable[[list[A]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> AsyncTask[[A], R]: ...
    @overload
    def __call__(self, fn: Callable[[Context, list[A]], Sequence[R | Exception]], /) -> Task[[A], R]: ...
    @overload
    def __call__(self, fn: Callable[[list[A]], Sequence[R | Exception]], /) -> Task[[A], R]: ...


class NeedsNothing(Protocol):
    """A task that can be called without arguments."""

    @property
    def name(self) -> str: ...

    def s(self, /) -> Call[Any]: ...


N = TypeVar("N", bound=NeedsNothing)
T = TypeVar("T", bound=BaseTask[Any, Any])


class ScheduleDecorator(Protocol):
    """The decorator that ``@app.schedule(...)`` returns, for a task without required arguments or a function."""

    @overload
    def __call__(self, fn: N, /) -> N: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # as in TaskDecorator
        self, fn: Callable[[AsyncContext], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[[], R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # as in TaskDecorator
        self, fn: Callable[[], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[[], R]: ...
    @overload
    def __call__(self, fn: Callable[[Context], R], /) -> Task[[], R]: ...
    @overload
    def __call__(self, fn: Callable[[], R], /) -> Task[[], R]: ...


class CallScheduled(Protocol):
    """The optional decorator of ``app.schedule(..., call=...)``, for the task of the call."""

    def __call__(self, fn: T, /) -> T: ...


class TaskOwner(Protocol):
    """An app or a ``Tasks()``: ``task``, ``bulk_task`` and ``schedule`` below are methods of both."""

    def _task_home(self) -> TaskHome:
        """The home of a new task."""
        ...

    def _add_task(self, task: BaseTask[Any, Any], /) -> None: ...

    def _expect_schedule(self, began: object, what: str | None, /) -> None: ...

    def _add_schedule(self, declared: Declaration, /) -> None: ...


@overload
def task(  # type: ignore[overload-overlap]  # as in TaskDecorator
    self: TaskOwner, fn: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /
) -> AsyncTask[P, R]: ...
@overload
def task(  # type: ignore[overload-overlap]  # as in TaskDecorator
    self: TaskOwner, fn: Callable[P, Coroutine[Any, Any, R]], /
) -> AsyncTask[P, R]: ...
@overload
def task(self: TaskOwner, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
@overload
def task(self: TaskOwner, fn: Callable[P, R], /) -> Task[P, R]: ...
@overload
def task(self: TaskOwner, **o: Unpack[TaskOptions]) -> TaskDecorator: ...
def task(self: TaskOwner, fn: Any = None, **o: Any) -> Any:
    """Make a function a task: ``@app.task`` or ``@app.task(queue="email", retries=3)``.

    ``async def`` runs on the worker's event loop, ``def`` in a thread. A first parameter that is annotated with
    ``Context`` or ``AsyncContext`` gets the context of the job and is not an argument of the job.
    """
    return _declare(self, fn, o) if fn is not None else lambda fn: _declare(self, fn, o)


@overload
def bulk_task(
    self: TaskOwner, fn: Callable[[AsyncContext, list[A]], Coroutine[Any, Any, Sequence[R | Exception]]], /
) -> AsyncTask[[A], R]: ...
@overload
def bulk_task(
    self: TaskOwner, fn: Callable[[list[A]], Coroutine[Any, Any, Sequence[R | Exception]]], /
) -> AsyncTask[[A], R]: ...
@overload
def bulk_task(self: TaskOwner, fn: Callable[[Context, list[A]], Sequence[R | Exception]], /) -> Task[[A], R]: ...
@overload
def bulk_task(self: TaskOwner, fn: Callable[[list[A]], Sequence[R | Exception]], /) -> Task[[A], R]: ...
@overload
def bulk_task(
    self: TaskOwner, *, size: int = 100, wait: Duration = "50ms", by: By = None, **o: Unpack[TaskOptions]
) -> BulkDecorator: ...
def bulk_task(
    self: TaskOwner, fn: Any = None, *, size: int = 100, wait: Duration = "50ms", by: By = None, **o: Any
) -> Any:
    """Make a function that handles many items at once a task: ``@app.bulk_task`` or ``@app.bulk_task(size=100)``.

    Each job has one item. A worker collects up to ``size`` items, for at most ``wait`` after the first item, and
    calls the function once with the list. The function returns one outcome for each item, in the same order: the
    result of the job, or the exception that the job fails with.
    """
    gather = {"size": size, "wait": wait, "by": by}
    return _declare(self, fn, o, gather) if fn is not None else lambda fn: _declare(self, fn, o, gather)


@overload
def schedule(
    self: TaskOwner, name: str | None = None, *, cron: str | None = None, every: Duration | None = None,
    at: datetime | None = None, after: Duration | None = None, call: None = None, **o: Unpack[ScheduleOptions],
) -> ScheduleDecorator: ...  # fmt: skip
@overload
def schedule(
    self: TaskOwner, name: str | None = None, *, cron: str | None = None, every: Duration | None = None,
    at: datetime | None = None, after: Duration | None = None, call: Call[Any], **o: Unpack[ScheduleOptions],
) -> CallScheduled: ...  # fmt: skip
def schedule(
    self: TaskOwner, name: str | None = None, *, cron: str | None = None, every: Duration | None = None,
    at: datetime | None = None, after: Duration | None = None, call: Call[Any] | None = None, **o: Any,
) -> Any:  # fmt: skip
    """Run a task on a schedule: ``@app.schedule(cron="0 3 * * *", tz="Europe/Kyiv")`` on a task or a function.

    The name of the schedule is the name of the task, unless one is given. A task may have several schedules with
    different names. With ``call=report.s("eu")`` the schedule is declared at once, with arguments, and needs no
    function under it. Workers store the schedule when they start. If it is the only schedule of its task, its
    ``blocks`` and ``group`` hold for every job of the task, also for jobs enqueued by hand. ``depends_on`` holds for
    the runs of the schedule only.
    """
    when = {"cron": cron, "every": every, "at": at, "after": after}
    if name is not None and not isinstance(name, str):
        hint = 'Write @app.schedule(every="1h"), with parentheses.'
        raise InvalidOption("schedule", name, "is not the name of a schedule", hint=hint)
    if call is not None:
        return _schedule_call(self, name, call, when, o)

    began = object()
    self._expect_schedule(began, _describe_begun(name, when))

    def decorate(fn: Any) -> Any:
        self._expect_schedule(began, None)
        task = fn if isinstance(fn, BaseTask) else _declare(self, fn, {})
        self._add_schedule(_declaration(name, task, when, o))
        return task

    return decorate


def _describe_begun(name: str | None, when: Mapping[str, Any]) -> str:
    """How the user wrote a schedule, and where, for the message that it declares nothing."""
    shown = [repr(name)] if name is not None else []
    shown += [f"{word}={value!r}" for word, value in when.items() if value is not None]
    caller = sys._getframe(2)  # noqa: SLF001  # the line that calls app.schedule
    return f"schedule({', '.join(shown)}) at {caller.f_code.co_filename}:{caller.f_lineno}"


def _schedule_call(
    self: TaskOwner, name: str | None, call: Call[Any], when: Mapping[str, Any], given: Mapping[str, Any]
) -> Callable[[Any], Any]:
    from mainspring.jobs.call import Call

    if not isinstance(call, Call):
        hint = "A call is task.s(...), with its arguments, or app.call(name, ...)."
        raise InvalidOption("call", call, "is not a call", subject="schedule", hint=hint)
    self._add_schedule(_declaration(name, call, when, given))

    def decorate(fn: Any) -> Any:
        if not isinstance(fn, BaseTask) or fn.name != call.task:
            hint = "The call already declares the schedule: leave the decorator out."
            raise InvalidOption("call", call, "is not a call of the decorated task", subject="schedule", hint=hint)
        return fn

    return decorate


def _declare(
    self: TaskOwner, fn: Callable[..., Any], given: Mapping[str, Any], gather: Mapping[str, Any] | None = None
) -> BaseTask[Any, Any]:
    home = self._task_home()
    home.use_queue(given, f"task {getattr(fn, '__qualname__', fn)!r}")
    task = declare(home, fn, given, gather)
    self._add_task(task)
    return task


def _declaration(
    name: str | None, on: BaseTask[Any, Any] | Call[Any], when: Mapping[str, Any], given: Mapping[str, Any]
) -> Declaration:
    from mainspring.schedules.declare import Declaration

    return Declaration.of(name, on, when, given)


class Tasks(Reserved):
    """Tasks of a library or a module, declared without an app: ``app.include(tasks)`` makes them tasks of the app.

    >>> from mainspring import Mainspring
    >>> tasks = Tasks()
    >>> @tasks.task(name="shop.send")
    ... def send(to: str) -> str:
    ...     return f"sent to {to}"
    >>> app = Mainspring("sqlite://")
    >>> app.include(tasks)
    >>> app.tasks.find("shop.send")
    <Task shop.send>
    """

    def __init__(self) -> None:
        self._home = TaskHome()
        self._declared: list[BaseTask[Any, Any]] = []
        self._scheduled: list[Declaration] = []
        self._apps: list[Mainspring] = []
        self._begun: dict[object, str] = {}

    task = task
    bulk_task = bulk_task
    schedule = schedule

    def join(self, app: Mainspring) -> None:
        """Add these tasks, and tasks declared later, to the app. May be repeated, after a test that undid it."""
        self._home.join(app)
        for task in self._declared:
            app.tasks.add(task.join(app))
        for schedule in self._scheduled:
            app.tasks.add_schedule(schedule)
        if app not in self._apps:
            self._apps.append(app)
            app.tasks.begun_schedules.append(self._begun)

    def __iter__(self) -> Iterator[BaseTask[Any, Any]]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __repr__(self) -> str:
        return f"<Tasks: {', '.join(task.name for task in self._declared) or 'none yet'}>"

    def _task_home(self) -> TaskHome:
        return self._home

    def _add_task(self, task: BaseTask[Any, Any]) -> None:
        self._declared.append(task)
        for app in self._apps:
            app.tasks.add(task.join(app))

    def _expect_schedule(self, began: object, what: str | None) -> None:
        remember_begun(self._begun, began, what)

    def _add_schedule(self, declared: Declaration) -> None:
        for app in self._apps:
            app.tasks.add_schedule(declared)
        self._scheduled.append(declared)
