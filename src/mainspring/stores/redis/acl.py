"""The ACL line of a user who may do what Mainspring does, in one namespace, and nothing else.

``python -m mainspring.stores.redis [NAMESPACE]`` prints it for a users file or ``ACL SETUSER``. CONFIG is not in it:
that would show the server's secrets. What is lost is the last word of the durability class, ``aof-everysec``.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from . import keys

PLAIN = (
    *("blpop", "client|setname", "eval", "evalsha", "hget", "hgetall", "hmget", "info", "lrange", "select", "wait"),
    "zrangebyscore",
)
"""The commands that are sent as they are; the others are the scripts'."""

FSYNC = "waitaof"
"""For ``wait_fsync``; older servers do not know it and refuse a line that names it."""

_CALLED = re.compile(r"\b(?:p?call|gather|spread)\(\s*'([A-Z]+)'")


@cache
def commands() -> tuple[str, ...]:
    """Every command that Mainspring uses, by name."""
    used = set(PLAIN)
    for script in files(__package__).joinpath("lua").iterdir():
        used.update(name.lower() for name in _CALLED.findall(script.read_text("utf-8")))
    return tuple(sorted(used))


def rules(namespace: str, *, wait_fsync: bool = False) -> list[str]:
    """What the user may do, as words for ``ACL SETUSER``."""
    allowed = (*commands(), FSYNC) if wait_fsync else commands()
    return ["resetkeys", f"~{keys.tag(namespace)}*", "resetchannels", "-@all", *(f"+{each}" for each in allowed)]


def line(namespace: str = "default", *, wait_fsync: bool = False) -> str:
    """The line for a users file; name and password are for the reader to choose."""
    return " ".join(["user", "mainspring", "on", ">PASSWORD", *rules(namespace, wait_fsync=wait_fsync)])
