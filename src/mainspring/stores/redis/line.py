"""The connection of a thread: the blocking twin of :mod:`.wire`, one call at a time."""

from __future__ import annotations

import select
import socket
import time
from typing import Any

from .address import Address
from .resp import MORE, Broken, check_greeting, new_reader, pack, tend

_PART = 65_536


class Line:
    """One connection. Whoever meets an exception in a call closes it: a reply may still be on its way."""

    def __init__(self, address: Address, until: float) -> None:
        self.told: set[str] = set()
        """Scripts whose text was said on it."""
        self._reader = new_reader()
        self._link = _connect(address, until)
        try:
            greeting = [pack(words) for words in address.greeting()]
            check_greeting(self.call(b"".join(greeting), len(greeting), until))
        except BaseException:
            self.close()
            raise

    def is_fresh(self) -> bool:
        """Whether an idle connection can be used: nothing was said on it, not even goodbye."""
        if not hasattr(select, "poll"):  # Windows
            return not select.select([self._link], [], [], 0)[0]
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        return not poll.poll(0)

    def call(self, packed: bytes, replies: int, until: float) -> list[Any]:
        """Send and wait for so many replies, some of which may be errors; all of it before ``until``."""
        link, reader = self._link, self._reader
        link.settimeout(_left(until))
        link.sendall(packed)
        came: list[Any] = []
        while True:
            part = link.recv(_PART)
            if not part:
                raise Broken("the server closed the connection")
            reader.feed(part)
            while (reply := reader.gets()) is not MORE:
                came.append(reply)
            if len(came) >= replies:
                return came
            link.settimeout(_left(until))

    def close(self) -> None:
        self._link.close()

    def __del__(self) -> None:
        """A program need not close its app: what is open goes with it, without a warning."""
        if link := self.__dict__.get("_link"):
            link.close()


def _connect(address: Address, until: float) -> socket.socket:
    if not address.path:
        link = socket.create_connection((address.host, address.port), timeout=_left(until))
    else:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(_left(until))
        if address.path:
            link.connect(address.path)
        tend(link)
        context = address.context()
        return link if context is None else context.wrap_socket(link, server_hostname=address.host)
    except BaseException:
        link.close()
        raise


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise Broken("the time for the call is over")
    return left
