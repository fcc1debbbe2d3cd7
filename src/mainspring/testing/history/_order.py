"""The invariant of order: few jobs overtake a job that has the lower order key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from mainspring.jobs.records import order_key
from mainspring.states import Action
from mainspring.testing.history._events import Found, History, lives, promise_of


class _Waited(msgspec.Struct, frozen=True):
    """A job of a line, from its enqueue to its first claim."""

    job: str
    priority: int
    stack: bool
    since: float
    until: float
    worker: str


def lines_are_kept(history: History) -> Found:
    """I26: few jobs overtake a job that comes before them, by priority and age."""
    if not history.bounds.slots:
        return
    lines = defaultdict[str, list[_Waited]](list)
    for job, events in lives(history).items():
        promise = promise_of(history, job)
        claim = next((event for event in events if event.action is Action.CLAIM), None)
        if promise.line and claim is not None:
            waited = _Waited(job, promise.priority, promise.stack, events[0].at, claim.at, claim.worker)
            lines[promise.line].append(waited)
    for line in lines.values():
        line.sort(key=lambda waited: waited.until)
        for one in line:
            meanwhile = [other for other in line if one.since < other.until < one.until]
            yield from _passed(history, one, meanwhile)


def _passed(history: History, one: _Waited, meanwhile: Sequence[_Waited]) -> Found:
    """Claims of two workers may cross: each worker may be ahead by the jobs that it claims at once."""
    passers = [other for other in meanwhile if _is_behind(other, one)]
    most = history.bounds.slots * len({other.worker for other in passers} | {one.worker})
    if len(passers) > most:
        yield one.job, f"was passed by {len(passers)} that were behind it in line, and {most} may"


def _is_behind(other: _Waited, one: _Waited) -> bool:
    """Whether the other job has the higher order key: a point of priority is worth an hour of age."""
    return _key(other) > _key(one)


def _key(waited: _Waited) -> float:
    seq = -waited.since if waited.stack else waited.since
    return order_key(round(seq * 1_000_000), waited.priority)


ORDER: dict[str, Callable[[History], Found]] = {"I26": lines_are_kept}
