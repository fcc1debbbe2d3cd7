"""The ACL rules of a user who may do what Mainspring does in one namespace, and nothing else.

``python -m mainspring.stores.redis [NAMESPACE]`` prints them as one line for a users file or for ``ACL SETUSER``.
CONFIG is not allowed, because CONFIG shows the secrets of the server. Without CONFIG the durability class has no last
word: ``aof`` instead of ``aof-everysec``.
"""

from __future__ import annotations

import re
from functools import cache

from . import catalogue, scripts

PLAIN = (
    *("blpop", "client|setname", "eval", "evalsha", "hget", "hgetall", "hmget", "info", "lrange", "select", "time"),
    *("wait", "zrangebyscore"),
)
"""The commands that are sent outside of scripts."""

FSYNC = "waitaof"
"""The command for ``wait_fsync``. Servers that do not know it refuse an ACL line that names it."""

_CALLED = re.compile(r"\b(?:p?call|gather|spread)\(\s*'([A-Z]+)'")


@cache
def commands() -> tuple[str, ...]:
    """Every command that Mainspring uses, sorted by name."""
    used = set(PLAIN)
    for text in scripts.sources().values():
        used.update(name.lower() for name in _CALLED.findall(text))
    return tuple(sorted(used))


def rules(namespace: str, *, wait_fsync: bool = False) -> list[str]:
    """The rules as words for ``ACL SETUSER``."""
    allowed = (*commands(), FSYNC) if wait_fsync else commands()
    return ["resetkeys", f"~{catalogue.tag(namespace)}*", "resetchannels", "-@all", *(f"+{each}" for each in allowed)]


def line(namespace: str = "default", *, wait_fsync: bool = False) -> str:
    """The line for a users file. The reader replaces the name of the user and the password."""
    return " ".join(["user", "mainspring", "on", ">PASSWORD", *rules(namespace, wait_fsync=wait_fsync)])
