"""The connection between a worker and the process that watches it: a socket pair, one message per line.

Before it registers, the worker announces its id and the address of the store. The other side orders it to drain or to
stop. When one side ends, the other side sees the end of the connection.
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
from mainspring.worker import process_tree
from mainspring.worker.config import WorkerConfig
from mainspring.worker.events.names import MovedJob
from mainspring.worker.lease.death_lock import DeathLock
from mainspring.worker.lease.shared_state import SharedState

VARIABLE = "MAINSPRING_CHILD"
"""Environment variable with the :class:`ChildEnvironment` of a new process."""

DRAIN, STOP, MOVED_JOBS = b"d", b"s", b"m"
"""The orders of a supervisor. After ``MOVED_JOBS`` follows a line of JSON: jobs of a dead worker that it moved."""

_END_GRACE = 4.5
"""Seconds that an orphaned worker gets to end in order."""


class ChildEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What a new process inherits: descriptors by number, and the pid of its parent."""

    pipe: int
    shared_state: int
    lock: int = -1
    lock_path: str = ""
    parent: int

    @classmethod
    def of(cls, pipe: socket.socket, shared_state: SharedState, lock: DeathLock) -> ChildEnvironment:
        """For a child of this process."""
        return cls(
            pipe=pipe.fileno(), shared_state=shared_state.fd, lock=lock.fd, lock_path=lock.path, parent=os.getpid()
        )

    @classmethod
    def take(cls) -> ChildEnvironment | None:
        """The environment that this process inherited; None if it was not started as a child. Call once.

        The descriptors become private to this process: programs that a job starts must not hold them.
        """
        value = os.environ.pop(VARIABLE, None)
        if value is None:
            return None
        inherited = msgspec.json.decode(value, type=cls)
        for fd in inherited.descriptors:
            os.set_inheritable(fd, False)
        return inherited

    @property
    def descriptors(self) -> tuple[int, int, int]:
        return self.pipe, self.shared_state, self.lock

    def as_variables(self) -> dict[str, str]:
        """The environment variable for the new process."""
        return {VARIABLE: msgspec.json.encode(self).decode()}


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """A worker is about to register under this id. Durations in microseconds."""

    worker: str
    store: StoreAddress
    lease: int
    grace: int
    drain: int
    ends_when_empty: bool = False
    """It ends by itself when no job is left, and is not replaced then."""
    code: str = ""
    """The version of the code that it runs."""
    hooks: bool = False
    """It has hooks, which also get events about the jobs of other workers."""

    @classmethod
    def of(cls, worker: str, config: WorkerConfig) -> Hello:
        settings = config.settings
        return cls(
            worker=worker, store=config.store, lease=settings.lease, grace=settings.grace, drain=settings.drain,
            ends_when_empty=settings.ends_when_empty, code=config.version, hooks=bool(config.hooks),
        )  # fmt: skip


class CannotStart(msgspec.Struct, frozen=True, tag="cannot_start"):
    """The worker could not start and ends. ``text`` is for people."""

    text: str


class StuckBody(msgspec.Struct, frozen=True, kw_only=True, tag="stuck"):
    """A body does not end at its hard limit. If the supervisor must kill the worker, its error names the place."""

    job: str
    """32 hex digits."""
    token: int
    place: str


class Bye(msgspec.Struct, frozen=True, tag="bye"):
    """The worker has retired and ends: there is nothing more to watch."""


Message = Hello | CannotStart | StuckBody | Bye
_decode = msgspec.json.Decoder(Message).decode
_decode_moved = msgspec.json.Decoder(list[MovedJob]).decode


def encode_message(message: Message) -> bytes:
    """The message as one line."""
    return msgspec.json.encode(message) + b"\n"


def create_pipe() -> tuple[socket.socket, socket.socket]:
    """The supervisor's end and the worker's end."""
    return socket.socketpair()


class WorkerPipe:
    """The worker's end: sends messages, and reads orders in a thread.

    The thread starts before any user code is imported. An order that comes before there is a worker to obey it ends the
    process, which has claimed nothing.
    """

    def __init__(self, fd: int) -> None:
        self._socket = socket.socket(fileno=fd)
        self._lock = threading.Lock()
        self._drain: Callable[[], None] | None = None
        self._stop: Callable[[], None] | None = None
        self._on_jobs_moved: Callable[[list[MovedJob]], None] | None = None
        self.orphaned = False
        """The supervisor is gone."""
        self.ended = threading.Event()
        """Set when the worker has ended in order: then an orphaned worker need not kill itself."""

    def send(self, message: Message) -> None:
        """Send a message. Never raises: the thread notices that the supervisor is gone."""
        with self._lock, contextlib.suppress(OSError):
            self._socket.sendall(encode_message(message))

    def listen(self) -> None:
        """Start the thread that reads orders."""
        threading.Thread(target=self._read_orders, name="mainspring-orders", daemon=True).start()

    def set_handlers(
        self,
        drain: Callable[[], None],
        stop: Callable[[], None],
        on_jobs_moved: Callable[[list[MovedJob]], None],
    ) -> None:
        """From now on orders call these functions, in the thread that reads orders."""
        with self._lock:
            self._drain, self._stop, self._on_jobs_moved = drain, stop, on_jobs_moved
        if self.orphaned:
            stop()

    def _read_orders(self) -> None:
        with contextlib.suppress(OSError), self._socket.makefile("rb") as orders:
            while order := orders.read(1):
                if order == MOVED_JOBS:
                    self._pass_moved_jobs(orders.readline())
                else:
                    self._obey(order)
        self.orphaned = True
        self._obey(STOP)
        if not self.ended.wait(_END_GRACE):
            kill_own_family()

    def _pass_moved_jobs(self, line: bytes) -> None:
        if self._on_jobs_moved is not None and line.endswith(b"\n"):
            self._on_jobs_moved(_decode_moved(line))

    def _obey(self, order: bytes) -> None:
        with self._lock:
            act = self._drain if order == DRAIN else self._stop
        if act is None:
            self.send(Bye())
            os._exit(0)
        act()


def kill_own_family() -> None:
    """The last act of a worker whose supervisor is gone: kill the processes that its jobs have started, and itself."""
    for pid in process_tree.list_family(os.getpid(), os.environ.get(process_tree.MARK, "")):
        if pid != os.getpid():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    os.killpg(0, signal.SIGKILL)


class SupervisorPipe:
    """The supervisor's end. Never blocks."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._rest = b""
        self._unsent = b""
        self.closed = False
        """Every process that held the worker's end has closed it or is gone."""

    def fileno(self) -> int:
        return self._socket.fileno()

    def read(self) -> list[Message]:
        """The messages since the last call."""
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

    def send_order(self, order: bytes) -> None:
        """Send an order. If the socket is full now, the order goes with the next order or the next ``flush``."""
        self._unsent += order
        self.flush()

    def send_moved_jobs(self, jobs: Sequence[MovedJob]) -> None:
        """Send the moved jobs of a dead worker, for the hooks of this worker."""
        self.send_order(MOVED_JOBS + msgspec.json.encode(jobs) + b"\n")

    def flush(self) -> None:
        """Send as much as the socket takes now."""
        with contextlib.suppress(OSError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]

    def close(self) -> None:
        self.closed = True
        self._socket.close()
