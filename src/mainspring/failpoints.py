"""Named places where a test can kill this process.

``MAINSPRING_FAILPOINT="turn.after:3"`` ends the process by SIGKILL the third time it passes the
point ``turn.after``. The door has a point before and after each store call. Costs one look at a
module global while nothing is armed.
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


def hit(name: str) -> None:
    """Pass the point ``name``; does not come back if this was the armed time."""
    if not _armed or name not in _armed:
        return
    _armed[name] -= 1
    if _armed[name] <= 0:
        os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("MAINSPRING_FAILPOINT", ""))
