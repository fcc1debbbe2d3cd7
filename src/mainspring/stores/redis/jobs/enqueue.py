"""Enqueue: which script inserts a batch, its arguments and its replies; and calls that are sent together.

A plain job only waits for its turn: it has no delay, parents, limits, fair key, unique key, marks or follow-up jobs. A
batch of plain jobs is inserted by ``enqueue_plain.lua``, a single plain job by ``enqueue_one.lua``, and any other batch
by ``enqueue.lua``. All of them look for the id of a job among all jobs, live or ended. So ``JobBatch.retry`` needs
nothing more, and a first try that arrives after a retry of its batch makes no second job.

Concurrent calls on one event loop share a script (:class:`JointEnqueue`). A call that comes alone is sent at once.
Calls that come while a script is on its way are sent together in the next one, which costs the server a fifth of single
scripts. Two scripts may be on their way at once: the server writes the jobs of some callers while others prepare their
next calls. They use one connection, so jobs are inserted in the order of the calls. Only plain batches are joined:
nothing but a draining queue can refuse them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec

from mainspring.errors import (
    EnqueueError,
    FlowClosed,
    KeyConflict,
    KeyTaken,
    QueueDisabled,
    QueueDraining,
    StoreConflict,
)
from mainspring.jobs.records import Enqueued, JobBatch, NewJob
from mainspring.limits.records import Limit
from mainspring.states import State
from mainspring.stores.redis import lanes, limits
from mainspring.stores.redis.driver.client import RedisClient
from mainspring.stores.redis.driver.constants import (
    CODES,
    ID_BYTES,
    LARGE,
    REFUSED_CLOSED,
    REFUSED_CONFLICT,
    REFUSED_DISABLED,
    REFUSED_DRAINING,
    REFUSED_FULL,
    REFUSED_NO_PARENT,
    REFUSED_SETTINGS,
    REFUSED_TAKEN,
)
from mainspring.stores.redis.driver.resp import ServerError
from mainspring.stores.redis.flows import no_parent, pack_edges
from mainspring.stores.redis.queues import settings_json
from mainspring.stores.redis.rows import (
    around_record,
    check_storable,
    framed,
    large_record,
    new_head,
    pack_job,
    pack_times,
    rest,
)
from mainspring.stores.shared import plain
from mainspring.stores.shared.depth import queue_full
from mainspring.stores.shared.folding import folded, unfolded
from mainspring.stores.shared.joining import Joiner

from .follow_ups import pack_follow_ups

MAX_JOBS: Final = 1_000
MAX_BYTES: Final = 8 * 1024 * 1024
"""The largest batch of one script. A script stops the whole server while it runs, so callers split larger batches."""

JOINT_JOBS: Final = 200
"""Jobs of 8 KB that are sent together."""
JOINT_CALLS: Final = 2
"""Scripts that are on their way at once."""
_PIECE: Final = 8 * 1024

_fits_plain = plain.only("id", "task", "queue", "kind", "priority", "crashes", "early", "record")
_READY = bytes([CODES[State.READY]])
_pack = msgspec.msgpack.Encoder().encode

Words = list[bytes | str]

# ---- which script -------------------------------------------------------------------------------


def arguments(batch: JobBatch, with_settings: Collection[str] = (), swap: bytes = b"") -> tuple[str, Words]:
    """The script for this batch, and its arguments.

    ``with_settings``: queues that have settings, which the scripts for plain jobs do not read. ``swap``: a packed swap
    of a schedule's row, which ``enqueue.lua`` does together with the batch.
    """
    short = not swap and is_plain(batch, with_settings)
    return _bounded(batch.jobs, batch.limits, short, _batch_options(batch, swap))


def joint_arguments(batches: Sequence[JobBatch]) -> tuple[str, Words]:
    """The script and its arguments for several plain batches together."""
    jobs = [job for batch in batches for job in batch.jobs]
    return _bounded(jobs, (), _are_distinct(jobs))


def is_plain(batch: JobBatch, with_settings: Collection[str] = ()) -> bool:
    """Whether all jobs of the batch are plain, and no id occurs twice."""
    if batch.limits or batch.queues or batch.accepted:
        return False
    if with_settings and any(job.queue in with_settings for job in batch.jobs):
        return False
    return all(map(_is_plain, batch.jobs)) and _are_distinct(batch.jobs)


def _is_plain(job: NewJob) -> bool:
    return _fits_plain(job) and len(job.record) <= LARGE


def _are_distinct(jobs: Sequence[NewJob]) -> bool:
    return len(jobs) == 1 or 0 < len({job.id for job in jobs}) == len(jobs)


def _bounded(jobs: Sequence[NewJob], limits: Sequence[Limit], short: bool, options: bytes = b"") -> tuple[str, Words]:
    if len(jobs) > MAX_JOBS and (len(jobs) > 2 * MAX_JOBS or sum(job.join is None for job in jobs) > MAX_JOBS):
        raise StoreConflict(
            f"a batch of {len(jobs):,} jobs is larger than the {MAX_JOBS:,}, beside joins, that one script inserts",
            hint="Send it in several batches.",
        )
    name, words = _plain_arguments(jobs) if short else ("enqueue", _full_arguments(jobs, limits, options))
    size = sum(map(len, words))
    if size > MAX_BYTES:
        raise StoreConflict(
            f"a batch of {size:,} bytes is larger than the {MAX_BYTES:,} that one script inserts",
            hint="Send it in several batches.",
        )
    return name, words


# ---- plain jobs ---------------------------------------------------------------------------------


class _PlainKind(NamedTuple):
    """What plain jobs of one task have in common: their line, and all of a stored job except its record."""

    line: str
    root: str
    queue: str
    counted: str
    before: bytes
    after: bytes


@lru_cache(maxsize=4096)
def _plain_kind(queue: str, kind: str, task: str, priority: int, crashes: int, early: bool) -> _PlainKind:
    group, lane = lanes.group_and_base_lane(queue, kind, task)
    head = new_head(group=group, lane=lane, priority=priority, crash_limit=crashes, early=early, record=b"")
    home = lane.decode()
    return _PlainKind(f"{priority}:{home}", home, queue, (_READY + group).decode(), *around_record(head))


def _plain_arguments(jobs: Sequence[NewJob]) -> tuple[str, Words]:
    """What the jobs of a kind have in common is sent once; jobs of one kind mostly come in a row."""
    kinds: dict[_PlainKind, int] = {}
    runs: list[int] = []
    ids: list[bytes] = []
    rests: list[bytes] = []
    last: tuple[str | int, ...] = ()
    after = b""
    for job in jobs:
        asked = job.queue, job.kind, job.task, job.priority, job.crashes, job.early
        if asked != last:
            check_storable(job)
            kind = _plain_kind(*asked)
            last, after = asked, kind.after
            runs += (kinds.setdefault(kind, len(kinds) + 1), 0)
        runs[-1] += 1
        ids.append(job.id)
        rests.append(rest(after, job.record))
        if len(job.id) != ID_BYTES:
            check_storable(job)
    before = [kind.before for kind in kinds]
    if len(jobs) == 1:
        [kind] = kinds
        return "enqueue_one", [*kind[:4], *before, *ids, *rests]
    return "enqueue_plain", [_pack(([kind[:4] for kind in kinds], runs)), *before, *ids, *rests]


# ---- any jobs -----------------------------------------------------------------------------------


def _full_arguments(jobs: Sequence[NewJob], limits_: Sequence[Limit], options: bytes) -> Words:
    words: Words = [limits.pack_limits(limits_) if limits_ else b"", options]
    for job in folded(jobs):
        check_storable(job)
        beside = framed(pack_times(job), pack_edges(job.after, job.before), pack_follow_ups(job), large_record(job))
        words += (job.id + pack_job(job), beside)
    return words


def _batch_options(batch: JobBatch, swap: bytes) -> bytes:
    if not (batch.queues or batch.accepted or swap):
        return b""
    declared = [(name, settings_json(settings)) for name, settings in batch.queues]
    return framed(_pack((batch.accepted, declared)), swap)


# ---- replies ------------------------------------------------------------------------------------


class QueueHasSettings(Exception):
    """The queue has settings, which the scripts for plain jobs do not read: send the batch through ``enqueue.lua``."""

    def __init__(self, queue: str) -> None:
        super().__init__(queue)
        self.queue = queue


def enqueued(jobs: Sequence[NewJob], reply: Any) -> list[Enqueued]:
    """The reply of the script for each job. A refusal is raised as an error."""
    if reply == 1:
        return [Enqueued(job.id, True) for job in jobs]
    if reply and reply[0] in _REFUSALS:
        raise _REFUSALS[reply[0]](*reply[1:])
    made = [
        Enqueued(each, False) if isinstance(each, bytes) else Enqueued(job.id, each == 1)
        for job, each in zip(folded(jobs), reply, strict=True)
    ]
    return unfolded(jobs, made)


def _draining(queue: bytes) -> Exception:
    return QueueDraining(queue.decode())


def _has_settings(queue: bytes) -> Exception:
    return QueueHasSettings(queue.decode())


def _disabled(queue: bytes, by: bytes) -> Exception:
    return QueueDisabled(queue.decode(), by.decode())


def _full(queue: bytes, most: int, on_full: bytes, depth: int, excess: int, age: int) -> Exception:
    return queue_full(queue.decode(), most, on_full.decode(), depth=depth, excess=excess, age=age)


def _taken(task: bytes, holder: bytes) -> Exception:
    return KeyTaken(task.decode(), UUID(bytes=holder))


def _conflict(task: bytes, holder: bytes, job: bytes) -> Exception:
    return KeyConflict(task.decode(), UUID(bytes=holder), UUID(bytes=job))


def _closed(job: bytes) -> Exception:
    return FlowClosed(UUID(bytes=job))


_REFUSALS: dict[bytes, Callable[..., Exception]] = {
    REFUSED_DRAINING.encode(): _draining,
    REFUSED_SETTINGS.encode(): _has_settings,
    REFUSED_DISABLED.encode(): _disabled,
    REFUSED_FULL.encode(): _full,
    REFUSED_TAKEN.encode(): _taken,
    REFUSED_CONFLICT.encode(): _conflict,
    REFUSED_NO_PARENT.encode(): no_parent,
    REFUSED_CLOSED.encode(): _closed,
}

# ---- calls --------------------------------------------------------------------------------------


class JointEnqueue:
    """The enqueue calls of a store: concurrent plain batches of one event loop are sent together."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client
        self._with_settings: set[str] = set()
        """Queues that have settings: their jobs go through ``enqueue.lua`` at once."""
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, Joiner[JobBatch, list[Enqueued]]] = (
            WeakKeyDictionary()
        )

    async def enqueue(self, batch: JobBatch) -> list[Enqueued]:
        if not is_plain(batch, self._with_settings):
            return await self._alone(batch)
        return await self._joiner().call(batch)

    def enqueue_now(self, batch: JobBatch) -> list[Enqueued]:
        """One batch, blocking."""
        while True:
            name, words = arguments(batch, self._with_settings)
            try:
                return enqueued(batch.jobs, self._client.run_now(name, *words))
            except QueueHasSettings as found:
                self._with_settings.add(found.queue)

    def _joiner(self) -> Joiner[JobBatch, list[Enqueued]]:
        loop = asyncio.get_running_loop()
        joiner = self._loops.get(loop)
        if joiner is None:
            joiner = self._loops[loop] = Joiner(
                self._alone, self._together, undone=_is_undone, size=_weight, most=JOINT_JOBS, flights=JOINT_CALLS
            )
        return joiner

    async def _alone(self, batch: JobBatch) -> list[Enqueued]:
        while True:
            name, words = arguments(batch, self._with_settings)
            try:
                return enqueued(batch.jobs, await self._client.run(name, *words))
            except QueueHasSettings as found:
                self._with_settings.add(found.queue)

    async def _together(self, batches: Sequence[JobBatch]) -> list[list[Enqueued]]:
        name, words = joint_arguments(batches)
        reply = await self._client.run(name, *words)
        if reply == 1:
            return [[Enqueued(job.id, True) for job in batch.jobs] for batch in batches]
        jobs = [job for batch in batches for job in batch.jobs]
        replies = iter(enqueued(jobs, reply))
        return [[next(replies) for _ in batch.jobs] for batch in batches]


def _weight(batch: JobBatch) -> int:
    return sum([1 + len(job.record) // _PIECE for job in batch.jobs])


def _is_undone(error: Exception) -> bool:
    """Whether the batch was refused: then nothing was inserted, or a repeat finds the inserted jobs."""
    return isinstance(error, (ServerError, EnqueueError, StoreConflict, QueueHasSettings))
