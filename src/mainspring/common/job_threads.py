"""Which threads run bodies of jobs.

An exception may be raised in such a thread from outside at any bytecode (a time limit, a cancel order).
Code that works for others as well, such as a writer that commits for several callers, must not run
there: it would be struck in their stead.
"""

from __future__ import annotations

import threading

_here = threading.local()


def enter() -> None:
    """The calling thread runs bodies, from now on for good."""
    _here.body = True


def here() -> bool:
    """Whether the calling thread runs bodies."""
    return getattr(_here, "body", False)
