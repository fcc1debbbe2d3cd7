"""Invariants of breakers and of paused and disabled queues."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from msgspec.structs import replace

from mainspring.jobs.outcomes import Outcome
from mainspring.states import Action
from mainspring.testing.history._concurrency import above, runs_of, span_of
from mainspring.testing.history._events import Found, History, JobEvent, Opening, lives, promise_of

Guarded = tuple[JobEvent, JobEvent | None]
"""The claim of a job behind a breaker, and its end."""

_UNDECIDED = frozenset({Outcome.INTERRUPTED, Outcome.SNOOZED, Outcome.CANCELLED})
"""Ends of a probe that leave a breaker half open."""


def closed_gates_hold(history: History) -> Found:
    """I24: no claim behind an open breaker, few at once behind a half open one, none in a disabled queue."""
    runs = defaultdict[str, list[Guarded]](list)
    for job, events in lives(history).items() if history.openings else ():
        for breaker in promise_of(history, job).breakers:
            runs[breaker] += runs_of(events)
    for opening in _openings(history):
        for claim, _ in runs[opening.breaker]:
            if opening.began < claim.at < opening.until:
                yield claim.job, f"was claimed while {opening.breaker!r} was open"
        yield from _too_many_probes(opening, runs[opening.breaker], _over(history, opening))
    yield from _claimed_in_spite(history, disabled=True)


def paused_queues_rest(history: History) -> Found:
    """I25: no claim in a queue between the answer of its pause and the request to resume."""
    yield from _claimed_in_spite(history, disabled=False)


def _claimed_in_spite(history: History, *, disabled: bool) -> Found:
    pauses = [pause for pause in history.pauses if pause.disabled is disabled]
    for event in history.events if pauses else ():
        queue = promise_of(history, event.job).queue
        if event.action is Action.CLAIM and any(
            pause.queue == queue and pause.began < event.at < pause.ended for pause in pauses
        ):
            yield event.job, f"was claimed while its queue {queue!r} was {'disabled' if disabled else 'paused'}"


def _openings(history: History) -> Iterator[Opening]:
    """Each opening, no longer than to the next one of its breaker."""
    found = defaultdict[str, dict[float, Opening]](dict)
    for opening in sorted(history.openings, key=lambda opening: opening.began):
        found[opening.breaker][opening.began] = opening
    for of_one in found.values():
        last = max(of_one.values(), key=lambda opening: opening.began)
        yield from (replace(one, until=min(one.until, next_.began)) for one, next_ in pairwise(of_one.values()))
        yield last


def _over(history: History, opening: Opening) -> float:
    """When the breaker may have opened again. Jobs that run then are no probes any more."""
    opened = (each.began for each in history.openings if each.breaker == opening.breaker)
    moments = (*opened, *history.trips.get(opening.breaker, ()))
    return min((at for at in moments if at > opening.began), default=math.inf)


def _too_many_probes(opening: Opening, runs: Sequence[Guarded], over: float) -> Found:
    """Probes are the jobs claimed since the breaker is half open, until the first probe has closed or opened it."""
    probes = [(claim, end) for claim, end in runs if opening.until <= claim.at < over]
    ends = (end.at for _, end in probes if end is not None and end.outcome not in _UNDECIDED)
    decided = min(ends, default=math.inf)
    for job, n in above((span_of(claim, end) for claim, end in probes if claim.at < decided), opening.probes):
        yield job, f"was probe {n} of {opening.breaker!r}, which lets {opening.probes} through at once"


BREAKERS: dict[str, Callable[[History], Found]] = {
    "I24": closed_gates_hold,
    "I25": paused_queues_rest,
}
