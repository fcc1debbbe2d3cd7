"""The words of the protocol: commands are packed and replies are parsed by hiredis, in C."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final, cast

import hiredis

MORE: Final = object()
"""What a reader says when a reply is not whole yet."""

pack: Callable[[tuple[bytes | str | float, ...]], bytes] = cast("Any", hiredis.pack_command)
"""A command as the server reads it."""

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 8_000}


class ServerError(Exception):
    """The server answered, and the answer is an error. Its first word is the code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class Broken(ConnectionError):
    """The connection is gone; whether the last calls took effect is unknown."""


def new_reader() -> hiredis.Reader:
    """For one connection."""
    return hiredis.Reader(protocolError=Broken, replyError=ServerError, notEnoughData=MORE)


def tend(link: socket.socket) -> None:
    """Send small packets at once, and notice within ten seconds or so that nobody is at the other end."""
    if link.family == getattr(socket, "AF_UNIX", None):
        return
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not every system has all of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def check(reply: Any) -> Any:
    """The reply, unless it is an error."""
    if isinstance(reply, ServerError):
        raise reply
    return reply


def check_greeting(replies: list[Any]) -> None:
    """The last one gives the connection a name: a user who may not do that is let in all the same."""
    *needed, named = replies
    for reply in needed:
        check(reply)
    if isinstance(named, ServerError) and named.code != "NOPERM":
        raise named
