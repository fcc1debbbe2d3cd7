"""Signals: which process handles them, what they do, and the exit codes.

| signal | supervisor and worker |
|---|---|
| TERM, INT, HUP | drain: claim no more, finish running jobs, hand back the rest at the limit; a second signal stops |
| QUIT | write the stack of every thread to stderr, in each worker; no process ends |

Only the command line and ``app.run()`` handle signals. An embedded worker never touches them. A handler only records
the call and wakes the loop; the work is done on the loop.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from enum import IntEnum

STOP_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class Exit(IntEnum):
    """Exit codes of a worker and of its supervisor.

    The supervisor exits with the highest code of its workers, and with ``LEFT`` only if all workers ended cleanly.
    """

    CLEAN = 0
    """Every job that had begun was finished."""
    FAILED = 1
    """It could not start."""
    HANDED_BACK = 3
    """At the drain limit, unfinished jobs were handed back."""
    STOPPED = 4
    """A second signal came: bodies were ended, and their jobs handed back."""
    KILLED = 5
    """A worker did not end and was killed; its jobs were given back."""
    LEFT = 6
    """With ``until_empty`` or ``burst``: jobs are left that no live worker can run."""


class StopCounter:
    """Counts stop signals: the first one drains, the second one stops, further ones do nothing."""

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
def handle_stop_signals(on_stop: Callable[[], None]) -> Iterator[None]:
    """Stop signals call ``on_stop`` on the running loop (of the main thread). Afterwards the old handlers are back.

    A signal that the parent process has set to be ignored (``nohup``) stays ignored.
    """
    import asyncio  # the supervisor starts its workers before it imports this

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in STOP_SIGNALS}
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


def reset_in_forked_children() -> None:
    """Give processes that a job forks the default signal handlers.

    A forked child shares the socket by which asyncio learns of signals. Without this, a signal to the child would drain
    its parent, and the child would continue.
    """
    os.register_at_fork(before=_block_signals, after_in_parent=_unblock_signals, after_in_child=_default_handlers)


_forking = threading.local()


def _block_signals() -> None:
    """A signal that comes to the child right after the fork must wait until the child has its own handlers."""
    _forking.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.before)


def _default_handlers() -> None:
    signal.set_wakeup_fd(-1)
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    _unblock_signals()


def dump_on_quit() -> None:
    """SIGQUIT writes the stack of every thread. Written by C code, so it works while the GIL is held."""
    faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True, chain=False)
