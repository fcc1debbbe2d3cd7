"""Memory that one worker shares with the process that watches it: its running jobs, its phase, and its lease.

The worker writes its running jobs; both processes read and write the end of the lease. The memory must be readable
while the worker's loop is blocked, its GIL is held, or the whole process is stopped. So it is plain shared memory (an
anonymous file whose descriptor the child inherits), without locks: neither process ever waits for the other.

A slot is one line of 64 bytes, which begins and ends with the job's token; a token of 0 at the beginning means "empty".
A reader takes a line only if both tokens agree and two reads give the same bytes. A line in the middle of a write is
skipped; the next read, a quarter of a second later, finds it.
"""

from __future__ import annotations

import mmap
import os
import struct
from enum import IntEnum
from typing import NamedTuple

EARLY = 1
"""``ack="early"``: once the job has begun, it must not begin again."""
STRICT = 2
"""The body must end before the lease ends."""
SUSPECT = 4
"""The job has crashed a worker before."""
STUCK = 8
"""The body did not end at its hard limit: this job is to blame when the worker is replaced."""

ORDERED = 16
"""The stuck body was asked to end by a cancel order, not by its time limit."""

UNTOLD = 32
"""The store does not know that the job has ``ack="early"``: its producer knew only the name of the task."""

TRIPS = 64
"""The breaker of the task counts it if the job times out."""

ON_LOOP = 128
"""The body runs on the event loop."""

CALL_SHIFT = 32
"""The bits of the flags from here on: 1 + the slot of its bulk call for each further item of the call; else 0."""

BLOCKED_AFTER = 1.0
"""Seconds without a tick after which the event loop of a worker counts as blocked. A loop ticks twice a second."""

CAPACITY = 16_384
"""Slots, when the settings of the worker are not known yet. Pages that are never written cost no memory."""

_MAGIC = 0x6D61696E_73707231
_HEADER = struct.Struct("=qqdddqq")  # magic, slots in use, lease end, ticked, tried, phase, blocker
_LINE = struct.Struct("=q16sdqqdq")  # token, job, deadline, retry_in, flags, started, token
_BASE = 64
_USED, _LEASE_END, _TICKED, _TRIED, _PHASE, _BLOCKER = 1, 2, 3, 4, 5, 6
_FLAGS_AT = 5  # in words from the line's start


class Phase(IntEnum):
    """The phases of a worker's life."""

    STARTING = 0
    RUNNING = 1
    DRAINING = 2
    REPLACE = 3
    """A body does not end: the supervisor must start a replacement now, and kill this worker after its drain."""
    DONE = 4


class RunningBody(NamedTuple):
    """One running body, as its worker wrote it."""

    slot: int
    job: bytes
    token: int
    deadline: float
    """When its hard limit passes, in boottime seconds; 0 for none."""
    retry_in: int
    """Microseconds until the next attempt if this one times out; -1 for no further attempt."""
    flags: int
    started: float
    """Boottime seconds; 0 if the worker did not write it."""

    @property
    def call_slot(self) -> int:
        """The slot in which the body runs. Further items of a bulk call have lines of their own, and one slot."""
        return (self.flags >> CALL_SHIFT) - 1 if self.flags >> CALL_SHIFT else self.slot


class SharedState:
    """Shared words and slots. Both processes may read and write the words at any time."""

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
        """New, empty shared memory. The worker inherits its ``fd``."""
        size = _BASE + slots * _LINE.size
        fd = _anonymous_file()
        os.ftruncate(fd, size)
        state = cls(fd, mmap.mmap(fd, size))
        _HEADER.pack_into(state._memory, 0, _MAGIC, slots, 0.0, 0.0, 0.0, Phase.STARTING, 0)
        return state

    @classmethod
    def attach(cls, fd: int) -> SharedState:
        """The shared memory behind an inherited descriptor."""
        size = os.fstat(fd).st_size
        if size < _BASE:
            raise ValueError(f"descriptor {fd} is not shared state of a worker")
        state = cls(fd, mmap.mmap(fd, size))
        if state._words[0] != _MAGIC:
            state.close()
            raise ValueError(f"descriptor {fd} is not shared state of a worker, or is of another version")
        return state

    def close(self) -> None:
        """Release the memory and the descriptor. Idempotent."""
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
        """How many slots are in use. A reader reads no further."""
        return self._words[_USED]

    @slots.setter
    def slots(self, count: int) -> None:
        if not 0 < count <= self.capacity:
            raise ValueError(f"shared state with {self.capacity} slots cannot have {count} slots in use")
        self._words[_USED] = count

    @property
    def lease_end(self) -> float:
        """The confirmed end of the lease, in boottime seconds; 0 before the first heartbeat."""
        return self._floats[_LEASE_END]

    @lease_end.setter
    def lease_end(self, moment: float) -> None:
        self._floats[_LEASE_END] = moment

    def extend(self, until: float) -> None:
        """A heartbeat was confirmed: the lease ends at ``until``, or later if a later end was confirmed before.

        Two processes may write at the same time. Then the earlier end may remain until the next heartbeat, which is the
        safe side.
        """
        self._floats[_LEASE_END] = max(self._floats[_LEASE_END], until)

    @property
    def ticked(self) -> float:
        """When the worker's event loop last ran its tick, in boottime seconds."""
        return self._floats[_TICKED]

    @ticked.setter
    def ticked(self, moment: float) -> None:
        self._floats[_TICKED] = moment

    @property
    def tried(self) -> float:
        """When the worker last tried to send a turn, with or without success, in boottime seconds."""
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

    @property
    def blocker(self) -> int:
        """The slot of the body that blocks the worker's event loop; -1 if no such body is known. The value is out of
        date as soon as the loop ticks again."""
        return self._words[_BLOCKER] - 1

    @blocker.setter
    def blocker(self, slot: int) -> None:
        self._words[_BLOCKER] = slot + 1

    # ---- slots ------------------------------------------------------------------------------

    def start(
        self, slot: int, job: bytes, token: int, deadline: float, retry_in: int, flags: int, started: float = 0.0
    ) -> None:
        """A body begins in ``slot``. On the hot path: one pack, without a read."""
        self._pack(self._memory, _BASE + 64 * slot, token, job, deadline, retry_in, flags, started, token)

    def end(self, slot: int) -> None:
        """The body in ``slot`` has ended. Does nothing after ``close()``: a thread can outlive its worker."""
        try:
            self._words[8 + 8 * slot] = 0
        except ValueError:  # the memory is released
            if self.fd >= 0:
                raise

    def mark(self, slot: int, flags: int) -> None:
        """Add flags to a running slot."""
        self._words[8 + 8 * slot + _FLAGS_AT] |= flags

    def jobs(self) -> list[RunningBody]:
        """The running bodies. Lines in the middle of a write are left out."""
        words = self._words
        heads = words[8 : 8 + 8 * words[_USED] : 8].tolist()
        return [line for slot, token in enumerate(heads) if token and (line := self._read(slot)) is not None]

    def read(self, slot: int) -> RunningBody | None:
        """The running body in ``slot``; None if there is none, or if its line is in the middle of a write."""
        return self._read(slot)

    def _read(self, slot: int) -> RunningBody | None:
        at = _BASE + 64 * slot
        line = _LINE.unpack_from(self._memory, at)
        if line[0] == 0 or line[0] != line[-1] or line != _LINE.unpack_from(self._memory, at):
            return None
        token, job, deadline, retry_in, flags, started, _ = line
        return RunningBody(slot, job, token, deadline, retry_in, flags, started)


def _anonymous_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("mainspring-state", os.MFD_CLOEXEC)
    import tempfile

    with tempfile.TemporaryFile(prefix="mainspring-state-") as file:
        return os.dup(file.fileno())
