"""The line between a worker and the process that watches it: a socket pair, one message per line.

The worker says who it is and how to reach the store before it registers; the other side orders it to
drain or to stop. Its end also tells each side that the other is gone.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Callable, Sequence

import msgspec

from mainspring.stores.connect import StoreAddress
from mainspring.worker.config import WorkerConfig
from mainspring.worker.events.names import MovedJob
from mainspring.worker.supervise import process_tree

PLACE = "MAINSPRING_PLACE"
"""Environment variable with the :class:`ChildEnvironment` of a new worker."""

DRAIN, STOP, TELL = b"d", b"s", b"t"
"""What a watcher says: an order, or (a line of JSON behind it) what it did with the jobs of a dead sibling."""


class ChildEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What a new process inherits: descriptors by number, and who its parent is."""

    link: int
    board: int
    lock: int = -1
    lock_path: str = ""
    parent: int


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A worker is about to register under this id. Durations in microseconds."""

    worker: str
    store: StoreAddress
    lease: int
    grace: int
    drain: int
    until_empty: bool = False
    code: str = ""
    """The version of the code that it runs."""
    hooks: bool = False
    """It has hooks, which want to know what becomes of other workers' jobs."""

    @classmethod
    def of(cls, worker: str, parts: WorkerConfig) -> Hello:
        settings = parts.settings
        return cls(
            worker=worker, store=parts.store, lease=settings.lease, grace=settings.grace, drain=settings.drain,
            until_empty=settings.until_empty, code=parts.version, hooks=bool(parts.hooks),
        )  # fmt: skip


class CannotStart(msgspec.Struct, frozen=True, tag="cannot_start"):
    """The worker ends before it began; ``text`` is for people."""

    text: str


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The worker is over and has retired: nothing more to watch."""


Message = Hello | CannotStart | Bye
_decode = msgspec.json.Decoder(Message).decode
_decode_moves = msgspec.json.Decoder(list[MovedJob]).decode


def pair() -> tuple[socket.socket, socket.socket]:
    """(watcher's end, worker's end)."""
    return socket.socketpair()


class WorkerPipe:
    """The worker's end: says things, and hears orders in a thread of its own.

    The thread starts before any user code is imported. An order that comes before there is a worker
    to obey it ends the process: it has claimed nothing.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()
        self._drain: Callable[[], None] | None = None
        self._stop: Callable[[], None] | None = None
        self._told: Callable[[list[MovedJob]], None] | None = None
        self.orphaned = False
        """The other side is gone."""
        self.over = threading.Event()
        """Set when the worker has ended in good order: the last guard stands down."""

    def say(self, message: Message) -> None:
        """Never raises: a watcher that is gone is noticed by the thread."""
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(msgspec.json.encode(message) + b"\n")

    def listen(self) -> None:
        threading.Thread(target=self._hear, name="mainspring-link", daemon=True).start()

    def obey(self, drain: Callable[[], None], stop: Callable[[], None], told: Callable[[list[MovedJob]], None]) -> None:
        """From now on orders go to these; all may be called from any thread."""
        with self._lock:
            self._drain, self._stop, self._told = drain, stop, told
        if self.orphaned:
            stop()

    def _hear(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as heard:
            while order := heard.read(1):
                if order == TELL:
                    self._tell(heard.readline())
                else:
                    self._pass_on(order)
        self.orphaned = True
        self._pass_on(STOP)
        if not self.over.wait(4.5):
            end_group()

    def _tell(self, line: bytes) -> None:
        if self._told is not None and line.endswith(b"\n"):
            self._told(_decode_moves(line))

    def _pass_on(self, order: bytes) -> None:
        with self._lock:
            act = self._drain if order == DRAIN else self._stop
        if act is None:
            self.say(Bye())
            os._exit(0)
        act()


def end_group() -> None:
    """The last act of a worker whose watcher is gone: what its jobs have started ends with it."""
    for pid in process_tree.family(os.getpid(), os.environ.get(process_tree.MARK, "")):
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


class SupervisorPipe:
    """The watcher's end; never blocks."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._rest = b""
        self._unsent = b""
        self.closed = False
        """The worker's end is closed, or everybody who held it is gone."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> list[Message]:
        """What has come since the last look."""
        while not self.closed:
            try:
                chunk = self._socket.recv(65536)
            except BlockingIOError:
                break
            except OSError:
                chunk = b""
            self.closed = not chunk
            self._rest += chunk
        *lines, self._rest = self._rest.split(b"\n")
        return [_decode(line) for line in lines]

    def order(self, order: bytes) -> None:
        """What does not fit into the line now goes with the next order, or the next look."""
        self._unsent += order
        self.flush()

    def tell(self, jobs: Sequence[MovedJob]) -> None:
        """What became of the jobs of a dead sibling."""
        self.order(TELL + msgspec.json.encode(jobs) + b"\n")

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def close(self) -> None:
        self.closed = True
        self._socket.close()
