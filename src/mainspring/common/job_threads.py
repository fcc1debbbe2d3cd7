"""The threads that run bodies of jobs.

An exception may be raised in such a thread from outside at any bytecode (a timeout, a cancel order). Code that works
for several callers, such as a writer that commits for them, must not run in such a thread: the exception would hit the
other callers.
"""

from __future__ import annotations

import threading

_here = threading.local()


def enter() -> None:
    """Mark the calling thread as a thread that runs bodies."""
    _here.body = True


def here() -> bool:
    """Whether the calling thread runs bodies."""
    return getattr(_here, "body", False)
