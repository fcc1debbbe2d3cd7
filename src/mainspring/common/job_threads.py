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


class Latch:
    """A thread waits until another thread sets it, once.

    ``threading.Event`` has a lock that an exception can leave acquired, if it is raised in the waiting thread at the
    wrong bytecode. Then the other thread would wait in ``set`` for ever. A plain lock has no such moment.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """Let the waiting thread go on."""
        if self._unset.locked():
            self._unset.release()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for ``set``, or for this time; whether it was set."""
        return self._unset.acquire(timeout=-1 if seconds is None else seconds)
