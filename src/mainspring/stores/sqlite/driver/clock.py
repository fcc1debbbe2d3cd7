"""The time of a store that is a file: the clock of the machine, which here never goes back.

The time is the seconds since boot plus an offset, and the offset only grows: it is the largest difference seen between
the clock of the machine and the seconds since boot. After the clock was set back, the time goes on from where it was
until the clock has caught up. All processes that have the file open share the offset, in a file of 64 bytes beside the
database that they map into memory, so they have one time. The first process that opens the file while no other process
uses it begins with the clock of the machine again.
"""

# SQLite names files by text:
# ruff: noqa: PTH123

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable
from contextlib import suppress

from mainspring.common.clock import boottime

from .files import NO_LINK

_SIZE = 64
_AT = 5
"""The offset is the sixth number of 8 bytes, behind the id of the boot."""


def _realtime() -> int:
    """The kernel's clock: the same for every process of the machine, also for one whose ``time.time`` was shifted."""
    if hasattr(time, "clock_gettime_ns"):
        return time.clock_gettime_ns(time.CLOCK_REALTIME) // 1_000
    return time.time_ns() // 1_000


class WallClock:
    """Microseconds since 1970, the same in all processes that :meth:`share` it."""

    def __init__(self, wall: Callable[[], int] = _realtime, flow: Callable[[], float] = boottime) -> None:
        self._wall = wall
        self._flow = flow
        self._shared = memoryview(bytearray(_SIZE)).cast("q")
        self._path = ""

    def __call__(self) -> int:
        now = self._wall()  # before the seconds since boot: a pause between the two must not make the offset larger
        flown = int(self._flow() * 1e6)
        offset = self._shared[_AT]
        if now - flown > offset:
            self._shared[_AT] = now - flown
            return now
        return offset + flown

    def share(self, path: str, *, begin: bool) -> None:
        """Share the offset through this file. ``begin``: no other process uses it, so what it says does not count."""
        if self._path == path:
            return
        boot = _boot_id()
        if not boot:
            return
        with suppress(OSError):
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
            try:
                known = os.read(file, _SIZE)
                if begin or len(known) != _SIZE or known[: len(boot)] != boot:  # else it is of an earlier boot
                    os.pwrite(file, boot.ljust(_SIZE, b"\0"), 0)
                shared = memoryview(mmap.mmap(file, _SIZE)).cast("q")
            finally:
                os.close(file)
            shared[_AT] = max(shared[_AT], self._shared[_AT])
            self._shared, self._path = shared, path

    def leave(self) -> None:
        """Share no longer: the next :meth:`share` looks at the file again. The time goes on."""
        if self._path:
            self._shared, self._path = memoryview(bytearray(self._shared.tobytes())).cast("q"), ""


def _boot_id() -> bytes:
    """The id of this boot of the machine; empty if the system has none, and then nothing is shared."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as opened:
            return opened.read().strip()[: 8 * _AT]
    except OSError:
        return b""
