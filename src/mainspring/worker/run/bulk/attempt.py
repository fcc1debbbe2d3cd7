"""One call of a bulk task: the attempts of several jobs that share a slot.

Pools, time limits and the drain of a worker treat the call like any other attempt. Each item gets its own ack, by the
retry policy of its own job.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mainspring.common.clock import boottime
from mainspring.worker.run.attempt import RunningAttempt

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack


class BulkAttempt(RunningAttempt):
    """``items`` are the attempts that the call runs; ``settled`` are the ended attempts, each with its ack."""

    __slots__ = ("items", "settled")

    is_bulk = True

    def __init__(self, items: Sequence[RunningAttempt]) -> None:
        first = items[0]
        super().__init__(first.claim, first.spec, first.lease, boottime(), first.environment)
        self.items = list(items)
        self.settled: list[tuple[RunningAttempt, Ack]] = []
        self.early = any(each.early for each in items)
        self.limited = any(each.limited for each in items)
        self.takes_capacity = any(each.takes_capacity for each in items)

    @property
    def jobs(self) -> Sequence[RunningAttempt]:
        """The attempts that end together with the call."""
        return self.items

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts to hide for every item: an error of the call is stored with each of its jobs."""
        return tuple(text for item in self.items for text in item.secrets)

    @property
    def log_fields(self) -> dict[str, Any]:
        """The fields of log records about the call. They name a job only if the call has one item."""
        if len(self.items) == 1:
            return self.items[0].log_fields
        claim, worker = self.claim, self.environment.worker
        return {"task": claim.task, "queue": claim.queue, "worker": worker, "jobs": len(self.items)}

    def settle(self, item: RunningAttempt, ack: Ack) -> Ack:
        """The item has ended with ``ack``."""
        item.finished = True
        self.settled.append((item, ack))
        return ack

    def __repr__(self) -> str:
        return f"<BulkAttempt of {len(self.items)} x {self.claim.task}>"
