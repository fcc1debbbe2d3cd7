"""Where tasks are declared: on an app, or on a ``Tasks()`` that apps include."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from mainspring.declaring import Home
from mainspring.task import AsyncTask, BaseTask, Task, declare

if TYPE_CHECKING:
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.duration import Duration
    from mainspring.options import By, TaskOptions
    from mainspring.worker.context import AsyncContext, Context

P = ParamSpec("P")
A = TypeVar("A")
R = TypeVar("R")


class TaskDecorator(Protocol):
    """What ``@app.task(...)`` with options is."""

    # A coroutine function is a function that returns a coroutine: the overloads overlap and the first wins, as meant.
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
    """What ``@app.bulk_task(...)`` is."""

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


class Declaring:
    """What has ``@x.task`` and ``@x.bulk_task``."""

    @overload
    def task(  # type: ignore[overload-overlap]  # as in TaskDecorator
        self, fn: Callable[Concatenate[AsyncContext, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(  # type: ignore[overload-overlap]  # as in TaskDecorator
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, **o: Unpack[TaskOptions]) -> TaskDecorator: ...
    def task(self, fn: Any = None, **o: Any) -> Any:
        """Make a function a task: ``@app.task`` or ``@app.task(queue="email", retries=3)``.

        ``async def`` runs on the worker's event loop, ``def`` in a thread. A first parameter that is
        annotated ``Context`` or ``AsyncContext`` gets the context of the job and is no argument of it.
        """
        return self._declare(fn, o) if fn is not None else lambda fn: self._declare(fn, o)

    def bulk_task(
        self, *, size: int = 100, wait: Duration = "50ms", by: By = None, **o: Unpack[TaskOptions]
    ) -> BulkDecorator:
        """Make a function that works on many items at once a task: ``@app.bulk_task(size=100, wait="50ms")``.

        Each job has one item. A worker gathers up to ``size`` of them, at most ``wait`` from the first on,
        and calls the function once with the list; it returns one outcome for each item, in order: the
        job's result, or the exception that the job failed with.
        """
        gather = {"size": size, "wait": wait, "by": by}
        made: Any = lambda fn: self._declare(fn, dict(o), gather)  # noqa: E731 - of many overloads
        decorator: BulkDecorator = made
        return decorator

    def _declare(
        self, fn: Callable[..., Any], given: dict[str, Any], gather: Mapping[str, Any] | None = None
    ) -> BaseTask[Any, Any]:
        raise NotImplementedError


class Tasks(Declaring):
    """Tasks of a library or a module, declared without an app: ``app.include(tasks)`` makes them the app's.

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
        self._declared: list[BaseTask[Any, Any]] = []
        self._apps: list[Mainspring] = []

    def join(self, app: Mainspring) -> None:
        """Make these tasks the app's, and those declared later too. Again after a test that undid it."""
        for task in self._declared:
            app.tasks.add(task.join(app))
        if app not in self._apps:
            self._apps.append(app)

    def __iter__(self) -> Iterator[BaseTask[Any, Any]]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __repr__(self) -> str:
        return f"<Tasks: {', '.join(task.name for task in self._declared) or 'none yet'}>"

    def _declare(
        self, fn: Callable[..., Any], given: dict[str, Any], gather: Mapping[str, Any] | None = None
    ) -> BaseTask[Any, Any]:
        task = declare(Home(), fn, given, gather)
        self._declared.append(task)
        for app in self._apps:
            app.tasks.add(task.join(app))
        return task
