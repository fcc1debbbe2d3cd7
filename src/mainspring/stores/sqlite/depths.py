"""What the settings of queues do to jobs that were just inserted: they count, make others go, or end at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mainspring.jobs.records import NewJob
from mainspring.queues.records import DisabledMode, QueueSettings
from mainspring.states import Reason
from mainspring.stores.shared.depth import dropped_note, queue_full, skipped_note

from .finish import finish_waiting
from .settings import Kept, kept

if TYPE_CHECKING:
    from .tx import Tx


def settle(tx: Tx, jobs: Sequence[NewJob], replaced: Iterable[bytes], *, accepted: bool) -> None:
    """These are new in their queues: they count for the depth of those, or end because those skip them.

    Those that have been replaced are of the batch too: they are not dropped for the others.
    """
    queues = kept(tx)
    for job in jobs:
        if job.queue in queues:
            _count(tx, job, queues[job.queue])
    for name, n in Counter(job.queue for job in jobs if job.queue in queues).items():
        queue = queues[name]
        if queue.settings.max_depth and queue.disabled != DisabledMode.SKIP and not accepted:
            _bound(tx, name, queue.settings, n, {*replaced, *(job.id for job in jobs)})


def _count(tx: Tx, job: NewJob, queue: Kept) -> None:
    if queue.disabled == DisabledMode.SKIP:
        finish_waiting(tx, job.id, Reason.SKIPPED, skipped_note(job.queue, queue.by))
    elif queue.settings.max_depth:
        tx.run("bind", (job.id,))


def _bound(tx: Tx, queue: str, settings: QueueSettings, new: int, batch: set[bytes]) -> None:
    most = settings.max_depth or 0
    depth, first = tx.all("depth", (queue,))[0]
    if depth <= most:
        return
    if settings.on_full == "drop_oldest":
        oldest = [id for (id,) in tx.all("oldest_in", (queue, depth - most + len(batch))) if id not in batch]
        if len(oldest) >= depth - most:
            for id in oldest[: depth - most]:
                finish_waiting(tx, id, Reason.SUPERSEDED, dropped_note(queue, most))
            return
    told = settings.on_full or "error"
    raise queue_full(queue, most, told, depth=depth - new, excess=depth - most, age=tx.now - (first or tx.now))
