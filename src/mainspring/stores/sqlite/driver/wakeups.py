"""Wake-ups between processes on one machine: a Unix datagram socket for each listener.

The sockets lie in a private directory beside the database. A file next to each socket names the queues of its listener.
After a commit that made jobs ready, the writer sends an empty datagram to each socket of these queues. A datagram may
be lost: every listener polls as well.
"""

# SQLite names files by text, and some of this is asked at every commit:
# ruff: noqa: PTH102, PTH108, PTH110, PTH112, PTH116, PTH118, PTH123, PTH208

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterable

from mainspring.errors import StoreUnavailable

_LONGEST_ADDRESS = 100  # bytes: sun_path takes 104 bytes on macOS, 108 on Linux
_LONGEST_NAME = 40  # bytes of "/worker-pid-random.sock"
_SUFFIX = ".sock"
LOOK_SECONDS = 0.02
"""Seconds between two looks at the directory."""
_TICK = 100_000_000
"""Nanoseconds within which two changes of a directory may get the same time: file systems count in ticks of some ms."""


class SqliteWakeups:
    """The listeners of this process, and the sockets of all other processes. ``folder`` None: this process only."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder if hasattr(socket, "AF_UNIX") else None
        self._listeners: dict[str, SqliteListener] = {}
        self._others: list[tuple[str, frozenset[str]]] = []
        self._listed = 0
        self._looked = 0.0
        self._socket: socket.socket | None = None
        self._sending = threading.RLock()
        """Held while the socket to other processes is opened, used or closed: the writer and ``notify`` may both wake.
        Reentrant, because a signal handler that enqueues may interrupt the same thread."""
        self._base: str | None = None
        self._directory: int | None = None

    # ---- listen -------------------------------------------------------------------------------

    def listen(self, worker: str, queues: Iterable[str]) -> SqliteListener:
        """Make a listener. ``worker`` becomes part of the file name, for people who look into the directory."""
        shown = "".join(filter(str.isalnum, worker.encode("ascii", "ignore").decode()))[:16]
        name = f"{shown}-{os.getpid()}-{os.urandom(4).hex()}{_SUFFIX}"
        address = None if self._folder is None else os.path.join(self._folder, name)
        listener = SqliteListener(frozenset(queues), self._bind(name, queues), lambda: self._forget(name), address)
        self._listeners[name] = listener
        return listener

    def _bind(self, name: str, queues: Iterable[str]) -> socket.socket | None:
        base = self._reachable()
        if base is None or self._folder is None:
            return None
        self._sweep()
        try:
            with open(os.path.join(self._folder, name + ".queues"), "w", encoding="utf-8") as names:
                names.write("\n".join(queues))
            bound = open_socket()
            try:
                bound.bind(f"{base}/{name}")
            except OSError:
                bound.close()
                raise
        except OSError:
            self._remove(name)
            return None
        return bound

    def _forget(self, name: str) -> None:
        if self._listeners.pop(name, None) is not None:
            self._remove(name)

    def _sweep(self) -> None:
        """Remove the sockets of dead processes."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
            for name in self._names():
                try:
                    probe.connect(f"{self._base}/{name}")
                except ConnectionRefusedError:
                    self._remove(name)
                except OSError:
                    pass

    # ---- wake ---------------------------------------------------------------------------------

    def wake(self, queues: set[str]) -> None:
        """Wake the listeners of these queues."""
        for listener in list(self._listeners.values()):
            if not queues.isdisjoint(listener.queues):
                listener.wake()
        if self._folder is None:
            return
        for name, served in self._other_listeners():
            if not queues.isdisjoint(served):
                self._send(name)

    def _send(self, name: str) -> None:
        try:
            with self._sending:
                if self._socket is None:
                    self._socket = open_socket()
                self._socket.sendto(b"", f"{self._base}/{name}")
        except (FileNotFoundError, ConnectionRefusedError):
            self._remove(name)
        except OSError:
            pass  # the buffer is full of wake-ups that the listener has not read yet

    def _other_listeners(self) -> list[tuple[str, frozenset[str]]]:
        """The listeners of other processes: read again if the directory changed, checked every 20 ms at most."""
        assert self._folder is not None
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return self._others
        self._looked = now
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except OSError:
            return []
        if changed != self._listed and self._reachable() is not None:
            self._others = [(name, self._queues_of(name)) for name in self._names() if name not in self._listeners]
            self._listed = (
                changed if time.time_ns() - changed > _TICK else 0
            )  # else another change may get the same time
        return self._others

    def _queues_of(self, name: str) -> frozenset[str]:
        assert self._folder is not None
        try:
            with open(os.path.join(self._folder, name + ".queues"), encoding="utf-8") as names:
                return frozenset(names.read().split("\n"))
        except OSError:
            return frozenset()

    # ---- the directory ------------------------------------------------------------------------

    def _names(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]
        except OSError:
            return []

    def _remove(self, name: str) -> None:
        for file in (name, name + ".queues"):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self._folder or "", file))

    def _reachable(self) -> str | None:
        """A short name of the directory, as socket addresses are short; None if others may write to the directory."""
        if self._base is not None and self._folder is not None and not os.path.isdir(self._folder):
            self._close_descriptors()  # another program removed the directory
        if self._base is None and self._folder is not None and make_private(self._folder):
            self._base = self._folder
            if len(os.fsencode(self._folder)) > _LONGEST_ADDRESS - _LONGEST_NAME:
                self._base = self._by_descriptor()
        return self._base

    def _by_descriptor(self) -> str | None:
        if not os.path.isdir("/proc/self/fd"):
            return None
        assert self._folder is not None
        self._directory = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._directory}"

    def close_listeners(self) -> None:
        """End every wait. Wake-ups still reach other processes until :meth:`close`."""
        for listener in list(self._listeners.values()):
            listener.close()

    def close(self) -> None:
        """Close the descriptors of this process and drop every listener. A later wake-up would open a socket again."""
        self._close_descriptors()
        self._listeners = {}

    def close_after_fork(self) -> None:
        """The same in a forked child. The parent may have held the lock, so the child gets a new one."""
        self._sending = threading.RLock()
        self.close()

    def _close_descriptors(self) -> None:
        """Close the descriptors of this process. The sockets of a parent process stay in the directory."""
        with self._sending:
            if self._socket is not None:
                self._socket.close()
            if self._directory is not None:
                os.close(self._directory)
            self._socket = self._directory = self._base = None
        self._others, self._listed, self._looked = [], 0, 0.0


class SqliteListener:
    """See :class:`mainspring.stores.base.Listener`; ``wait`` uses the running event loop."""

    def __init__(
        self, queues: frozenset[str], bound: socket.socket | None, forget: Callable[[], None], address: str | None
    ) -> None:
        self.queues = queues
        self.is_always_woken = False
        """The commit of a caller's own transaction wakes nobody."""
        self._socket = bound
        self._address = address
        self._forget = forget
        self._lock = threading.Lock()
        self._woken = False
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None

    def wake(self) -> None:
        """Wake the waiter; any thread may call this."""
        with self._lock:
            self._woken = True
            if self._waiter is not None:
                loop, future = self._waiter
                with contextlib.suppress(RuntimeError):  # the loop was closed
                    loop.call_soon_threadsafe(_finish, future)

    async def wait(self, timeout: float) -> bool:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._woken:
                self._woken = False
                self._drain()
                return True
            self._waiter = loop, future
        timer = loop.call_later(timeout, _finish, future)
        file = self._socket.fileno() if self._socket is not None else None
        if file is not None:
            loop.add_reader(file, self._readable)
        try:
            await future
        finally:
            timer.cancel()
            if file is not None:
                loop.remove_reader(file)
            with self._lock:
                woken, self._woken, self._waiter = self._woken, False, None
        if not woken and self._is_cut_off():
            raise StoreUnavailable("the socket for wake-ups was taken away", hint="Listen again.")
        return woken

    def _is_cut_off(self) -> bool:
        return self._socket is not None and self._address is not None and not os.path.exists(self._address)

    def _readable(self) -> None:
        if self._drain():
            self.wake()

    def _drain(self) -> bool:
        came = False
        with contextlib.suppress(OSError):
            while self._socket is not None:
                self._socket.recv(1)
                came = True
        return came

    def close(self) -> None:
        self._forget()
        self.wake()
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def open_socket() -> socket.socket:
    """A datagram socket that never blocks."""
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    opened.setblocking(False)
    return opened


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def make_private(folder: str, owner: tuple[int, int] | None = None) -> bool:
    """Make a directory for this user alone; False if it cannot be made or belongs to another user.

    Root may make it for an ``owner``, by the ids of user and group.
    """
    try:
        os.mkdir(folder, 0o700)
        if owner is not None:
            os.chown(folder, *owner)
    except FileExistsError:
        pass
    except OSError:
        return False
    try:
        found = os.lstat(folder)
    except OSError:
        return False
    mine = not hasattr(os, "geteuid") or found.st_uid == (os.geteuid() if owner is None else owner[0])
    return stat.S_ISDIR(found.st_mode) and mine and not found.st_mode & 0o077
