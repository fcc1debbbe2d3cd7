"""How a job is stored, and from stored jobs to records.

A stored job is one string: its head (the fields that the store itself uses), its record and its result. This module
writes it for a new job and reads it; ``lua/_rows.lua`` changes it. Numbers are big-endian, so that the bytes of two
places or of two tokens compare as the numbers do. The fields that a claim or an ack changes have fixed offsets: the
scripts replace them without reading the rest.

    fixed     see ``FIELDS`` in driver/constants.py
    worker    the last owner, empty after a rescue
    group     queue, NUL, task
    lane
    more      the rare fields: a packed map (:class:`RareFields`), or nothing
    record    unless it is large: then it is in the hash ``records``
    result    unless it is large: then it is in the hash ``results``
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Any

import msgspec

from mainspring.common.ids import id_text
from mainspring.errors import StoreConflict
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptRow, JobRow, NewJob
from mainspring.limits.records import Bucket
from mainspring.states import Reason, State
from mainspring.stores.shared.constants import HIGHEST_PRIORITY

from . import lanes, limits
from .driver.constants import (
    CODES,
    EXACT,
    FIXED,
    FLAG_EARLY,
    FLAG_FOLLOWED,
    FLAG_KEEP,
    FLAG_LIMITED,
    FLAG_RECORD_APART,
    FLAG_RESULT,
    FLOW_MARK,
    ID_BYTES,
    LARGE,
    NONE,
    OFFSETS,
    STATES,
)
from .jobs import keys

_LENGTH = Struct(">H")
_size = Struct(">I").pack
_read_size = Struct(">I").unpack_from
_RECORD_SIZE_AT = OFFSETS["RECORD_SIZE_AT"] - 1
moment = Struct(">d").pack
"""A place, a token or a moment as it is written in a stored job."""

_pack = msgspec.msgpack.Encoder().encode
_attempt = msgspec.msgpack.Decoder(tuple[int, int, int, str, int, int, Outcome, bool, bool | None, int | bool])
_names = msgspec.msgpack.Decoder(tuple[str, ...])


class RareFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """Fields that few jobs have. Their names are one letter long: Lua packs the names each time."""

    b: list[tuple[str, str, int]] = []
    """Buckets: limit, key and cost; unkeyed limits first."""
    m: tuple[str, ...] = ()
    """Marks."""
    k: float | None = None
    """Its own retention, microseconds."""
    u: str | None = None
    """Its unique key, in hex."""
    o: str | None = None
    """The reason of a cancel order."""
    r: str | None = None
    """The reason of its end."""
    e: str | None = None
    """The type of the error that it died of."""
    n: str | None = None
    """The note of its cancellation."""
    s: bool = False
    """Its queue was ``lifo`` when it was enqueued."""
    d: bool = False
    """It counts for the depth of its queue."""
    f: bool = False
    """It belongs to a flow: the first of its marks names it."""
    j: tuple[int, ...] = ()
    """It is a join: the numbers of its members, in the order of ``JOIN_FIELDS``."""


_NO_RARE_FIELDS = RareFields()
_unpack = msgspec.msgpack.Decoder(RareFields).decode


class StoredJob(msgspec.Struct, frozen=True, gc=False):
    """A stored job, read."""

    state: State
    ends: int
    rest: int
    seq: int
    priority: int
    attempt: int
    started: int | None
    turn: int
    ended: int | None
    ran: int | None
    crashes: int
    crash_limit: int
    epoch: int
    deps: int
    enqueued: int
    due: int | None
    expires: int | None
    token: int
    worker: str | None
    queue: str
    task: str
    lane: str
    more: RareFields
    record: bytes
    result: bytes


# ---- write --------------------------------------------------------------------------------------


def new_head(
    *,
    group: bytes,
    lane: bytes,
    priority: int,
    crash_limit: int,
    early: bool,
    record: bytes,
    more: RareFields = _NO_RARE_FIELDS,
    followed: bool = False,
) -> bytes:
    """A new stored job: ready unless the script decides otherwise. The script fills in its place and its times."""
    packed = b"" if more is _NO_RARE_FIELDS else _pack(more)
    ends = (
        (FLAG_LIMITED if more.b else 0)
        | (FLAG_FOLLOWED if followed else 0)
        | (FLAG_KEEP if more.f or more.k is not None else 0)
    )
    apart = len(record) > LARGE
    rest = (FLAG_EARLY if early else 0) | (FLAG_RECORD_APART if apart else 0)
    fixed = FIXED.pack(
        CODES[State.READY], ends, ends & FLAG_LIMITED, rest,
        0.0, priority, 0, NONE, 0.0, NONE, NONE, 0, crash_limit, 1, 0, 0.0, NONE, NONE,
        0 if apart else len(record), len(packed), 0.0, 0,
    )  # fmt: skip
    parts = (fixed, _LENGTH.pack(len(group)), group, _LENGTH.pack(len(lane)), lane, packed)
    return b"".join(parts if apart else (*parts, record))


def around_record(head: bytes) -> tuple[bytes, bytes]:
    """The parts of a new stored job without a record, before and after the length of the record: see :func:`rest`."""
    return head[:_RECORD_SIZE_AT], head[_RECORD_SIZE_AT + 4 :]


def rest(after: bytes, record: bytes) -> bytes:
    """All of a stored job that follows the first part of :func:`around_record`."""
    return _size(len(record)) + after + record


def pack_job(job: NewJob) -> bytes:
    """A new job as ``new_head`` in ``lua/_moves.lua`` reads it."""
    group, lane = lanes.group_and_lane(job)
    marks = tuple(dict.fromkeys(job.marks))
    in_flow = any(mark.startswith(FLOW_MARK) for mark in marks)
    return new_head(
        group=group,
        lane=lane,
        priority=job.priority,
        crash_limit=job.crashes,
        early=job.early,
        record=job.record,
        more=RareFields(
            b=limits.needed(job.buckets),
            m=tuple(sorted(marks, key=_is_no_flow)) if in_flow else marks,
            k=job.keep,
            u=job.unique.hash.hex() if job.unique else None,
            f=in_flow,
            j=(int(job.join.open), int(job.join.lenient), 0, 0, 0, 0, 0) if job.join else (),
        ),
        followed=bool(job.follows),
    )


def _is_no_flow(mark: str) -> bool:
    return not mark.startswith(FLOW_MARK)


def pack_times(job: NewJob) -> bytes:
    """The times of a new job, and what its unique key says. A missing value is False: nil would end an array in Lua."""
    run_at = False if job.run_at is None else job.run_at
    expires_in = False if job.expires_in is None else job.expires_in
    return _pack((job.delay, run_at, expires_in, *keys.key_codes(job.unique)))


def large_record(job: NewJob) -> bytes:
    """The record, if it is stored in the hash ``records``; else nothing."""
    return job.record if len(job.record) > LARGE else b""


def framed(*parts: bytes) -> bytes:
    """Each part after its length: the msgpack of Lua has no type for bytes."""
    return b"".join([word for part in parts for word in (_size(len(part)), part)])


def check_storable(job: NewJob) -> None:
    """Raise ``StoreConflict`` for a job that the scripts cannot store exactly."""
    wrong = ""
    unique = job.unique
    spans = (unique.window, unique.max_wait, unique.keep) if unique else ()
    if max(job.delay, job.expires_in or 0, *spans) >= EXACT // 2 or (job.run_at or 0) >= EXACT:
        wrong = "one of its times is later than Redis can count exactly"
    elif abs(job.priority) > HIGHEST_PRIORITY:
        wrong = f"its priority is not between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}"
    elif not 0 <= job.crashes < 2**31:
        wrong = "its number of crashes is too large"
    elif len(job.id) != ID_BYTES:
        wrong = f"its id does not have {ID_BYTES} bytes"
    elif any(not 0 <= bucket.cost < EXACT for bucket in job.buckets):
        wrong = "one of its costs is negative, or larger than Redis can count exactly"
    if wrong:
        raise StoreConflict(f"job {id_text(job.id)}: {wrong}")


# ---- read ---------------------------------------------------------------------------------------


def read(raw: bytes) -> StoredJob:
    """A stored job. A large record is empty here."""
    (
        state, ends, _, rest, seq, priority, attempt, started, turn, ended, ran, crashes, crash_limit, epoch, deps,
        enqueued, due, expires, record, more, token, worker,
    ) = FIXED.unpack_from(raw)  # fmt: skip
    start = FIXED.size + worker
    owner = raw[FIXED.size : start].decode()
    at = end_of_names(raw, start)
    queue, task, lane = names_in(raw[start:at])
    body = at + more
    return StoredJob(
        STATES[state - 1], ends, rest, int(seq), priority, attempt, time(started), int(turn), time(ended), time(ran),
        crashes, crash_limit, epoch, deps, int(enqueued), time(due), time(expires), int(token), owner or None, queue,
        task, lane, _unpack(raw[at:body]) if more else _NO_RARE_FIELDS, raw[body : body + record],
        raw[body + record :],
    )  # fmt: skip


def end_of_names(raw: bytes, start: int) -> int:
    """The offset after the group and the lane that begin at ``start``."""
    lane = start + 2 + (raw[start] << 8 | raw[start + 1])
    return lane + 2 + (raw[lane] << 8 | raw[lane + 1])


@lru_cache(maxsize=1024)
def names_in(text: bytes) -> tuple[str, str, str]:
    """Queue, task and lane from group and lane. Cached: many claims have the same few names."""
    lane = 2 + (text[0] << 8 | text[1])
    queue, _, task = text[2:lane].decode().partition("\0")
    return queue, task, text[lane + 2 :].decode()


def time(at: float) -> int | None:
    return None if at == NONE else int(at)


def job_row(row: list[Any]) -> JobRow:
    """From ``[id, stored job, large record, error, progress, large result]``."""
    job, raw, record, error, progress, result = row
    stored = read(raw)
    more = stored.more
    return JobRow(
        id=job,
        state=stored.state,
        reason=Reason(more.r) if more.r else None,
        task=stored.task,
        queue=stored.queue,
        lane=stored.lane,
        priority=stored.priority,
        attempt=stored.attempt,
        epoch=stored.epoch,
        crashes=stored.crashes,
        crash_limit=stored.crash_limit,
        early=stored.rest & FLAG_EARLY > 0,
        token=stored.token,
        worker=stored.worker,
        seq=stored.seq,
        enqueued=stored.enqueued,
        due=stored.due,
        expires=stored.expires,
        started=stored.started,
        finished=stored.ended,
        ran=stored.ran,
        deps=stored.deps,
        ordered=stored.state is State.RUNNING and more.o is not None,
        progress=progress,
        result=stored.result if result is None and stored.rest & FLAG_RESULT else result,
        error=error,
        note=more.n,
        record=stored.record if record is None else record,
        buckets=tuple(sorted((Bucket(*each) for each in more.b), key=lambda each: each.name)),
    )


def attempt_row(entry: bytes) -> AttemptRow:
    """From an entry in the list of a job's attempts."""
    (size,) = _read_size(entry)
    body = size + 4
    token, epoch, attempt, worker, started, ended, outcome, _, failed, ran = _attempt.decode(entry[4:body])
    return AttemptRow(
        token=token,
        epoch=epoch,
        attempt=attempt,
        worker=worker,
        started=started,
        ended=ended,
        ran=None if ran is False else ran,
        outcome=outcome,
        error=entry[body:] if failed else None,
    )


def unpack_names(packed: bytes) -> tuple[str, ...]:
    return _names.decode(packed)
