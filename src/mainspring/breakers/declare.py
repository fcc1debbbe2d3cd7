"""Breakers as users declare them: when they open, for how long, and what is tried then.

A breaker is known to the store by its name with ``:breaker`` behind it, so that no limit has the same one. What it
goes by is no part of the name, so it can change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mainspring.breakers.records import BREAKER_SUFFIX
from mainspring.errors import BreakerOpen, InvalidOption, Signal
from mainspring.limits.records import Limit

_MILLION = 1_000_000


class DeclaredBreaker:
    """What a breaker goes by, under a name of its own or under that of the task which has it."""

    by = None
    """A breaker is one for all: it has no keys."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """``options`` are resolved ones."""
        self.name = name
        self.options = options
        self.trip_on: tuple[type[BaseException], ...] = options["trip_on"]
        """Errors that count; empty for those that may be retried."""
        self.fallback: Callable[..., Any] | None = options["fallback"]

    @property
    def weighs(self) -> bool:
        """Whether it goes by a share of failures, so that successes have to be counted."""
        return self.options["rate"] is not None

    def limit(self, owner: str = "") -> Limit:
        """What the store is told of it."""
        o, name = self.options, (self.name or owner) + BREAKER_SUFFIX
        if self.weighs:
            share = max(1, round(o["rate"] * _MILLION))
            return Limit(
                name=name, kind="breaker", size=o["probes"], per=o["open_for"], burst=o["minimum"], share=share,
                span=o["over"],
            )  # fmt: skip
        return Limit(name=name, kind="breaker", size=o["probes"], per=o["open_for"], burst=o["failures"])

    def counts(self, error: BaseException, *, retryable: bool) -> bool:
        """Whether this error is a failure of what the breaker guards."""
        return isinstance(error, self.trip_on) if self.trip_on else retryable


def declare_breaker(
    name: str, resolved: Mapping[str, Any], given: Mapping[str, object], subject: str
) -> DeclaredBreaker:
    """A breaker with these resolved options; refused if the ``given`` ones do not go together."""
    if resolved["rate"] is not None and "failures" in given:
        hint = "failures=5 counts consecutive failures; rate=0.5, minimum=20, over='1m' counts a share of the calls."
        raise InvalidOption("failures", given["failures"], "cannot be given with rate", subject=subject, hint=hint)
    for option in ("minimum", "over"):
        if resolved["rate"] is None and option in given:
            raise InvalidOption(option, given[option], "can only be given with rate", subject=subject, hint="rate=0.5")
    return DeclaredBreaker(name, resolved)


def to_breaker(value: Any, name: str) -> tuple[DeclaredBreaker, ...]:
    """The option of a task in normal form: one breaker or none."""
    if value is None or value == ():
        return ()
    if isinstance(value, DeclaredBreaker):
        found = value
    else:
        hint = 'breaker=app.breaker("payments"), or its options: breaker={"failures": 5, "open_for": "30s"}'
        raise InvalidOption(name, value, "is not a breaker", hint=hint)
    if found.fallback is not None:
        hint = "Jobs wait while a breaker is open. A fallback is for functions: @breaker.at(fallback=...)."
        raise InvalidOption(name, value, "has a fallback, and a job has no use for it", hint=hint)
    return (found,)


def is_failure(guard: DeclaredBreaker, error: BaseException) -> bool:
    """Whether guarded code that raised this has failed: an end by order, or a word to the worker, is none."""
    ordinary = isinstance(error, Exception) and not isinstance(error, (Signal, BreakerOpen))
    return guard.counts(error, retryable=ordinary)
