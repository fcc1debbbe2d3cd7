"""Where a body is: the line of its task and the innermost line, for errors and log lines about late bodies."""

from __future__ import annotations

import inspect
import sys
from pathlib import PurePath
from types import CodeType, CoroutineType, FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mainspring.worker.run.attempt import RunningAttempt


def find_place(attempt: RunningAttempt) -> str:
    """The place of a running body; empty if it is not known. From any other thread than the body's."""
    try:
        if attempt.thread is not None and attempt.thread.ident is not None:
            return place_in_thread(attempt, attempt.thread.ident)
        if attempt.task is not None:
            return _describe(attempt, _frames_of_coroutine(attempt.task.get_coro()))
    except Exception:  # noqa: BLE001 - a place is a help for users: without it the error is still right
        return ""
    return ""


def place_in_thread(attempt: RunningAttempt, ident: int) -> str:
    """The place of a body that is on the stack of this thread."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - the documented way to another thread's stack
    frames: list[FrameType] = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return _describe(attempt, frames[::-1])


def _frames_of_coroutine(coroutine: Any) -> list[FrameType]:
    """The frames of a suspended coroutine and of what it awaits, outermost first."""
    frames: list[FrameType] = []
    while isinstance(coroutine, CoroutineType):
        if coroutine.cr_frame is not None:
            frames.append(coroutine.cr_frame)
        coroutine = coroutine.cr_await
    return frames


def _describe(attempt: RunningAttempt, frames: list[FrameType]) -> str:
    """``tasks.py:12 in send``, and the innermost line if it is another one: ``, in socket.py:706 in readinto``."""
    own = _code_of(attempt.spec.fn)
    task = [place for place, frame in enumerate(frames) if frame.f_code is own]
    if not task:
        return ""
    place = _shown(frames[task[-1]])
    return place if task[-1] == len(frames) - 1 else f"{place}, in {_shown(frames[-1])}"


def _code_of(fn: Any) -> CodeType | None:
    return getattr(inspect.unwrap(fn), "__code__", None)


def _shown(frame: FrameType) -> str:
    return f"{PurePath(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"
