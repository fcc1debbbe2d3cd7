"""Invariants of numbers and times: attempts, delays, clocks, durability, growth."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from mainspring.jobs.outcomes import Outcome
from mainspring.states import Action, Reason, State
from mainspring.testing.history._events import Found, History, JobEvent, Sample, lives, promise_of

_CHARGED = frozenset({Outcome.SUCCEEDED, Outcome.FAILED, Outcome.TIMED_OUT})
"""Outcomes that use up an attempt; all others give it back."""
_LONG_ENOUGH = 8
"""The smallest number of samples of one thing for a check of growth."""


def attempts_are_counted(history: History) -> Found:
    """I9: an attempt counts if the job caused its end; there are no more than retries and crashes allow."""
    for job, events in lives(history).items():
        promise, charged, crashes, epoch = promise_of(history, job), 0, 0, 0
        for event in events:
            if event.epoch != epoch:
                charged, crashes, epoch = 0, 0, event.epoch
            if event.action is Action.CLAIM:
                if event.attempt != charged + 1:
                    yield job, f"its attempt {event.attempt} followed {charged} that count"
                if promise.retries is not None and event.attempt > promise.retries + 1:
                    yield job, f"attempt {event.attempt} of a job with {promise.retries} retries"
            charged += event.outcome in _CHARGED
            crashes += event.outcome is Outcome.CRASHED
        yield from ((job, what) for what in _wrong_death(events[-1], crashes, promise.crashes, early=promise.early))


def _wrong_death(last: JobEvent, crashes: int, limit: int, *, early: bool) -> list[str]:
    by_crash = last.reason in (Reason.CRASHED, Reason.OUT_OF_MEMORY)
    if last.state is State.DEAD and by_crash and crashes < limit and not early:
        return [f"is dead by crashes after {crashes} of {limit}"]
    return []


def nothing_runs_too_early(history: History) -> Found:
    """I14: no claim before the requested moment, nor before a backoff is over."""
    for job, events in lives(history).items():
        promise, earliest = promise_of(history, job), 0.0
        if promise.not_before is not None:
            earliest = promise.not_before
        for event in events:
            if event.action is Action.CLAIM and event.at < earliest:
                yield job, f"was claimed {earliest - event.at:.3f} s too early"
            if event.state is State.RETRYING and event.outcome in _CHARGED:
                earliest = max(earliest, event.at + promise.backoff)


def limits_of_time_hold(history: History) -> Found:
    """I15: no job starts for the first time after it has expired; no body outlasts its time limit."""
    for job, events in lives(history).items():
        expires = promise_of(history, job).expires
        first = next((event.at for event in events if event.action is Action.CLAIM and event.epoch == 1), None)
        if first is not None and expires is not None and first > expires:
            yield job, f"was claimed {first - expires:.3f} s after it had expired"
    for run in history.runs:
        timeout = promise_of(history, run.job).timeout
        if timeout is None or run.ended is None:
            continue
        if run.ended - run.began > timeout + history.bounds.kill:
            yield run.job, f"ran for {run.ended - run.began:.1f} s with a time limit of {timeout:g} s"


def only_the_store_tells_the_time(history: History) -> Found:
    """I34: in the order of the store, times do not go back: no time is of a worker's clock."""
    for job, events in lives(history).items():
        for before, after in pairwise(events):
            if after.at < before.at:
                yield job, f"{after.action} is {before.at - after.at:.3f} s before {before.action}, which came first"


_KEPT = {
    "full": ("sqlite:full", "postgres:full", "redis:aof-everysec", "redis:aof-always"),
    "normal": ("sqlite:", "postgres:", "redis:aof-everysec", "redis:aof-always", "redis:rdb"),
}
"""The classes of stores that satisfy each requested durability."""


def ok_means_kept(history: History) -> Found:
    """I35: the store has the requested durability, and reports it."""
    if history.asked and not history.durability:
        yield "durability", f"{history.asked} was asked for and the store does not say what it keeps"
    elif history.asked and not history.durability.startswith(_KEPT[history.asked]):
        yield "durability", f"{history.asked} was asked for and the store keeps {history.durability}"


def nothing_grows(history: History) -> Found:
    """I36: at the end of a long run nothing is much larger than at its beginning."""
    things: dict[str, list[Sample]] = {}
    for sample in sorted(history.samples, key=lambda sample: sample.at):
        things.setdefault(sample.what, []).append(sample)
    for what, samples in things.items():
        if len(samples) < _LONG_ENOUGH:
            continue
        quarter = len(samples) // 4
        first, last = (max(sample.size for sample in part) for part in (samples[:quarter], samples[-quarter:]))
        if last > first * history.bounds.growth:
            yield what, f"grew from {first:g} to {last:g}"


LIMITS: dict[str, Callable[[History], Found]] = {
    "I9": attempts_are_counted,
    "I14": nothing_runs_too_early,
    "I15": limits_of_time_hold,
    "I34": only_the_store_tells_the_time,
    "I35": ok_means_kept,
    "I36": nothing_grows,
}
