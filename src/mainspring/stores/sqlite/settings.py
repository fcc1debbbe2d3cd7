"""How queues work, as code declares it and as somebody set it over that; and what that does to new jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.errors import QueueDisabled, QueueDraining
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Bucket
from mainspring.queues.records import DisabledMode, QueueMode, QueueSettings

if TYPE_CHECKING:
    from .tx import Tx

SLICE = 500
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(QueueSettings).decode
_NONE = QueueSettings()


class Kept(NamedTuple):
    """What is stored of a queue."""

    mode: str
    since: int
    disabled: str | None
    disabled_at: int
    by: str
    declared: str | None
    given: str | None

    @property
    def settings(self) -> QueueSettings:
        if self.declared is None and self.given is None:
            return _NONE
        return read(self.given).over(read(self.declared))


def read(text: str | None) -> QueueSettings:
    return _NONE if text is None else _decode(text)


def kept(tx: Tx) -> dict[str, Kept]:
    """Asked at every enqueue and every turn that wants jobs: of a table that is empty, or nearly so."""
    if tx.queues is None:
        tx.queues = {row[0]: Kept(*row[1:]) for row in tx.all("queues")}
    return tx.queues


# ---- set them --------------------------------------------------------------------------------------


def configure(tx: Tx, queue: str, settings: QueueSettings | None, *, declared: bool) -> None:
    text = None if not settings else _encode(settings).decode()
    tx.run("add_queue", (queue,))
    tx.run("declare_queue" if declared else "give_queue", (text, queue))
    tx.run("forget_queue", (queue,))


def bind(tx: Tx, queue: str, after: bytes) -> bytes | None:
    """Count the next jobs of a queue for its depth, in the order of ids; the last of them, None when all are."""
    if not kept(tx).get(queue, _OPEN).settings.max_depth:
        return None
    found = [id for (id,) in tx.all("unbound", (queue, after, SLICE))]
    tx.cursor.executemany(tx.sql["bind"], [(id,) for id in found])
    return found[-1] if len(found) == SLICE else None


_OPEN = Kept(QueueMode.OPEN.value, 0, None, 0, "", None, None)


def add_declared(tx: Tx, queues: Iterable[tuple[str, QueueSettings]]) -> None:
    """Store those of queues of which nothing declared is known."""
    for queue, settings in queues:
        if kept(tx).get(queue, _OPEN).declared is None:
            configure(tx, queue, settings, declared=True)
            tx.queues = None


def disable(tx: Tx, queues: Sequence[str], how: DisabledMode | None, by: str) -> None:
    for queue in queues:
        if how is None:
            tx.run("enable_queue", (queue,))
            tx.run("forget_queue", (queue,))
            tx.woken.add(queue)
        else:
            tx.run("add_queue", (queue,))
            tx.run("disable_queue", (how.value, tx.now, by, queue))


# ---- obey them -------------------------------------------------------------------------------------


def admitted(job: NewJob, queue: Kept) -> NewJob:
    """The job as it stands in that queue; refused where the queue takes no jobs."""
    if queue.mode == QueueMode.DRAINING:
        raise QueueDraining(job.queue)
    if queue.disabled == DisabledMode.REJECT:
        raise QueueDisabled(job.queue, queue.by)
    return limited(job, queue)


def limited(job: NewJob, queue: Kept) -> NewJob:
    """The job with the limits of its queue."""
    own = {each.name for each in job.buckets}
    more = [Bucket(name, "", cost) for name, cost in queue.settings.limits or () if name not in own]
    if not more:
        return job
    buckets = tuple(sorted((*job.buckets, *more), key=lambda bucket: bucket.name))
    return msgspec.structs.replace(job, buckets=buckets)


def placed(seq: int, queue: Kept) -> int:
    """Where a new job stands: of those whose queue is a stack the seqs fall, whenever they become ready."""
    return -seq if queue.settings.order == "lifo" else seq


def is_bound(tx: Tx, queue: str) -> bool:
    """Whether the jobs of a queue are counted."""
    found = kept(tx).get(queue)
    return found is not None and bool(found.settings.max_depth)


def bind_free(tx: Tx, job: NewJob, queue: Kept) -> None:
    """A follow-up job counts too, and is never refused."""
    if queue.settings.max_depth:
        tx.run("bind", (job.id,))
