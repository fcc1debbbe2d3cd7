"""Queue: what ``app.queue(...)`` declares. A handle with a name and options; it looks nothing up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from mainspring.errors import InvalidOption


class Queue(msgspec.Struct, frozen=True):
    """A named line that jobs wait in; may stand for its name in ``queue=``.

    >>> Queue("premium", {"weight": 5})
    Queue('premium', weight=5)
    """

    name: str
    options: Mapping[str, Any]
    """In normal form."""

    def __repr__(self) -> str:
        told = "".join(f", {name}={value!r}" for name, value in self.options.items() if value is not None)
        return f"Queue({self.name!r}{told})"

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


class DeclaredQueues:
    """The queues that an app declares, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Queue] = {}

    def add(self, queue: Queue) -> Queue:
        """Keep it; the same declaration may come again, another of that name is refused."""
        known = self._by_name.setdefault(queue.name, queue)
        if known != queue:
            raise InvalidOption(
                "queue", queue.name, f"is already declared as {known!r}", subject=f"queue {queue.name!r}",
                hint="Declare a queue once and pass what app.queue(...) returned.",
            )  # fmt: skip
        return known

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each queue that does not have that of all others."""
        found = {name: queue.options["weight"] for name, queue in self._by_name.items()}
        return {name: weight for name, weight in found.items() if weight != 1}

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)
