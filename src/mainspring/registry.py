"""The tasks of an app, by every name a job may carry."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mainspring.errors import InvalidOption

if TYPE_CHECKING:
    from mainspring.spec import TaskSpec
    from mainspring.task import BaseTask


class Registry:
    """Names to tasks. Included modules are imported once, on first need, never when the app is made."""

    def __init__(self, include: Sequence[str] = ()) -> None:
        if isinstance(include, str):
            raise InvalidOption("include", include, "is a list of module names", hint=f'Write include=["{include}"].')
        self._include = list(include)
        self._by_name: dict[str, BaseTask[Any, Any]] = {}
        self._lock = threading.RLock()

    def add(self, task: BaseTask[Any, Any]) -> None:
        """Register under the task's name and aliases; a name that is taken by another function is refused."""
        for name in (task.name, *task.aliases):
            other = self._by_name.get(name)
            if other is not None and not _same_source(other, task):
                raise InvalidOption(
                    "name",
                    name,
                    f"is already the name of {_where(other)}",
                    subject=f"task {_where(task)}",
                    hint="Give one of them another name with @app.task(name=...).",
                )
            self._by_name[name] = task

    def find(self, name: str) -> BaseTask[Any, Any] | None:
        """The task of that name or alias, after the included modules were imported."""
        if name not in self._by_name:
            self.import_included()
        return self._by_name.get(name)

    def import_included(self) -> None:
        with self._lock:
            while self._include:
                import_module(self._include[0])
                self._include.pop(0)

    def specs(self) -> Mapping[str, TaskSpec]:
        """What a worker must know of every task, by name and alias."""
        self.import_included()
        return {name: task.spec() for name, task in self._by_name.items()}

    def queues(self) -> tuple[str, ...]:
        """The queues that the tasks use by default, sorted; ``default`` if there is no task."""
        return tuple(sorted({task.queue for task in self._by_name.values()})) or ("default",)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def _same_source(one: BaseTask[Any, Any], other: BaseTask[Any, Any]) -> bool:
    """The same function declared again: a module that was run twice (reload, notebook cell, __main__)."""
    return (one.fn.__module__, one.fn.__qualname__) == (other.fn.__module__, other.fn.__qualname__)


def _where(task: BaseTask[Any, Any]) -> str:
    return f"{task.fn.__module__}.{task.fn.__qualname__}"
