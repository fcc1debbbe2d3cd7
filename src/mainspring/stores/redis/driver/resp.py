"""The Redis protocol: hiredis packs commands and parses replies, in C."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, cast

import hiredis

INCOMPLETE: Final = object()
"""The value that a reader returns while a reply is not complete."""

_pack: Callable[[tuple[bytes | str, ...]], bytes] = cast("Any", hiredis.pack_command)

_KEEPALIVE = {"TCP_KEEPIDLE": 5, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 8_000}
"""Seconds, seconds, probes, milliseconds."""


class ServerError(Exception):
    """The server answered with an error. The first word of the text is its code."""

    @property
    def code(self) -> str:
        return str(self).partition(" ")[0]


class ConnectionBroken(ConnectionError):
    """The connection is gone. It is unknown whether the last calls took effect."""


def pack(words: Iterable[bytes | str | float]) -> bytes:
    """A command as the server reads it.

    hiredis gets no numbers. It asks ``repr()`` for their digits, and does not check the result: ``repr()`` fails if a
    signal handler of the program raises at that moment, and the process would crash (SIGSEGV).
    """
    return _pack(tuple([word if isinstance(word, (bytes, str)) else str(word) for word in words]))


_SOCKET_MODULES: Final = frozenset({"builtins", "socket", "ssl"})


def raise_broken(error: OSError, module: str) -> NoReturn:
    """Raise ``ConnectionBroken`` for an error of the socket that ``module`` called. Raise any other error unchanged.

    An exception may interrupt a call: a time limit of the job, or a signal handler of the program that raises. It may
    be an ``OSError`` as well, because ``TimeoutError`` is one. An error of the socket is of a class of Python itself,
    and is raised by the code of the socket, or in the frame that calls it.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    raised_in = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    if type(error).__module__ in _SOCKET_MODULES and raised_in in (*_SOCKET_MODULES, module):
        raise ConnectionBroken(str(error) or type(error).__name__) from error
    raise error


def new_reader() -> hiredis.Reader:
    """A parser of replies for one connection."""
    return hiredis.Reader(protocolError=ConnectionBroken, replyError=ServerError, notEnoughData=INCOMPLETE)


def set_socket_options(link: socket.socket) -> None:
    """Send small packets at once, and notice within about ten seconds that the server is unreachable."""
    if link.family == getattr(socket, "AF_UNIX", None):
        return
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not every system has all of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def check(reply: Any) -> Any:
    """The reply. Raises it if it is an error."""
    if isinstance(reply, ServerError):
        raise reply
    return reply


def check_greeting(replies: list[Any]) -> None:
    """Check the replies to the first commands. The last command, SETNAME, may be forbidden for this user."""
    *needed, named = replies
    for reply in needed:
        check(reply)
    if isinstance(named, ServerError) and named.code != "NOPERM":
        raise named
