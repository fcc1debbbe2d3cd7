"""Named places where a test can kill this process.

``MAINSPRING_FAILPOINT="turn.after:3"`` kills the process with SIGKILL when it passes the point ``turn.after`` for the
third time. The door of the store has a point before and after each store call. Without an armed point the cost is one
look at a module global.

Children inherit the variable. With ``MAINSPRING_FAILPOINT_ONCE=FILE`` only one process dies: the process that deletes
the file.
"""

from __future__ import annotations

import os
import signal

_armed: dict[str, int] = {}


def arm(text: str) -> None:
    """Arm points written as ``name:count``, separated by commas."""
    for item in filter(None, text.split(",")):
        name, _, count = item.partition(":")
        _armed[name] = int(count or 1)


def disarm() -> None:
    """Disarm all points in this process."""
    _armed.clear()


def hit(name: str) -> None:
    """Pass the point ``name``; does not return if the point is armed for this pass."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0 and _is_first():
        os.kill(os.getpid(), signal.SIGKILL)


def _is_first() -> bool:
    """Whether this process may die: no other process has deleted the file."""
    once = os.environ.get("MAINSPRING_FAILPOINT_ONCE")
    try:
        if once:
            os.unlink(once)  # noqa: PTH108 - importing pathlib would slow every import of the package
    except FileNotFoundError:
        return False
    return True


arm(os.environ.get("MAINSPRING_FAILPOINT", ""))
