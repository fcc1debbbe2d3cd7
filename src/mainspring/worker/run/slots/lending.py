"""Lends the slots of bodies that wait for another job: otherwise parents could fill every slot that a child needs.

A body that calls ``job.result()`` or ``job.join()`` (or awaits the async version) only waits. Its pool gets one slot
more until the wait ends, and its queue does not count the body against ``concurrency=``. When the wait ends, the body
goes on at once; until the next body ends, the pool runs one body more than it has slots. So a worker runs at most as
many further bodies as have just stopped waiting, and never more than ``LENT_MAX``.

A waiting body keeps its capacity in limits, its locks and its unique key. A child that needs a limit of size 1 that its
parent holds would wait for ever: that is an error.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from mainspring.errors import WouldDeadlock
from mainspring.jobs.lanes import bucket_labels_in, limit_label
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.jobs.records import JobRow
    from mainspring.limits.records import Limit
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.slots.base import SlotPool

log = logging.getLogger("mainspring.worker")

LENT_MAX = 256
"""Most bodies of a worker that wait for other jobs at the same time."""


class SlotLender:
    """Belongs to one worker. ``limits`` are the limits of queues. ``on_lent`` and ``on_returned`` get the queue of each
    waiting job, on the loop."""

    def __init__(
        self,
        pools: Mapping[str, SlotPool],
        limits: Iterable[Limit],
        *,
        on_lent: Callable[[str], None],
        on_returned: Callable[[str], None],
    ) -> None:
        self._pools = pools
        self._limits = tuple(limits)
        self._on_lent = on_lent
        self._on_returned = on_returned
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waits: dict[RunningAttempt, int] = {}
        self._lent: set[RunningAttempt] = set()
        self._logged: set[str] = set()

    def shared_limits(self, attempt: RunningAttempt, job: JobRow) -> set[str]:
        """The names of the concurrency limits that ``job`` needs and the body of ``attempt`` holds. Any thread."""
        return find_shared_limits(attempt, job, (*self._limits, *attempt.spec.limits))

    def begin_wait(self, attempt: RunningAttempt, job: JobRow, narrow: Iterable[str] = ()) -> None:
        """The body of ``attempt`` begins to wait for ``job``. Any thread. Raises ``WouldDeadlock``.

        ``narrow``: the shared limits whose size is 1 in the store.
        """
        refuse_deadlock(attempt, job, narrow)
        with self._lock:
            waits = self._waits.get(attempt, 0)
            if not waits and len(self._waits) >= LENT_MAX:
                raise WouldDeadlock(
                    f"{LENT_MAX} jobs of this worker wait for other jobs already",
                    hint="Spawn the jobs with ctx.spawn(...), and raise Snooze(...) until they have ended.",
                )
            self._waits[attempt] = waits + 1
        if not waits:
            self._log_once(attempt)
            self._call(self.lend, attempt)

    def end_wait(self, attempt: RunningAttempt) -> None:
        """The wait is over. Any thread."""
        with self._lock:
            self._waits[attempt] -= 1
            if self._waits[attempt]:
                return
            del self._waits[attempt]
        self._call(self.take_back, attempt)

    def _call(self, act: Callable[[RunningAttempt], None], attempt: RunningAttempt) -> None:
        try:
            self._loop.call_soon_threadsafe(act, attempt)
        except RuntimeError:  # the loop is closed: the body outlived its worker
            return

    def lend(self, attempt: RunningAttempt) -> None:
        """The body only waits: its pool gets one slot more. On the loop."""
        if not self._pools[attempt.spec.slots].add_slot():
            return  # thousands of items of bulk calls run: the body waits in its own slot
        self._lent.add(attempt)
        for each in attempt.jobs:
            self._on_lent(each.claim.queue)

    def take_back(self, attempt: RunningAttempt) -> None:
        """The body goes on. On the loop."""
        if attempt not in self._lent:
            return
        self._lent.discard(attempt)
        self._pools[attempt.spec.slots].remove_slot()
        for each in attempt.jobs:
            self._on_returned(each.claim.queue)

    def _log_once(self, attempt: RunningAttempt) -> None:
        if attempt.spec.name in self._logged:
            return
        self._logged.add(attempt.spec.name)
        log.warning(
            "task %r waits for another job inside its body; meanwhile its slot runs other jobs.\n"
            "  Better let a flow wait: group(child.s(1), child.s(2)) | after. "
            "ctx.spawn(...) starts a child without waiting.",
            attempt.spec.name,
        )


def find_shared_limits(attempt: RunningAttempt, job: JobRow, limits: Iterable[Limit]) -> set[str]:
    """The names of those concurrency limits that ``job`` needs and the body of ``attempt`` holds."""
    if job.state is State.RUNNING or "#" not in attempt.claim.lane:
        return set()
    shared = bucket_labels_in(attempt.claim.lane) & bucket_labels_in(job.lane)
    labels = {label.partition("=")[0] for label in shared}
    return {each.name for each in limits if each.kind == "concurrency" and limit_label(each.name) in labels}


def refuse_deadlock(attempt: RunningAttempt, job: JobRow, narrow: Iterable[str]) -> None:
    """Raise if the job can never end while the body waits for it."""
    if job.id == attempt.claim.id:
        raise WouldDeadlock(
            f"job {UUID(bytes=job.id)} waits for its own end", hint="Return the result instead of reading it."
        )
    for name in narrow:
        raise WouldDeadlock(
            f"job {UUID(bytes=job.id)} needs the limit {name!r} of size 1, which the waiting job holds",
            hint="Wait outside of the limit, let the child run after its parent (on_success=), or give the child "
            "another limit.",
        )
