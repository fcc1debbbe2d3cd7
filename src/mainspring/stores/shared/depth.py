"""What the engines have in common about settings of queues: what is written, and what a full queue says."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.errors import QueueFull
from mainspring.jobs.lanes import limit_label
from mainspring.queues.records import QueueSettings

_SHORTEST, _LONGEST = 0.1, 60.0


def stored(settings: QueueSettings) -> dict[str, Any]:
    """Settings for a server that makes lanes itself: beside the limits stands what lanes call them."""
    found: dict[str, Any] = msgspec.to_builtins(settings)
    if "limits" in found:
        found["labels"] = [limit_label(name) for name, _ in settings.limits or ()]
    return found


def queue_full(queue: str, max_depth: int, on_full: str, *, depth: int, excess: int, age: int) -> QueueFull:
    """``excess`` jobs are too many. ``age``: how long the first of the ``depth`` that wait has waited, in microseconds.

    In a queue that is worked off in its order that is how long all of them take. More than all that wait are too
    many of a batch that has no room in the empty queue: nobody waits for that.
    """
    if excess > depth:
        return QueueFull(queue, max_depth, _LONGEST, batch=max_depth + excess - depth)
    guess = excess * age / 1e6 / max(depth, 1)
    retry_after = min(max(guess, _SHORTEST), _LONGEST)
    return QueueFull(queue, max_depth, retry_after, waits=on_full == "wait")


def dropped_note(queue: str, max_depth: int) -> str:
    """What is kept of a job that had to make room."""
    return f"dropped: queue {queue!r} was full (max_depth {max_depth})"


def skipped_note(queue: str, by: str) -> str:
    """What is kept of a job that came to a queue that skips."""
    return f"queue {queue!r} is disabled" + (f" by {by}" if by else "")
