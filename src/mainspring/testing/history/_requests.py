"""The invariant of keys that identify a request: the request makes one job, and each repeat returns that job."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from mainspring.states import State
from mainspring.testing.history._events import Found, History, JobEvent, Request, lives


class _KeyHold(msgspec.Struct, frozen=True):
    """A job held the key, from its enqueue to its end and as long as the key is kept."""

    job: str
    print: str
    began: float
    ended: float


def a_request_is_done_once(history: History) -> Found:
    """I21: a request returns the one job that holds its key; with other arguments it is refused."""
    known, by_key = lives(history), defaultdict[str, list[Request]](list)
    for request in history.requests:
        by_key[request.key].append(request)
    for key, requests in by_key.items():
        made = {request.made: request for request in requests if request.made in known}
        holds = sorted((_hold(known[job], request) for job, request in made.items()), key=lambda hold: hold.began)
        yield from _held_twice(key, holds)
        for request in requests:
            yield from _wrong_answer(history, request, holds)


def _hold(events: Sequence[JobEvent], request: Request) -> _KeyHold:
    last = events[-1]
    kept = {State.SUCCEEDED: request.keep, State.DEAD: 0.0, State.CANCELLED: 0.0, None: 0.0}
    return _KeyHold(request.made, request.print, events[0].at, last.at + kept.get(last.state, math.inf))


def _held_twice(key: str, holds: Sequence[_KeyHold]) -> Found:
    until, holder = -math.inf, ""
    for hold in holds:
        if hold.began < until:
            yield hold.job, f"was made under the key {key!r}, which was that of {holder}"
        if hold.ended > until:
            until, holder = hold.ended, hold.job


def _wrong_answer(history: History, request: Request, holds: Sequence[_KeyHold]) -> Found:
    slack = history.bounds.slack
    there = [hold for hold in holds if hold.began <= request.ended + slack and hold.ended >= request.began - slack]
    if request.answer == "ok":
        given = [hold for hold in there if hold.job == request.job]
        if not given:
            yield request.job, f"was given to a request under {request.key!r}, and did not have that key"
        elif given[0].print != request.print:
            yield request.job, f"was given to a request under {request.key!r} with other arguments"
    elif request.answer == "refused":
        if all(hold.print == request.print for hold in there):
            yield request.made, f"was refused, and no other arguments had the key {request.key!r}"
        if any(hold.job == request.made for hold in holds):
            yield request.made, "was refused, and is there"


REQUESTS: dict[str, Callable[[History], Found]] = {"I21": a_request_is_done_once}
