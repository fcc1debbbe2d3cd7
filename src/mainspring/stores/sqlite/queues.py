"""Queues: modes and settings, declared by code or given by a user, and what they do to new jobs.

A queue without a row is open and has no settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainspring.errors import QueueDisabled, QueueDraining
from mainspring.jobs.records import NewJob
from mainspring.limits.records import Bucket
from mainspring.queues.records import DisabledMode, QueueMode, QueueRow, QueueSettings

if TYPE_CHECKING:
    from .driver.database import SqliteDatabase
    from .driver.transaction import Tx

COUNT_SLICE = 500
"""Jobs that one transaction counts for the depth of their queue."""
_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(QueueSettings).decode
_NO_SETTINGS = QueueSettings()


class StoredQueue(NamedTuple):
    """The row of a queue without its name."""

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
            return _NO_SETTINGS
        return _read(self.given).over(_read(self.declared))


_OPEN = StoredQueue(QueueMode.OPEN.value, 0, None, 0, "", None, None)


def _read(text: str | None) -> QueueSettings:
    return _NO_SETTINGS if text is None else _decode(text)


def stored_queues(tx: Tx) -> dict[str, StoredQueue]:
    """The rows of all queues, by name. Read at every enqueue and every turn that wants jobs: the table is tiny."""
    if tx.stored_queues is None:
        tx.stored_queues = {row[0]: StoredQueue(*row[1:]) for row in tx.all("queues")}
    return tx.stored_queues


# ---- contract methods ------------------------------------------------------------------------------------


def queues(tx: Tx) -> list[QueueRow]:
    return [_row(name, queue) for name, queue in stored_queues(tx).items()]


def _row(name: str, queue: StoredQueue) -> QueueRow:
    return QueueRow(
        name,
        QueueMode(queue.mode),
        queue.since,
        _read(queue.declared),
        _read(queue.given),
        None if queue.disabled is None else DisabledMode(queue.disabled),
        queue.disabled_at,
        queue.by,
    )


def set_queue_mode(tx: Tx, queues: Sequence[str], mode: QueueMode) -> None:
    for queue in queues:
        if mode is QueueMode.OPEN:
            tx.run("open_queue", (queue,))
            tx.run("drop_plain_queue", (queue,))
        else:
            tx.run("set_mode", (queue, mode, tx.now))
    if mode is not QueueMode.PAUSED:
        tx.woken.update(queues)


async def configure_queue(
    database: SqliteDatabase, queue: str, settings: QueueSettings | None, *, declared: bool
) -> None:
    """Store the settings, then count the waiting jobs of the queue in slices."""
    await database.write(lambda tx: _configure(tx, queue, settings, declared=declared))
    last: bytes | None = b""
    while last is not None:
        last = await database.write(partial(_count_jobs, queue=queue, after=last))


def _configure(tx: Tx, queue: str, settings: QueueSettings | None, *, declared: bool) -> None:
    text = None if not settings else _encode(settings).decode()
    tx.run("add_queue", (queue,))
    tx.run("declare_queue" if declared else "give_queue", (text, queue))
    tx.run("drop_plain_queue", (queue,))


def _count_jobs(tx: Tx, queue: str, after: bytes) -> bytes | None:
    """Count the next jobs of a queue for its depth, in the order of ids. Returns the last id, None if none is left."""
    if not stored_queues(tx).get(queue, _OPEN).settings.max_depth:
        return None
    found = [id for (id,) in tx.all("uncounted_jobs", (queue, after, COUNT_SLICE))]
    tx.cursor.executemany(tx.sql["count_job"], [(id,) for id in found])
    return found[-1] if len(found) == COUNT_SLICE else None


def disable_queues(tx: Tx, queues: Sequence[str], how: DisabledMode | None, by: str) -> None:
    for queue in queues:
        if how is None:
            tx.run("enable_queue", (queue,))
            tx.run("drop_plain_queue", (queue,))
            tx.woken.add(queue)
        else:
            tx.run("add_queue", (queue,))
            tx.run("disable_queue", (how.value, tx.now, by, queue))


# ---- new jobs and claims ---------------------------------------------------------------------------------


def declare_queues(tx: Tx, queues: Iterable[tuple[str, QueueSettings]]) -> None:
    """Store the declared settings of queues that have none yet."""
    for queue, settings in queues:
        if stored_queues(tx).get(queue, _OPEN).declared is None:
            _configure(tx, queue, settings, declared=True)
            tx.stored_queues = None


def paused_queues(tx: Tx) -> list[str]:
    """The queues that hand out no jobs: paused or disabled."""
    return [name for name, queue in stored_queues(tx).items() if queue.mode == QueueMode.PAUSED or queue.disabled]


def admit(job: NewJob, queue: StoredQueue) -> NewJob:
    """The job with the limits of its queue. Raises if the queue takes no jobs."""
    if queue.mode == QueueMode.DRAINING:
        raise QueueDraining(job.queue)
    if queue.disabled == DisabledMode.REJECT:
        raise QueueDisabled(job.queue, queue.by)
    return add_queue_limits(job, queue)


def add_queue_limits(job: NewJob, queue: StoredQueue) -> NewJob:
    """The job with the limits of its queue, except limits that the job names itself."""
    own = {each.name for each in job.buckets}
    more = [Bucket(name, "", cost) for name, cost in queue.settings.limits or () if name not in own]
    if not more:
        return job
    buckets = tuple(sorted((*job.buckets, *more), key=lambda bucket: bucket.name))
    return msgspec.structs.replace(job, buckets=buckets)


def seq_in_queue(seq: int, queue: StoredQueue) -> int:
    """The seq of a new job: negative in a lifo queue, where newer jobs come first whenever they become ready."""
    return -seq if queue.settings.order == "lifo" else seq


def is_counted(tx: Tx, queue: str) -> bool:
    """Whether the jobs of a queue are counted for its depth."""
    found = stored_queues(tx).get(queue)
    return found is not None and bool(found.settings.max_depth)


def count_if_limited(tx: Tx, job: NewJob, queue: StoredQueue) -> None:
    """Count a follow-up job for the depth of its queue. It is never refused."""
    if queue.settings.max_depth:
        tx.run("count_job", (job.id,))
