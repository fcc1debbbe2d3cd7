"""How a job is stored: its head (what the store itself knows), then its record and its result, in one string.

Written here for a new job, changed by ``lua/_heads.lua``, read here again. Numbers are big-endian, so that the
bytes of two places in the line or of two tokens compare as the numbers do, and those that a claim or an ack changes
have fixed places: the scripts replace them without reading the rest.

    head      fixed, see ``FIXED``
    worker    the last owner, empty after a rescue
    group     queue, NUL, task
    lane
    more      what few jobs have: a packed map, or nothing
    record    unless it is large: then it lies in ``records``
    result    unless it is large: then it lies in ``results``
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct

import msgspec

from mainspring.schedules.records import PART
from mainspring.states import State

STATES = (
    State.BLOCKED,
    State.SCHEDULED,
    State.RETRYING,
    State.READY,
    State.RUNNING,
    State.SUCCEEDED,
    State.DEAD,
    State.CANCELLED,
)
"""The first byte of a head is the place in here, from 1."""
CODES = {state: code for code, state in enumerate(STATES, 1)}

NONE = -(2.0**62)
"""A moment that is not set."""

LARGE = 1024
"""Bytes beyond which a record or a result lies apart: who moves, counts or looks for jobs need not read it."""

HAS_CHILDREN, IS_ORDERED, IS_LIMITED, IS_FOLLOWED, HAS_KEEP, IS_OF_PART = 1, 2, 4, 8, 16, 32
"""What an end must look at: the second byte."""
EXPIRES, IS_PARKED, COUNTS = 1, 2, 8
"""What a claim must look at, and ``IS_LIMITED``: the third byte."""
IS_EARLY, LIES_APART, HAS_RESULT, HAS_ERROR = 1, 2, 4, 8
"""The rest: the fourth byte."""

FIXED = Struct(">BBBBdhIdddIIIIdddIIdB")
# state, ends, claims, rest, seq, priority, attempt, started, turn, ended, crashes, crash limit, epoch, deps,
# enqueued, due, expires, length of the record, length of more, token, length of the worker
_LENGTH = Struct(">H")
_size = Struct(">I").pack
_LENGTH_OF_RECORD = Struct(">BBBBdhIdddIIIIddd").size
moment = Struct(">d").pack
"""A place, a token or a moment as it stands in a head."""


class More(msgspec.Struct, frozen=True, omit_defaults=True):
    """What few jobs have. One letter each: Lua packs the names again and again."""

    b: list[tuple[str, str, int]] = []
    """Buckets: limit, key and cost; gates first."""
    m: tuple[str, ...] = ()
    """Marks."""
    k: float | None = None
    """Its own keep, microseconds."""
    u: str | None = None
    """Its unique key, in hex."""
    o: str | None = None
    """A cancel order."""
    r: str | None = None
    """The reason of its end."""
    e: str | None = None
    """The type of the error that it died of."""
    n: str | None = None
    """The words of whoever cancelled it."""
    s: bool = False
    """Its queue was a stack when it was enqueued."""
    d: bool = False
    """It counts for the depth of its queue."""
    w: str | None = None
    """The part of it that waits for others, and it with it."""


class Head(msgspec.Struct, frozen=True, gc=False):
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
    more: More
    record: bytes
    result: bytes


_NOTHING_MORE = More()
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(More).decode


def new_head(
    *,
    group: bytes,
    lane: bytes,
    priority: int,
    crash_limit: int,
    early: bool,
    record: bytes,
    more: More = _NOTHING_MORE,
    followed: bool = False,
) -> bytes:
    """A job as it enters, ready unless the script finds otherwise; it has no place and no times yet."""
    packed = b"" if more is _NOTHING_MORE else _pack(more)
    ends = (IS_LIMITED if more.b else 0) | (IS_FOLLOWED if followed else 0) | (0 if more.k is None else HAS_KEEP)
    if any(mark.startswith(PART) for mark in more.m):
        ends |= IS_OF_PART
    apart = len(record) > LARGE
    fixed = FIXED.pack(
        CODES[State.READY], ends, ends & IS_LIMITED, (IS_EARLY if early else 0) | (LIES_APART if apart else 0),
        0.0, priority, 0, NONE, 0.0, NONE, 0, crash_limit, 1, 0, 0.0, NONE, NONE,
        0 if apart else len(record), len(packed), 0.0, 0,
    )  # fmt: skip
    parts = (fixed, _LENGTH.pack(len(group)), group, _LENGTH.pack(len(lane)), lane, packed)
    return b"".join(parts if apart else (*parts, record))


def around_record(head: bytes) -> tuple[bytes, bytes]:
    """A new head without a record, parted where the length of one stands: see :func:`rest`."""
    return head[:_LENGTH_OF_RECORD], head[_LENGTH_OF_RECORD + 4 :]


def rest(after: bytes, record: bytes) -> bytes:
    """What follows the first part of a head that :func:`around_record` has parted."""
    return _size(len(record)) + after + record


def read(raw: bytes) -> Head:
    """A stored job. A record that lies apart is empty here."""
    (
        state, ends, _, rest, seq, priority, attempt, started, turn, ended, crashes, crash_limit, epoch, deps,
        enqueued, due, expires, record, more, token, worker,
    ) = FIXED.unpack_from(raw)  # fmt: skip
    start = FIXED.size + worker
    owner = raw[FIXED.size : start].decode()
    at = end_of_names(raw, start)
    queue, task, lane = names(raw[start:at])
    body = at + more
    return Head(
        STATES[state - 1], ends, rest, int(seq), priority, attempt, time(started), int(turn), time(ended), crashes,
        crash_limit, epoch, deps, int(enqueued), time(due), time(expires), int(token), owner or None, queue, task,
        lane, _unpack(raw[at:body]) if more else _NOTHING_MORE, raw[body : body + record], raw[body + record :],
    )  # fmt: skip


def end_of_names(raw: bytes, start: int) -> int:
    """Where group and lane end that begin there."""
    lane = start + 2 + (raw[start] << 8 | raw[start + 1])
    return lane + 2 + (raw[lane] << 8 | raw[lane + 1])


@lru_cache(maxsize=1024)
def names(text: bytes) -> tuple[str, str, str]:
    """Queue, task and lane from group and lane: few are different where many jobs are claimed."""
    lane = 2 + (text[0] << 8 | text[1])
    queue, _, task = text[2:lane].decode().partition("\0")
    return queue, task, text[lane + 2 :].decode()


def time(at: float) -> int | None:
    return None if at == NONE else int(at)
