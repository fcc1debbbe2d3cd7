"""A body that forks: the child must not continue as a worker.

``os.fork()`` copies the thread that calls it, with the whole stack: in the child, too, the body of the task returns to
the worker. There the child would wait for jobs that never come, or run the other jobs of the event loop a second time.
So it ends where the body ends. If the body of an async task does not end but waits, the child ends at that moment,
before it returns to the event loop. The job belongs to the parent, which goes on.

A callback of the event loop (``loop.call_soon``) that forks has no body that could end. The child then returns to the
loop and ends there. The epoll descriptor of the loop is shared with the parent, so the child gets an empty one in its
place: with the shared one it would read the wake-up that another thread had just sent to the parent, and uvloop in the
parent, which sends no second wake-up before the first one was read, would never wake up again.

A function in a thread pool (``asyncio.to_thread``) that forks returns to the pool in the child as well, where its
thread would wait for the next work item for ever. So the child ends where the work item ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import select
import sys
import threading
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from mainspring.worker.run.attempt import RunningAttempt

log = logging.getLogger("mainspring.worker")

_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loops of the workers in this process, by thread."""
_process = os.getpid()
"""The id of this process. It changes at a fork only; to ask the kernel for each job takes a microsecond."""
_WAITED = "the body of an async task waited"
_HINT = "End a forked process with os._exit(0), or use subprocess or multiprocessing."


def end_forked_child(attempt: RunningAttempt, error: BaseException | None = None) -> None:
    """End this process if the body of the attempt, which has just ended, has forked it."""
    if _process != attempt.environment.pid:
        _end(f"the body of task {attempt.claim.task!r} (job {UUID(bytes=attempt.claim.id)}) ended", error)


def refuse_forked_child(attempt: RunningAttempt) -> None:
    """End this process if it is a forked child whose event loop is about to start another body.

    The loop of asyncio runs nothing else before the child ends. Other loops, such as uvloop, run what was ready.
    """
    if _process != attempt.environment.pid:
        _end(_WAITED, None)


@contextlib.contextmanager
def guard_loop(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Used in the thread of a worker's loop: a process that is forked in this thread must not run the loop."""
    thread = threading.get_ident()
    _loops[thread] = loop
    try:
        yield
    finally:
        _loops.pop(thread, None)


def _after_fork() -> None:
    global _process  # noqa: PLW0603  # the hook of the interpreter has no other place for it
    _process = os.getpid()
    loop = _loops.get(threading.get_ident())
    if loop is None:
        frame = _frame_of_work_item() if _loops else None
        if frame is not None:
            _end_with(frame, "the function of a thread pool ended")
        return
    _detach_from_parent(loop)
    ready = getattr(loop, "_ready", None)  # asyncio has no public access to them
    for handle in list(ready or ()):
        handle.cancel()
    loop.call_soon(_end, _WAITED, None)
    task = asyncio.current_task(loop)
    frame = None if task is None else getattr(task.get_coro(), "cr_frame", None)
    if ready is None and frame is not None:
        _end_with(frame, _WAITED)


def _frame_of_work_item() -> FrameType | None:
    """The frame in which a ``ThreadPoolExecutor`` runs the function that called this; None in other threads."""
    pool = sys.modules.get("concurrent.futures.thread")
    frame: FrameType | None = sys._getframe()  # noqa: SLF001  # the only way to the frames of a thread
    while frame is not None and pool is not None:
        if frame.f_code.co_name == "run" and frame.f_globals is vars(pool):
            return frame
        frame = frame.f_back
    return None


def _end_with(frame: FrameType, what: str) -> None:
    """End this process when the frame returns, or waits as the running task's coroutine does; ``what`` says so.

    uvloop would run all other callbacks that are ready before the one of `call_soon`. The profile function makes Python
    code several times slower. A child of ``multiprocessing`` ends by itself and never returns to the frame, so it
    removes the function before it begins.
    """

    def on_event(current: FrameType, event: str, _: Any) -> None:
        if event == "return" and current is frame:
            _end(what, None)

    sys.setprofile(on_event)
    if (util := sys.modules.get("multiprocessing.util")) is not None:
        util.register_after_fork(on_event, lambda _: sys.setprofile(None))


def _detach_from_parent(loop: asyncio.AbstractEventLoop) -> None:
    """Give the loop of the child an epoll descriptor of its own that watches nothing. (A kqueue is not inherited.)"""
    if not hasattr(select, "epoll"):
        return
    of_uvloop = getattr(loop, "_get_backend_id", None)
    fileno = getattr(getattr(loop, "_selector", None), "fileno", None) if of_uvloop is None else of_uvloop
    if fileno is None:  # a selector without a descriptor, which is not shared
        return
    shared = fileno()
    with select.epoll() as own:
        os.dup2(own.fileno(), shared, inheritable=False)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _end(what: str, error: BaseException | None) -> NoReturn:
    code = _exit_code(error)
    traceback = None if error is None or isinstance(error, SystemExit) else error
    text = (
        f"{what} in the process {os.getpid()}, which it had forked; that process ends with the code {code}\n  {_HINT}"
    )
    try:
        log.error("%s", text, exc_info=traceback)
    finally:
        os._exit(code)


def _exit_code(error: BaseException | None) -> int:
    """The exit code as Python chooses it for a program that ends like this."""
    if not isinstance(error, SystemExit):
        return 0 if error is None else 1
    return error.code if isinstance(error.code, int) else int(error.code is not None)
