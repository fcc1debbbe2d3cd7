"""Routes: the queues of tasks, in one table for a whole app."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any

from mainspring.errors import InvalidOption
from mainspring.options import checks

_WILD = frozenset("*?[")


class Routes:
    """Names and patterns of tasks, each with a queue.

    A name has priority over a pattern, a longer pattern over a shorter one, and the first of equal ones. A task without
    a route keeps its own queue. ``task.options(queue=...)`` has priority over all routes.

    >>> routes = Routes({"shop.*": "shop", "shop.mail.*": "mail", "shop.mail.urgent": "now"})
    >>> [routes.queue_for(task, "default") for task in ("shop.pay", "shop.mail.send", "shop.mail.urgent", "other")]
    ['shop', 'mail', 'now', 'default']
    """

    __slots__ = ("_exact", "_patterns", "table")

    def __init__(self, table: Mapping[str, str] | None = None) -> None:
        self.table = _checked({} if table is None else table)
        patterns = [line for line in self.table.items() if not _WILD.isdisjoint(line[0])]
        self._patterns = sorted(patterns, key=lambda line: -len(line[0]))
        self._exact = {task: queue for task, queue in self.table.items() if _WILD.isdisjoint(task)}

    def queue_for(self, task: str, default: str) -> str:
        """The queue of this task; ``default`` is the queue of its declaration."""
        found = self._exact.get(task)
        if found is not None:
            return found
        return next((queue for pattern, queue in self._patterns if fnmatchcase(task, pattern)), default)

    def without_task(self, known: Collection[str]) -> list[str]:
        """The names and patterns of the table that match none of the ``known`` tasks."""
        return [wanted for wanted in self.table if not any(fnmatchcase(task, wanted) for task in known)]

    @property
    def queues(self) -> tuple[str, ...]:
        """Every queue that the table names, sorted."""
        return tuple(sorted(set(self.table.values())))

    def __bool__(self) -> bool:
        return bool(self.table)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Routes) and list(self.table.items()) == list(other.table.items())

    __hash__ = None  # type: ignore[assignment]  # only compared, never looked up

    def __repr__(self) -> str:
        return f"Routes({self.table!r})"


def _checked(table: Any) -> dict[str, str]:
    if not isinstance(table, Mapping):
        raise InvalidOption("routes", table, "must map tasks to queues", hint='routes={"shop.mail.*": "mail"}')
    for task in table:
        if not isinstance(task, str) or not task.strip():
            raise InvalidOption("routes", task, "is not the name or pattern of a task", hint='Example: "shop.mail.*".')
    return {task: checks.queue_name(queue, f"routes[{task!r}]") for task, queue in table.items()}
