"""Names of lanes.

A lane is the set of things that can hold a job back; jobs inside a lane are alike, so a
claim looks at lane heads only. Every job of a queue that runs in the same kind of slot
shares a base lane; a job that something more can hold back lives in a lane of its own
kind beside it:

    email/async                  base lane: queue "email", async slots
    email/any                    enqueued by name: the producer does not know the kind of slot
    email/async!                 suspects: one more crash of its worker and the job is dead
    email/async?shop.tasks.send  parked: a worker that did not know the task handed it back
    email/async#gate,tenant:7    limited: needs room in the named buckets

A claim names base lanes; the store adds the lanes beside them that the worker may take
from. Queue names have no ``/``, so the base lane can be read off any lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Kind = Literal["async", "thread", "any"]
KINDS: tuple[Kind, ...] = ("async", "thread", "any")


def base_lane(queue: str, kind: str) -> str:
    return f"{queue}/{kind}"


def is_suspect(crashes: int, limit: int) -> bool:
    """Whether a job has crashed and its next crash would be its last: then it is kept apart from others like it."""
    return crashes > 0 and crashes >= limit - 1


def guilt(crashes: int, limit: int) -> int:
    """Whom a crash is charged to if jobs of several kinds ran: 1 those that crashed before, 2 suspects, 0 others."""
    return 2 if is_suspect(crashes, limit) else int(crashes > 0)


def suspect_lane(base: str) -> str:
    return base + "!"


def parked_lane(base: str, task: str) -> str:
    return f"{base}?{task}"


def limited_lane(base: str, buckets: Sequence[str]) -> str:
    return f"{base}#{','.join(sorted(buckets))}"
