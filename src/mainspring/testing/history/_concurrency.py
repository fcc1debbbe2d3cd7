"""Invariants of concurrency: unique keys, limits, rates."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from mainspring.states import FINAL, Action, State
from mainspring.testing.history._events import Found, History, JobEvent, lives, promise_of

Span = tuple[float, float, str]
"""Begin, end, job."""


def keys_are_held_once(history: History) -> Found:
    """I20: no two jobs of one unique key are live at once."""
    spans = defaultdict[str, list[Span]](list)
    for job, events in lives(history).items():
        key = promise_of(history, job).key
        if key:
            ended = events[-1].at if events[-1].state in FINAL or events[-1].state is None else math.inf
            spans[key].append((events[0].at, ended, job))
    for key, found in spans.items():
        yield from ((job, f"was {n} jobs that held the key {key!r} at once") for job, n in above(found, 1))


def limits_are_never_passed(history: History) -> Found:
    """I22: at no moment run more jobs than their limits allow, also if workers die."""
    for bucket, found in _by_bucket(history).items():
        bound = history.limits[bucket]
        if not bound.per:
            yield from (
                (job, f"was one of {n} in {bucket!r}, which has {bound.size}") for job, n in above(found, bound.size)
            )


def rates_are_never_passed(history: History) -> Found:
    """I23: in no window start more jobs than their rates allow."""
    for bucket, found in _by_bucket(history).items():
        bound = history.limits[bucket]
        if bound.per:
            starts = sorted(start for start, _, _ in found)
            for start, _, job in found:
                n = bisect_right(starts, start) - bisect_right(starts, start - bound.per)
                if n > bound.size:
                    yield job, f"was start {n} of {bucket!r} within {bound.per:g} s, which lets {bound.size} through"


def _by_bucket(history: History) -> dict[str, list[Span]]:
    found = defaultdict[str, list[Span]](list)
    for job, events in lives(history).items():
        for bucket in promise_of(history, job).buckets:
            if bucket in history.limits:
                found[bucket] += [span_of(claim, end) for claim, end in runs_of(events)]
    return found


def runs_of(events: list[JobEvent]) -> Iterator[tuple[JobEvent, JobEvent | None]]:
    """Each claim of a job, and its end in the store."""
    claim: JobEvent | None = None
    for event in events:
        if claim is not None and event.state is not State.RUNNING:
            yield claim, event
            claim = None
        if event.action is Action.CLAIM:
            claim = event
    if claim is not None:
        yield claim, None


def span_of(claim: JobEvent, end: JobEvent | None) -> Span:
    return claim.at, math.inf if end is None else end.at, claim.job


def above(spans: Iterable[Span], most: int) -> Iterator[tuple[str, int]]:
    """The jobs that began while more than ``most`` spans were open, and the number of open spans."""
    ends: list[float] = []
    for began, ended, job in sorted(spans):
        ends = [end for end in ends if end > began]
        ends.append(ended)
        if len(ends) > most:
            yield job, len(ends)


CONCURRENCY: dict[str, Callable[[History], Found]] = {
    "I20": keys_are_held_once,
    "I22": limits_are_never_passed,
    "I23": rates_are_never_passed,
}
