"""A socket pair that carries messages of any size; large messages travel in shared memory.

A message is four bytes of length and its bytes. If the highest bit of the length is set, the bytes are in an anonymous
file, whose descriptor comes with the header (``SCM_RIGHTS``). Such a file has no name: the kernel releases it with its
last descriptor, also when a process is killed in the middle.

The bytes of a stream may arrive in any pieces, and descriptors arrive with the first piece of their ``sendmsg``. So
both are collected in order: the next flagged header takes the next descriptor.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import socket
import struct
from collections import deque
from collections.abc import Iterator

LARGE = 64 * 1024
"""Messages of more bytes travel in shared memory."""
_HEADER = struct.Struct("=I")
_IN_MEMORY = 1 << 31
_PIECE = 256 * 1024
_FDS = 64
"""Descriptors that are received at once, at most."""


class MessageReader:
    """Takes messages out of the bytes of a channel."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._rest = bytearray()
        self._fds: deque[int] = deque()
        self.closed = False
        """The other side is gone."""
        self.received = 0
        """How many bytes have arrived."""

    def receive(self) -> None:
        """Read what is there now; blocks if the socket blocks and nothing is there. Sets ``closed`` at the end."""
        size = array.array("i").itemsize
        try:
            data, ancillary, _, _ = self._socket.recvmsg(_PIECE, socket.CMSG_SPACE(_FDS * size))
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data, ancillary = b"", []
        for level, kind, found in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds = array.array("i")
                fds.frombytes(found[: len(found) - len(found) % size])
                for fd in fds:
                    os.set_inheritable(fd, False)
                self._fds.extend(fds)
        self.closed = not data
        self.received += len(data)
        self._rest += data

    def messages(self) -> Iterator[bytes | memoryview]:
        """The complete messages so far. Decode each one before the next: a large one is released then."""
        rest, at = self._rest, 0
        try:
            while len(rest) - at >= _HEADER.size:
                (length,) = _HEADER.unpack_from(rest, at)
                if length & _IN_MEMORY:
                    if not self._fds:  # no descriptor was left for it in this process: the message is lost
                        self.closed = True
                        return
                    at += _HEADER.size
                    yield from _read_file(self._fds.popleft(), length & ~_IN_MEMORY)
                    continue
                end = at + _HEADER.size + length
                if len(rest) < end:
                    return
                message = bytes(rest[at + _HEADER.size : end])
                at = end
                yield message
        finally:
            del rest[:at]

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        while self._fds:
            os.close(self._fds.popleft())


def _read_file(fd: int, length: int) -> Iterator[bytes | memoryview]:
    try:
        with mmap.mmap(fd, length, prot=mmap.PROT_READ) as memory, memoryview(memory) as view:
            yield view
    finally:
        os.close(fd)


def frame(message: bytes) -> tuple[bytes, int]:
    """The bytes to send for a message, and the descriptor to send with them, or -1. The caller closes it."""
    if len(message) <= LARGE:
        return _HEADER.pack(len(message)) + message, -1
    return _HEADER.pack(len(message) | _IN_MEMORY), _anonymous_file(message)


def send_now(end: socket.socket, message: bytes) -> None:
    """Send a message over a socket that blocks."""
    data, fd = frame(message)
    if fd < 0:
        end.sendall(data)
        return
    try:
        socket.send_fds(end, [data], [fd])
    finally:
        os.close(fd)


class MessageWriter:
    """Sends messages over a socket that does not block. What the socket does not take waits for :meth:`flush`."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._waiting: deque[tuple[bytes, int]] = deque()

    @property
    def is_waiting(self) -> bool:
        return bool(self._waiting)

    def send(self, message: bytes) -> None:
        """Raises ``OSError`` if the other side is gone."""
        self._waiting.append(frame(message))
        self.flush()

    def flush(self) -> None:
        """Send as much as the socket takes now."""
        while self._waiting:
            data, fd = self._waiting[0]
            try:
                sent = self._socket.send(data) if fd < 0 else socket.send_fds(self._socket, [data], [fd])
            except (BlockingIOError, InterruptedError):
                return
            if fd >= 0:
                os.close(fd)
            if sent < len(data):
                self._waiting[0] = (data[sent:], -1)
            else:
                self._waiting.popleft()

    def close(self) -> None:
        while self._waiting:
            _, fd = self._waiting.popleft()
            if fd >= 0:
                os.close(fd)


def _anonymous_file(content: bytes) -> int:
    """An anonymous file with this content."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("mainspring-message", os.MFD_CLOEXEC)
    else:
        import tempfile

        with tempfile.TemporaryFile(prefix="mainspring-message-") as file:
            fd = os.dup(file.fileno())
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view) :]
    except BaseException:
        with contextlib.suppress(OSError):
            os.close(fd)
        raise
    return fd
