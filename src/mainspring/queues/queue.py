"""Queue: what ``app.queue(...)`` declares: a name and options. It does no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.errors import InvalidOption
from mainspring.limits.declare import BoundLimit, bind
from mainspring.limits.records import Limit
from mainspring.queues.records import QueueSettings

if TYPE_CHECKING:
    from mainspring.jobs.records import JobBatch

PLAIN: Mapping[str, Any] = {"weight": 1, "max_depth": None, "on_full": "error", "order": "fifo", "limit": ()}
"""The options of a queue that is not declared."""

_NAMING_QUEUES = {"queue", "queues", "concurrency", "routes"}
"""The options and settings whose value names queues."""


class Queue(msgspec.Struct, frozen=True):
    """A declared queue. It can be passed as ``queue=`` instead of its name.

    >>> Queue("premium", {"weight": 5})
    Queue('premium', weight=5)
    """

    name: str
    options: Mapping[str, Any]
    """The options in normal form."""

    @property
    def bounds(self) -> tuple[BoundLimit, ...]:
        """The limits of the queue, with the names that they have in the store."""
        return bind(f"queue/{self.name}", self.options.get("limit", ()), f"queue {self.name!r}")

    @property
    def settings(self) -> QueueSettings:
        """The settings that the store keeps for the queue."""
        given = {**PLAIN, **self.options}
        limits = tuple((limit.name, cost) for limit, _, cost in self.bounds if isinstance(cost, int))
        return QueueSettings(
            max_depth=given["max_depth"] or msgspec.UNSET,
            on_full=msgspec.UNSET if given["on_full"] == PLAIN["on_full"] else given["on_full"],
            order=msgspec.UNSET if given["order"] == PLAIN["order"] else given["order"],
            limits=limits or msgspec.UNSET,
        )

    def check(self) -> None:
        """Raise ``InvalidOption`` for options that cannot be combined."""
        subject = f"queue {self.name!r}"
        if self.options.get("on_full", "error") != "error" and self.options.get("max_depth") is None:
            hint = 'app.queue("mail", max_depth=10_000, on_full="wait")'
            raise InvalidOption("on_full", self.options["on_full"], "needs max_depth", subject=subject, hint=hint)
        for limit, by, cost in self.bounds:
            if by is not None or not isinstance(cost, int):
                hint = "A queue has jobs of different tasks. Set this limit on the tasks: @app.task(limit=...)."
                what = "by" if by is not None else "cost"
                why = f"has {what}=, which needs the arguments of one task: {limit.name}"
                raise InvalidOption("limit", by if by is not None else cost, why, subject=subject, hint=hint)

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.options.items() if value != PLAIN.get(name))
        return f"Queue({self.name!r}{given})"

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


def queue_objects(given: Mapping[str, Any]) -> list[tuple[str, Queue]]:
    """The queue objects that were given as options instead of their names, each with the name of the option."""
    if not _NAMING_QUEUES & given.keys():  # most calls
        return []
    found: list[tuple[str, Any]] = [("queue", given.get("queue"))]
    for name in ("queues", "concurrency"):  # names in a collection, or as the keys of a mapping
        value = given.get(name)
        found += [(name, each) for each in value] if isinstance(value, Collection) else []
    routes = given.get("routes")
    found += [("routes", each) for each in routes.values()] if isinstance(routes, Mapping) else []
    return [(name, value) for name, value in found if isinstance(value, Queue)]


class DeclaredQueues:
    """The queues that an app declares, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Queue] = {}
        self._stored: dict[str, tuple[QueueSettings, tuple[Limit, ...]]] = {}
        """The queues with settings that the store must know."""

    def add(self, queue: Queue) -> Queue:
        """Add a queue. The same declaration may be repeated; another declaration of that name is refused."""
        queue.check()
        known = self._by_name.setdefault(queue.name, queue)
        if known != queue:
            raise InvalidOption(
                "queue", queue.name, f"is already declared as {known!r}", subject=f"queue {queue.name!r}",
                hint="Declare a queue once, and pass the object that app.queue(...) returned.",
            )  # fmt: skip
        if settings := queue.settings:
            self._stored[queue.name] = settings, tuple(limit for limit, _, _ in queue.bounds)
        return known

    def check_own(self, given: Mapping[str, Any], subject: str) -> None:
        """Refuse a queue object that another app declares: its options would be lost here.

        ``given`` has the options as the user wrote them; ``subject`` is named in the error, such as ``task 'send'``.
        """
        for name, queue in queue_objects(given):
            if self._by_name.get(queue.name) != queue:
                raise InvalidOption(
                    name, queue, "is the queue of another app, whose options this app does not have", subject=subject,
                    hint=f"First declare it in this app too, app.queue({queue.name!r}, ...), or give its name.",
                )  # fmt: skip

    def add_settings(self, batch: JobBatch) -> JobBatch:
        """Return the batch with the settings and limits of its queues, for a store that does not know them yet."""
        if not self._stored:
            return batch
        names = dict.fromkeys(job.queue for job in batch.jobs if job.queue in self._stored)
        if not names:
            return batch
        limits = {limit.name: limit for name in names for limit in self._stored[name][1]}
        limits |= {limit.name: limit for limit in batch.limits}
        queues = tuple((name, self._stored[name][0]) for name in names)
        return msgspec.structs.replace(batch, queues=queues, limits=tuple(limits.values()))

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each queue whose weight is not 1."""
        found = {name: queue.options["weight"] for name, queue in self._by_name.items()}
        return {name: weight for name, weight in found.items() if weight != 1}

    @property
    def settings(self) -> dict[str, QueueSettings]:
        """The settings of each declared queue, also if they are empty."""
        return {name: queue.settings for name, queue in self._by_name.items()}

    @property
    def limits(self) -> tuple[Limit, ...]:
        """The limits that the jobs of these queues name."""
        return tuple(limit for _, limits in self._stored.values() for limit in limits)

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)
