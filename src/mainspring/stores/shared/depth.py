"""Settings of queues, as the engines share them: the stored form, the error of a full queue, and notes."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.errors import QueueFull
from mainspring.jobs.lanes import limit_label
from mainspring.queues.records import QueueSettings

_SHORTEST, _LONGEST = 0.1, 60.0


def stored(settings: QueueSettings) -> dict[str, Any]:
    """The settings for a server that makes the names of lanes: with the labels of the limits beside the limits."""
    found: dict[str, Any] = msgspec.to_builtins(settings)
    if "limits" in found:
        found["labels"] = [limit_label(name) for name, _ in settings.limits or ()]
    return found


def queue_full(queue: str, max_depth: int, on_full: str, *, depth: int, excess: int, age: int) -> QueueFull:
    """The error for ``excess`` jobs too many. ``age``: microseconds that the first of ``depth`` waiting jobs has
    waited.

    In a queue that is processed in order, ``age`` is about the time for all waiting jobs, so ``retry_after`` is a share
    of it. If ``excess`` is greater than ``depth``, the batch does not fit into the empty queue, and waiting is useless.
    """
    if excess > depth:
        return QueueFull(queue, max_depth, _LONGEST, batch=max_depth + excess - depth)
    guess = excess * age / 1e6 / max(depth, 1)
    retry_after = min(max(guess, _SHORTEST), _LONGEST)
    return QueueFull(queue, max_depth, retry_after, waits=on_full == "wait")


def dropped_note(queue: str, max_depth: int) -> str:
    """The note of a job that was dropped because its queue was full."""
    return f"dropped: queue {queue!r} was full (max_depth {max_depth})"


def skipped_note(queue: str, by: str) -> str:
    """The note of a job that was skipped because its queue is disabled."""
    return f"queue {queue!r} is disabled" + (f" by {by}" if by else "")
