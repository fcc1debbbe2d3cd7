"""Signals: who owns them, what they mean, and the exit codes that tell how it went.

| signal | supervisor and worker |
|---|---|
| TERM, INT, HUP | drain: claim no more, finish, hand back at the limit; the second one stops |
| QUIT | every thread's stack to stderr, in each worker; nothing ends |

Only the command line and ``app.run()`` own signals: an embedded worker never touches them. A handler
only notes that it was called and wakes the loop; the work is done there.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum

STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class Exit(IntEnum):
    """Exit codes of a worker and of its supervisor; the supervisor tells the worst of its workers."""

    CLEAN = 0
    """Everything that was begun was finished."""
    FAILED = 1
    """It could not start."""
    HANDED_BACK = 3
    """At the drain limit unfinished jobs were handed back."""
    STOPPED = 4
    """A second signal: bodies were ended and their jobs handed back."""
    KILLED = 5
    """Something did not end and was killed; its jobs were given back."""


class Stops:
    """Counts stop signals: the first says drain, the second stop; more change nothing."""

    def __init__(self, drain: Callable[[], None], stop: Callable[[], None]) -> None:
        self.count = 0
        self._drain = drain
        self._stop = stop

    def __call__(self) -> None:
        self.count += 1
        if self.count == 1:
            self._drain()
        elif self.count == 2:
            self._stop()


@contextlib.contextmanager
def owned(on_stop: Callable[[], None]) -> Iterator[None]:
    """Stop signals call ``on_stop`` on the running loop (of the main thread); afterwards all is as it was.

    A signal that whoever started us wants ignored (nohup) stays ignored.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOPPING}
    ours = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in ours:
        loop.add_signal_handler(number, on_stop)
    try:
        yield
    finally:
        for number in ours:
            loop.remove_signal_handler(number)
            if (handler := before[number]) is not None:
                signal.signal(number, handler)


def keep_from_children() -> None:
    """A process that a job forks gets the default handlers: else its signals would be taken for ours.

    A forked child shares the socket by which asyncio hears of signals; one that is terminated would drain
    its parent and live on itself.
    """
    os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_default_handlers)


_forking = threading.local()


def _hold_back() -> None:
    """A signal that is sent to the child at once must wait until it has handlers of its own."""
    _forking.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.before)


def _default_handlers() -> None:
    signal.set_wakeup_fd(-1)
    for number in STOPPING:
        signal.signal(number, signal.SIG_DFL)
    _let_through()


def dump_on_quit() -> None:
    """SIGQUIT shows every thread's stack. Written by C code: works while the GIL is held."""
    faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True, chain=False)
