"""Named places where a test can kill this process.

``MAINSPRING_FAILPOINT="turn.after:3"`` ends the process by SIGKILL the third time it passes the
point ``turn.after``. The door has a point before and after each store call. Costs one look at a
module global while nothing is armed.

Children inherit the variable. With ``MAINSPRING_FAILPOINT_ONCE=FILE`` only the first process that
gets there dies: whoever can delete the file.
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
    """Nothing is armed any more in this process."""
    _armed.clear()


def hit(name: str) -> None:
    """Pass the point ``name``; does not come back if this was the armed time."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0 and _is_first():
        os.kill(os.getpid(), signal.SIGKILL)


def _is_first() -> bool:
    """Whether no other process has died of this yet."""
    once = os.environ.get("MAINSPRING_FAILPOINT_ONCE")
    try:
        if once:
            os.unlink(once)  # noqa: PTH108 - pathlib costs every import of the package
    except FileNotFoundError:
        return False
    return True


arm(os.environ.get("MAINSPRING_FAILPOINT", ""))
