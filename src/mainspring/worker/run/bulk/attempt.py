"""One call of a bulk task on its way through this worker: the attempts of several jobs that share a slot.

To pools, time limits and the stopping of a worker it is an attempt like any other. What it comes to is
settled for each of its items by that job's own policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mainspring.common.clock import boottime
from mainspring.worker.run.attempt import RunningAttempt

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack


class BulkAttempt(RunningAttempt):
    """``items`` are those that it runs, ``settled`` those that are over, each with its ack."""

    __slots__ = ("items", "settled")

    many = True

    def __init__(self, items: Sequence[RunningAttempt]) -> None:
        first = items[0]
        super().__init__(first.claim, first.spec, first.lease, boottime(), first.home)
        self.items = list(items)
        self.settled: list[tuple[RunningAttempt, Ack]] = []
        self.early = any(each.early for each in items)
        self.limited = any(each.limited for each in items)
        self.short = any(each.short for each in items)

    @property
    def jobs(self) -> Sequence[RunningAttempt]:
        """The attempts that end with it."""
        return self.items

    @property
    def fields(self) -> dict[str, Any]:
        """What a log record says of the call: it is nobody's own, unless there is but one item."""
        if len(self.items) == 1:
            return self.items[0].fields
        return {"task": self.claim.task, "queue": self.claim.queue, "worker": self.home.worker, "jobs": len(self.items)}

    def settle(self, item: RunningAttempt, ack: Ack) -> Ack:
        """This item is over."""
        item.over = True
        self.settled.append((item, ack))
        return ack

    def __repr__(self) -> str:
        return f"<BulkAttempt of {len(self.items)} x {self.claim.task}>"
