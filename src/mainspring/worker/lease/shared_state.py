"""The board: memory that one worker shares with the process that watches it.

The worker writes what it runs, both read until when the lease is good. It must be readable while
the worker's loop is blocked, its GIL is held or the whole process is stopped, so it is plain shared
memory (an anonymous file whose descriptor the child inherits) and nobody ever waits for anybody.

A slot is one cache line that opens and closes with the job's token; 0 in front means empty. A reader
takes a line only if both ends agree and two looks show the same, so a line caught in the middle of a
write is skipped: the next look, a quarter of a second later, finds it.
"""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from typing import NamedTuple

EARLY = 1
"""``ack="early"``: once begun it must not begin again."""
STRICT = 2
"""The body must have ended when the lease does."""
SUSPECT = 4
"""The job has crashed a worker before."""
STUCK = 8
"""The body did not end at its hard limit: this is the one to blame when the worker is replaced."""

ORDERED = 16
"""The stuck body was told to end by a cancel order, not by its time limit."""

UNTOLD = 32
"""The store does not know that the job is an early one: its producer knew only the task's name."""

TRIPS = 64
"""The breaker of the task hears of it if the job times out."""

CAPACITY = 16_384
"""Slots of a board whose worker is not known yet; untouched pages cost nothing."""

_MAGIC = 0x6D61696E_73707231
_HEADER = struct.Struct("=qqdddq")  # magic, slots in use, lease end, ticked, tried, phase
_LINE = struct.Struct("=q16sdqqdq")  # token, job, deadline, retry_in, flags, started, token
_BASE = 64
_USED, _LEASE_END, _TICKED, _TRIED, _PHASE = 1, 2, 3, 4, 5
_FLAGS_AT = 5  # in words from the line's start


class Phase(IntEnum):
    """Where a worker stands in its life."""

    STARTING = 0
    RUNNING = 1
    DRAINING = 2
    REPLACE = 3
    """A body will not end: kill me when my drain is over, and start my successor now."""
    DONE = 4


class RunningBody(NamedTuple):
    """One running body as its worker wrote it down."""

    slot: int
    job: bytes
    token: int
    deadline: float
    """When its hard limit is, in boottime seconds; 0 for none."""
    retry_in: int
    """Microseconds until the next try if this one times out; -1 if there is none."""
    flags: int
    started: float
    """Boottime seconds; 0 when the worker did not say."""


class SharedState:
    """Shared words and slots; either side may read and write the words at any time."""

    def __init__(self, fd: int, memory: mmap.mmap) -> None:
        self.fd = fd
        self._memory = memory
        self._view = memoryview(memory)
        self._floats = self._view.cast("d")
        self._words = self._view.cast("q")
        self.capacity = (len(memory) - _BASE) // _LINE.size
        self._pack = _LINE.pack_into

    @classmethod
    def create(cls, slots: int = CAPACITY) -> SharedState:
        """A new, empty board. Hand its ``fd`` to the worker."""
        size = _BASE + slots * _LINE.size
        fd = _anonymous_file()
        os.ftruncate(fd, size)
        board = cls(fd, mmap.mmap(fd, size))
        _HEADER.pack_into(board._memory, 0, _MAGIC, slots, 0.0, 0.0, 0.0, Phase.STARTING)
        return board

    @classmethod
    def attach(cls, fd: int) -> SharedState:
        """The board behind an inherited descriptor."""
        size = os.fstat(fd).st_size
        if size < _BASE:
            raise ValueError(f"descriptor {fd} holds no board")
        board = cls(fd, mmap.mmap(fd, size))
        if board._words[0] != _MAGIC:
            board.close()
            raise ValueError(f"descriptor {fd} holds no board, or one of another version")
        return board

    def close(self) -> None:
        """Let go of the memory and the descriptor. Idempotent."""
        if self.fd < 0:
            return
        self._words.release()
        self._floats.release()
        self._view.release()
        self._memory.close()
        os.close(self.fd)
        self.fd = -1

    # ---- words ------------------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """How many slots are in use: a reader looks no further."""
        return self._words[_USED]

    @slots.setter
    def slots(self, count: int) -> None:
        if not 0 < count <= self.capacity:
            raise ValueError(f"a board of {self.capacity} slots cannot hold {count}")
        self._words[_USED] = count

    @property
    def lease_end(self) -> float:
        """Until when the lease is confirmed; 0 before the first beat."""
        return self._floats[_LEASE_END]

    @lease_end.setter
    def lease_end(self, moment: float) -> None:
        self._floats[_LEASE_END] = moment

    def extend(self, until: float) -> None:
        """A beat was confirmed: the lease ends at ``until``, or later if it did already.

        Two sides may race here; the loser's older, earlier moment can stand until the next beat,
        which errs to the safe side.
        """
        self._floats[_LEASE_END] = max(self._floats[_LEASE_END], until)

    @property
    def ticked(self) -> float:
        """When the worker's loop last showed that it turns."""
        return self._floats[_TICKED]

    @ticked.setter
    def ticked(self, moment: float) -> None:
        self._floats[_TICKED] = moment

    @property
    def tried(self) -> float:
        """When the worker last tried to make a turn, with or without success."""
        return self._floats[_TRIED]

    @tried.setter
    def tried(self, moment: float) -> None:
        self._floats[_TRIED] = moment

    @property
    def phase(self) -> int:
        return self._words[_PHASE]

    @phase.setter
    def phase(self, phase: int) -> None:
        self._words[_PHASE] = phase

    # ---- slots ------------------------------------------------------------------------------

    def start(
        self, slot: int, job: bytes, token: int, deadline: float, retry_in: int, flags: int, started: float = 0.0
    ) -> None:
        """A body begins in ``slot``. On the hot path: one pack, no look at what was there."""
        self._pack(self._memory, _BASE + 64 * slot, token, job, deadline, retry_in, flags, started, token)

    def end(self, slot: int) -> None:
        """The body in ``slot`` has ended."""
        self._words[8 + 8 * slot] = 0

    def mark(self, slot: int, flags: int) -> None:
        """Add flags to a running slot."""
        self._words[8 + 8 * slot + _FLAGS_AT] |= flags

    def jobs(self) -> list[RunningBody]:
        """What runs now. Lines in the middle of a change are left out."""
        words = self._words
        heads = words[8 : 8 + 8 * words[_USED] : 8].tolist()
        return [line for slot, token in enumerate(heads) if token and (line := self._read(slot)) is not None]

    def _read(self, slot: int) -> RunningBody | None:
        at = _BASE + 64 * slot
        line = _LINE.unpack_from(self._memory, at)
        if line[0] == 0 or line[0] != line[-1] or line != _LINE.unpack_from(self._memory, at):
            return None
        token, job, deadline, retry_in, flags, started, _ = line
        return RunningBody(slot, job, token, deadline, retry_in, flags, started)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mainspring-board", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile(prefix="mainspring-board-") as file:
        return os.dup(file.fileno())
