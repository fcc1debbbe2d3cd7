"""The arguments and the reply of ``enqueue.lua`` and ``enqueue_any.lua``.

A batch of jobs on which nothing hangs is written by the first, which only puts each job in its place (or by
``enqueue_one.lua``, if it is one); every other batch by the second. All look for an id in every place, live or ended.
So ``Batch.retry`` asks for nothing more, and a first try that comes after a retry of its batch makes no second job.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from mainspring.errors import StoreConflict
from mainspring.jobs.lanes import base_lane, home_lane
from mainspring.jobs.records import Batch, Edge, Enqueued, FollowUp, NewJob, UniqueKey
from mainspring.limits.records import Limit
from mainspring.queues.records import QueueSettings
from mainspring.schedules.records import PART
from mainspring.states import FINAL, State
from mainspring.stores.shared.depth import stored
from mainspring.stores.shared.folding import folded, unfolded

from . import rooms
from .heads import CODES, LARGE, More, around_record, new_head, rest
from .refusals import REFUSALS

MAX_JOBS = 1_000
MAX_BYTES = 8 * 1024 * 1024
"""One script stops the whole server while it runs: larger batches are for the caller to cut."""

EXACT = 2**53
"""Lua's numbers are doubles: times beyond this (the year 2255) would be rounded."""

HIGHEST = 100
"""Priorities from minus this to this fit into the place in the line."""

_CONFLICTS = {"return": 0, "error": 1, "replace": 2}
_MODES = {"debounce": 1, "throttle": 2, "keep_last": 3}
_KEPT = 4
_READY = bytes([CODES[State.READY]])
_pack = msgspec.msgpack.Encoder().encode
_length = Struct(">I").pack


Words = list[bytes | str]


def arguments(batch: Batch, special: Collection[str] = (), swap: bytes = b"") -> tuple[str, Words]:
    """The script for this batch, and its arguments; ``special`` are queues that are for the longer way, and so is
    an exchange of a schedule's row."""
    return _bounded(batch.jobs, batch.limits, not swap and is_plain(batch, special), _settings(batch, swap))


def joint_arguments(batches: Sequence[Batch]) -> tuple[str, Words]:
    """The same for several batches as one; each of them is plain."""
    jobs = [job for batch in batches for job in batch.jobs]
    return _bounded(jobs, (), _are_distinct(jobs))


def _settings(batch: Batch, swap: bytes) -> bytes:
    if not (batch.queues or batch.accepted or batch.forced or swap):
        return b""
    declared = [(name, settings_json(settings)) for name, settings in batch.queues]
    return framed(_pack((batch.accepted, declared, batch.forced)), swap)


def settings_json(settings: QueueSettings) -> str:
    return msgspec.json.encode(stored(settings)).decode()


def _bounded(jobs: Sequence[NewJob], limits: Sequence[Limit], plain: bool, settings: bytes = b"") -> tuple[str, Words]:
    if len(jobs) > MAX_JOBS:
        raise StoreConflict(
            f"a batch of {len(jobs):,} jobs is larger than the {MAX_JOBS:,} that one script inserts",
            hint="Send it in several batches.",
        )
    name, words = _plain(jobs) if plain else ("enqueue_any", _any(jobs, limits, settings))
    size = sum(map(len, words))
    if size > MAX_BYTES:
        raise StoreConflict(
            f"a batch of {size:,} bytes is larger than the {MAX_BYTES:,} that one script inserts",
            hint="Send it in several batches.",
        )
    return name, words


def is_plain(batch: Batch, special: Collection[str] = ()) -> bool:
    """Whether nothing but their place in the line holds its jobs back, and no two are the same."""
    if batch.limits or batch.queues or batch.accepted:
        return False
    if special and any(job.queue in special for job in batch.jobs):
        return False
    return all(map(_is_plain, batch.jobs)) and _are_distinct(batch.jobs)


def _are_distinct(jobs: Sequence[NewJob]) -> bool:
    return len(jobs) == 1 or 0 < len({job.id for job in jobs}) == len(jobs)


def _check(job: NewJob) -> None:
    """Refuse what the scripts could not keep exactly."""
    wrong = ""
    unique = job.unique
    spans = (unique.window, unique.max_wait, unique.keep) if unique else ()
    if max(job.delay, job.expires_in or 0, *spans) >= EXACT // 2 or (job.run_at or 0) >= EXACT:
        wrong = "a time of it lies further ahead than Redis can count exactly"
    elif abs(job.priority) > HIGHEST:
        wrong = f"its priority is not between -{HIGHEST} and {HIGHEST}"
    elif not 0 <= job.crashes < 2**31:
        wrong = "its number of crashes is too large"
    elif len(job.id) != 16:
        wrong = "its id does not have 16 bytes"
    elif any(not 0 <= bucket.cost < EXACT for bucket in job.buckets):
        wrong = "a cost of it is below nothing, or larger than Redis can count exactly"
    if wrong:
        raise StoreConflict(f"job {job.id.hex()}: {wrong}")


def _is_plain(job: NewJob) -> bool:
    """Nothing but its place in the line holds it back, and nothing is kept beside it."""
    return not (
        job.delay
        or job.run_at is not None
        or job.expires_in is not None
        or job.after
        or job.buckets
        or job.fair
        or job.unique
        or job.marks
        or job.keep is not None
        or job.follows
        or len(job.record) > LARGE
    )


class _Kind(NamedTuple):
    """What plain jobs of one task have in common: where they stand, and all of a stored job but its record."""

    line: str
    group: str
    queue: str
    counted: str
    before: bytes
    after: bytes


@lru_cache(maxsize=4096)
def _kind(queue: str, kind: str, task: str, priority: int, crashes: int, early: bool) -> _Kind:
    group, lane = _names(queue, kind, task)
    head = new_head(group=group, lane=lane, priority=priority, crash_limit=crashes, early=early, record=b"")
    home = lane.decode()
    return _Kind(f"{priority}:{home}", home, queue, (_READY + group).decode(), *around_record(head))


def _plain(jobs: Sequence[NewJob]) -> tuple[str, Words]:
    """What the kinds of jobs have in common is said once; jobs of one kind mostly come in a row."""
    kinds: dict[_Kind, int] = {}
    runs: list[int] = []
    ids: list[bytes] = []
    rests: list[bytes] = []
    last: tuple[str | int, ...] = ()
    after = b""
    for job in jobs:
        asked = job.queue, job.kind, job.task, job.priority, job.crashes, job.early
        if asked != last:
            _check(job)
            kind = _kind(*asked)
            last, after = asked, kind.after
            runs += (kinds.setdefault(kind, len(kinds) + 1), 0)
        runs[-1] += 1
        ids.append(job.id)
        rests.append(rest(after, job.record))
        if len(job.id) != 16:
            _check(job)
    before = [kind.before for kind in kinds]
    if len(jobs) == 1:
        [kind] = kinds
        return "enqueue_one", [*kind[:4], *before, *ids, *rests]
    return "enqueue", [_pack(([kind[:4] for kind in kinds], runs)), *before, *ids, *rests]


def _any(jobs: Sequence[NewJob], limits: Sequence[Limit], settings: bytes) -> Words:
    words: Words = [rooms.packed(limits) if limits else b"", settings]
    for job in folded(jobs):
        _check(job)
        words += (job.id + _text(job), _beside(job))
    return words


@lru_cache(maxsize=4096)
def _names(queue: str, kind: str, task: str) -> tuple[bytes, bytes]:
    group, lane = f"{queue}\0{task}".encode(), base_lane(queue, kind).encode()
    if max(len(group), len(lane)) >= 2**16:
        raise StoreConflict("the names of a queue and a task have more than 65,535 bytes together")
    return group, lane


def _text(job: NewJob) -> bytes:
    group, lane = _names(job.queue, job.kind, job.task)
    return new_head(
        group=group,
        lane=home_lane(job.queue, job.kind, job.buckets, job.fair).encode() if job.buckets or job.fair else lane,
        priority=job.priority,
        crash_limit=job.crashes,
        early=job.early,
        record=job.record,
        more=More(
            b=rooms.needed(job.buckets),
            m=tuple(dict.fromkeys(job.marks)),
            k=job.keep,
            u=job.unique.hash.hex() if job.unique else None,
        ),
        followed=bool(job.follows),
    )


def _times(job: NewJob) -> bytes:
    """A missing value is False: nil would end an array in Lua."""
    conflict, window = (_CONFLICTS[job.unique.conflict], job.unique.window) if job.unique else (0, 0)
    run_at = False if job.run_at is None else job.run_at
    times = job.delay, run_at, False if job.expires_in is None else job.expires_in, conflict, window
    if job.unique is None or (job.unique.mode == "once" and not job.unique.keep):
        return _pack(times)
    return _pack((*times, *_mode(job.unique)))


def _mode(unique: UniqueKey) -> tuple[int, int, str | bool]:
    if unique.mode == "once":
        return _KEPT, unique.keep, unique.print.hex() or False
    return _MODES[unique.mode], unique.max_wait, False


def _beside(job: NewJob) -> bytes:
    return framed(_times(job), _edges(job.after), _follows(job), _apart(job))


def framed(*parts: bytes) -> bytes:
    """Each with its length in front: Lua's msgpack has no type for bytes."""
    return b"".join([word for part in parts for word in (_length(len(part)), part)])


def _apart(job: NewJob) -> bytes:
    return job.record if len(job.record) > LARGE else b""


def _edges(after: Sequence[Edge]) -> bytes:
    return b"".join(edge.parent + (b"i" if edge.policy == "ignore" else b"f") for edge in after)


def _follows(job: NewJob) -> bytes:
    """As ``insert_follows`` in ``_moves.lua`` reads them."""
    words = []
    for follow in job.follows:
        _check_follow(job, follow)
        made = follow.job
        words.append(bytes([CODES[follow.on]]) + made.id + framed(_text(made), _times(made), _apart(made)))
    return b"".join(words)


def _check_follow(job: NewJob, follow: FollowUp) -> None:
    """Refuse now what could not be inserted later: then it would keep its job from ending."""
    made = follow.job
    _check(made)
    wrong = ""
    if follow.on not in FINAL:
        wrong = f"waits for {follow.on}, which is no end"
    elif made.id[14:] != b"\0\0":
        wrong = "has an id without room for an epoch"
    elif made.unique or made.after or made.buckets or made.fair or made.follows:
        wrong = "has a unique key, parents, limits or follow-up jobs of its own"
    elif any(mark.startswith(PART) for mark in made.marks):
        wrong = "is of a part"
    if wrong:
        raise StoreConflict(f"job {UUID(bytes=job.id)}: its follow-up job of task {made.task!r} {wrong}")


def enqueued(jobs: Sequence[NewJob], reply: Any) -> list[Enqueued]:
    """What the script says; its refusals as errors."""
    if reply == 1:
        return [Enqueued(job.id, True) for job in jobs]
    if reply and reply[0] in REFUSALS:
        raise REFUSALS[reply[0]](*reply[1:])
    said = [
        Enqueued(made, False) if isinstance(made, bytes) else Enqueued(job.id, made == 1)
        for job, made in zip(folded(jobs), reply, strict=True)
    ]
    return unfolded(jobs, said)
