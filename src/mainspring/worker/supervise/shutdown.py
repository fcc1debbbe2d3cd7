"""End a worker's event loop and process, even if user code left tasks or threads behind.

``asyncio.run`` waits without limit for tasks that ignore their cancellation, and for the threads of the default
executor. A worker must end within its time limit: tasks and threads that do not end within the grace are logged and
left behind.
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

_RESTARTS = 100
"""How often a loop that user code has ended runs again, so that its worker can end."""


def run_loop(
    main: Coroutine[Any, Any, R],
    *,
    grace: float,
    factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    on_broken: Callable[[BaseException], None] | None = None,
) -> R:
    """Run ``main`` on a new event loop, and end the loop within about ``grace`` seconds after ``main``.

    ``on_broken`` is called if user code ended the loop from inside: ``sys.exit()`` or ``KeyboardInterrupt`` in another
    task than that of a body, or ``loop.stop()``. If it returns, or is None, the loop runs again, and ``main`` can end.
    """
    loop = (factory or asyncio.new_event_loop)()
    running = loop.create_task(main)
    try:
        for _ in range(_RESTARTS):
            try:
                return loop.run_until_complete(running)
            except BaseException as error:
                if running.done() and not isinstance(error, (SystemExit, KeyboardInterrupt)):
                    raise
                if on_broken is not None:
                    on_broken(error)
                if running.done():
                    raise
        raise RuntimeError("user code ends the event loop again and again")
    finally:
        if _cancel_tasks(loop, grace):
            loop.close()


def describe_broken(error: BaseException) -> str:
    """How user code ended the event loop."""
    return repr(error) if isinstance(error, (SystemExit, KeyboardInterrupt)) else "loop.stop()"


def leave_process(code: int, *, grace: float) -> None:
    """Return if the process can end by itself. If other threads do not end within the grace, end the process here."""
    end = time.monotonic() + grace
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    if any(thread.is_alive() for thread in others):
        names = ", ".join(thread.name for thread in others if thread.is_alive())
        log.warning("jobs left threads behind that do not end; the process exits without waiting for them: %s", names)
        exit_now(code)


def exit_now(code: int) -> None:
    """End the process now: flush logs and streams, and wait for nothing."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def _cancel_tasks(loop: asyncio.AbstractEventLoop, grace: float) -> bool:
    """Cancel the remaining tasks of the loop. False if a task does not end."""
    left = asyncio.all_tasks(loop)
    for task in left:
        task.cancel()
    if left:
        with contextlib.suppress(SystemExit, KeyboardInterrupt, RuntimeError):  # user code ends the loop once more
            loop.run_until_complete(asyncio.wait(left, timeout=grace))
    stubborn = [task for task in left if not task.done()]
    if stubborn:
        names = ", ".join(repr(task.get_coro()) for task in stubborn)
        log.warning("jobs left %d tasks on the event loop that do not end: %s", len(stubborn), names)
        return False
    with contextlib.suppress(TimeoutError, SystemExit, KeyboardInterrupt, RuntimeError):
        loop.run_until_complete(asyncio.wait_for(loop.shutdown_asyncgens(), grace))
    return True
