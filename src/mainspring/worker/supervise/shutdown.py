"""The end of a worker's event loop and process, whatever user code has left on them.

``asyncio.run`` waits without limit for tasks that ignore their cancellation and for threads of the default
executor. A worker has promised when it is gone: what does not end within the grace is named and left.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

R = TypeVar("R")

log = logging.getLogger("mainspring.worker")


def run_loop(
    main: Coroutine[Any, Any, R],
    *,
    grace: float,
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    broken: Callable[[BaseException], None] | None = None,
) -> R:
    """Run ``main`` on a loop of its own, and end the loop within about ``grace`` seconds after it.

    ``broken`` is told when user code stopped the loop from within (``sys.exit()`` in a task it left behind).
    """
    loop = (factory or asyncio.new_event_loop)()
    try:
        return loop.run_until_complete(main)
    except (SystemExit, KeyboardInterrupt) as error:
        if broken is not None:
            broken(error)
        raise
    finally:
        if _clear(loop, grace):
            loop.close()


def leave_process(code: int, *, grace: float) -> None:
    """Return if the process can end by itself; else end it here, when other threads keep it past the grace."""
    give_up = time.monotonic() + grace
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, give_up - time.monotonic()))
    if any(thread.is_alive() for thread in others):
        names = ", ".join(thread.name for thread in others if thread.is_alive())
        log.warning("threads that jobs left behind do not end, the process ends without them: %s", names)
        exit_now(code)


def exit_now(code: int) -> None:
    """End the process; what is written is flushed, nothing is waited for."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _clear(loop: asyncio.AbstractEventLoop, grace: float) -> bool:
    """Cancel what is left on the loop; False if something stays."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        loop.run_until_complete(asyncio.wait(left, timeout=grace))
    stubborn = [task for task in left if not task.done()]
    if stubborn:
        names = ", ".join(repr(task.get_coro()) for task in stubborn)
        log.warning("%d tasks that jobs left on the event loop do not end: %s", len(stubborn), names)
        return False
    with contextlib.suppress(TimeoutError):
        loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), grace))
    return True
