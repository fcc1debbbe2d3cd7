"""The invariant of order: few jobs overtake another, and no job waits for ever behind jobs of higher priority."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

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
    """I26: within a priority few jobs overtake an earlier one, and the oldest of all jobs starts in time."""
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
            yield from _starved(history, one, meanwhile, sum(_is_older(other, one) for other in line))


def _passed(history: History, one: _Waited, meanwhile: Sequence[_Waited]) -> Found:
    """Claims of two workers may cross: each worker may be ahead by the jobs that it claims at once."""
    passers = [other for other in meanwhile if other.priority == one.priority and _is_behind(other, one)]
    most = history.bounds.slots * len({other.worker for other in passers} | {one.worker})
    if len(passers) > most:
        yield one.job, f"was passed by {len(passers)} that were behind it in line, and {most} may"


def _starved(history: History, one: _Waited, meanwhile: Sequence[_Waited], older: int) -> Found:
    """Each worker counts its own claims until it takes the oldest job, and claims as many at once as it has slots."""
    urgent = [other for other in meanwhile if other.priority > one.priority]
    workers = len({other.worker for other in urgent} | {one.worker})
    most = (history.bounds.aged + 1) * (older + workers * (history.bounds.slots + 1))
    if len(urgent) > most:
        yield one.job, f"waited for {len(urgent)} that were more urgent, {older} being older, and for {most} it may"


def _is_behind(other: _Waited, one: _Waited) -> bool:
    return other.since < one.since if one.stack else other.since > one.since


def _is_older(other: _Waited, one: _Waited) -> bool:
    """Whether the other job was waiting already when this job was enqueued."""
    return other is not one and other.since <= one.since < other.until


ORDER: dict[str, Callable[[History], Found]] = {"I26": lines_are_kept}
