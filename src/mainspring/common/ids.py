"""Ids made by the client: UUID version 7, ordered by time within a process.

Layout: 48 bits of milliseconds, then a 74-bit tail. The tail is drawn at random once in a
millisecond and counted up within it, so ids of one process are strictly ordered and two
processes would have to draw neighbouring numbers out of 2**73 to collide. Order between
processes is only as good as their clocks: the store gives jobs their order, not the id.
"""

from __future__ import annotations

import os
from _thread import RLock
from struct import Struct
from time import time_ns
from uuid import UUID, SafeUUID

from mainspring.errors import InvalidOption

_LOW = (1 << 62) - 1
_MARKS = (7 << 76) | (2 << 62)  # version and variant
_new = UUID.__new__
_set = object.__setattr__  # UUID forbids setattr; its constructor costs twice the rest of new_id
_UNKNOWN = SafeUUID.unknown
_halves = Struct(">QQ").pack

_lock = RLock()  # a signal handler may make an id while this thread makes one
_last_ms = 0
_tail = 0


def _after_fork() -> None:
    """A child must not go on with its parent's tail, nor wait for a lock held by a thread it does not have."""
    global _lock, _last_ms  # noqa: PLW0603 - one sequence per process is the point
    _lock = RLock()
    _last_ms = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _reserve(count: int) -> tuple[int, int]:
    """The millisecond and the first tail of ``count`` ids in a row."""
    global _last_ms, _tail  # noqa: PLW0603 - as above
    ms = time_ns() // 1_000_000
    with _lock:
        if ms > _last_ms:
            _last_ms = ms
            _tail = int.from_bytes(os.urandom(10)) >> 7  # 73 bits: room to count up
        _tail += count
        return _last_ms, _tail - count + 1


def _make(ms: int, tail: int) -> UUID:
    made = _new(UUID)
    _set(made, "int", ms << 80 | _MARKS | tail >> 62 << 64 | tail & _LOW)
    _set(made, "is_safe", _UNKNOWN)
    return made


def new_id() -> UUID:
    """A new id, greater than every one made before in this process."""
    ms, tail = _reserve(1)
    return _make(ms, tail)


def new_ids(count: int) -> list[UUID]:
    """Many new ids, in order."""
    if count < 0:
        raise InvalidOption("count", count, "cannot be negative")
    ms, first = _reserve(count)
    return [_make(ms, tail) for tail in range(first, first + count)]


def raw_ids(count: int) -> list[bytes]:
    """Many new ids, in order, as stores keep them: 16 bytes each, at a third of the cost."""
    ms, first = _reserve(count)
    high, low = ms << 16 | 7 << 12 | first >> 62, 2 << 62 | first & _LOW
    if first + count - 1 >> 62 == first >> 62:
        return [_halves(high, each) for each in range(low, low + count)]
    return [_make(ms, tail).bytes for tail in range(first, first + count)]


def raw_id() -> bytes:
    """One of them."""
    ms, tail = _reserve(1)
    return _halves(ms << 16 | 7 << 12 | tail >> 62, 2 << 62 | tail & _LOW)


def id_of(raw: bytes) -> UUID:
    """The id of these 16 bytes."""
    made = _new(UUID)
    _set(made, "int", int.from_bytes(raw))
    _set(made, "is_safe", _UNKNOWN)
    return made


def derived_id(parent: bytes, *parts: bytes) -> bytes:
    """The id of a job that comes of another, always the same for the same parts: a repeat finds it there.

    It has its parent's milliseconds. Its last two bytes are zero: room for a number.
    """
    from hashlib import sha256

    digest = sha256(b"\0".join((parent, *parts))).digest()
    low = int.from_bytes(digest[:10]) & ((1 << 76) - 1)
    value = int.from_bytes(parent[:6]) << 80 | (7 << 76) | (low >> 64 & 0xFFF) << 64 | 2 << 62 | (low & _LOW)
    return (value & ~0xFFFF).to_bytes(16)


def parse_id(value: str | UUID | bytes) -> UUID:
    """The id from its text, its 16 bytes, or itself."""
    if isinstance(value, UUID):
        return value
    try:
        if isinstance(value, str):
            return UUID(value.strip())
        if isinstance(value, (bytes, bytearray, memoryview)):
            raw = bytes(value)
            return UUID(bytes=raw) if len(raw) == 16 else UUID(raw.decode("ascii").strip())
    except ValueError:
        pass
    raise InvalidOption(
        "id",
        value,
        "is not the id of a job",
        hint="Pass job.id, its 16 bytes or its text, such as 01890a5d-ac96-774b-bcce-b302099a8057.",
    )


def worker_id() -> str:
    """A fresh random name for a worker, 16 hex digits.

    New on each call: a worker takes one when it starts, and another when it was given up for lost.
    """
    return os.urandom(8).hex()
