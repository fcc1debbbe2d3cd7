"""The connection of a thread: the blocking twin of :mod:`.loop_connection`, one call at a time."""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from .address import RedisAddress
from .resp import INCOMPLETE, ConnectionBroken, check_greeting, new_reader, pack, raise_broken, set_socket_options

_PART = 65_536
"""Bytes that one read asks for."""


class ThreadConnection:
    """One connection. A caller that meets an exception in a call closes it: a reply may still be on its way."""

    def __init__(self, address: RedisAddress, until: float) -> None:
        self.known_scripts: set[str] = set()
        """Scripts whose whole text was sent on this connection."""
        self._reader = new_reader()
        try:
            self._socket = _connect(address, until)
        except OSError as error:
            raise_broken(error, __name__)
        try:
            greeting = [pack(words) for words in address.greeting()]
            check_greeting(self.call(b"".join(greeting), len(greeting), until))
        except BaseException:
            self.close()
            raise

    def is_fresh(self) -> bool:
        """Whether an idle connection can be used: the server has sent nothing on it and has not closed it."""
        if not hasattr(select, "poll"):  # Windows
            return not select.select([self._socket], [], [], 0)[0]
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def call(self, packed: bytes, replies: int, until: float) -> list[Any]:
        """Send, and wait until ``until`` for this many replies. Some of the replies may be errors."""
        link, reader = self._socket, self._reader
        link.settimeout(_seconds_left(until))
        try:
            link.sendall(packed)
        except OSError as error:
            raise_broken(error, __name__)
        received: list[Any] = []
        while True:
            try:
                part = link.recv(_PART)
            except OSError as error:
                raise_broken(error, __name__)
            if not part:
                raise ConnectionBroken("the server closed the connection")
            reader.feed(part)
            while (reply := reader.gets()) is not INCOMPLETE:
                received.append(reply)
            if len(received) >= replies:
                return received
            link.settimeout(_seconds_left(until))

    def close(self) -> None:
        self._socket.close()

    def __del__(self) -> None:
        """A program need not close its app: an open connection is closed without a warning."""
        if link := self.__dict__.get("_socket"):
            link.close()


def _connect(address: RedisAddress, until: float) -> socket.socket:
    if not address.path:
        link = socket.create_connection((address.host, address.port), timeout=_seconds_left(until))
    else:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(_seconds_left(until))
        if address.path:
            link.connect(address.path)
        set_socket_options(link)
        context = address.context()
        return link if context is None else context.wrap_socket(link, server_hostname=address.host)
    except BaseException:
        link.close()
        raise


def _seconds_left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise ConnectionBroken("the time for the call is over")
    return left
