"""Breakers as users declare them: when they open, for how long, and how many probes they start.

The name of a breaker in the store ends in ``:breaker``, so no limit has the same name. Its options are not part of the
name, so they can change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mainspring.breakers.records import BREAKER_SUFFIX
from mainspring.errors import BreakerOpen, InvalidOption, Signal
from mainspring.limits.records import Limit

_MILLION = 1_000_000


class DeclaredBreaker:
    """The options of a breaker, with a name of its own; "" for a breaker that is named after its task."""

    by = None
    """A breaker has no keys: there is one for all jobs."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        """``options`` must be resolved (``resolve_options``)."""
        self.name = name
        self.options = options
        self.trip_on: tuple[type[BaseException], ...] = options["trip_on"]
        """The errors that count as failures; empty: every error that may be retried."""
        self.fallback: Callable[..., Any] | None = options["fallback"]

    @property
    def uses_rate(self) -> bool:
        """Whether a share of failures opens it (``rate=``), so that successes must be counted too."""
        return self.options["rate"] is not None

    def limit(self, owner: str = "") -> Limit:
        """Return the breaker as the store keeps it."""
        o, name = self.options, (self.name or owner) + BREAKER_SUFFIX
        if self.uses_rate:
            share = max(1, round(o["rate"] * _MILLION))
            return Limit(
                name=name, kind="breaker", size=o["probes"], per=o["open_for"], burst=o["minimum"], share=share,
                span=o["over"],
            )  # fmt: skip
        return Limit(name=name, kind="breaker", size=o["probes"], per=o["open_for"], burst=o["failures"])

    def counts(self, error: BaseException, *, retryable: bool) -> bool:
        """Whether this error counts as a failure."""
        return isinstance(error, self.trip_on) if self.trip_on else retryable


def declare_breaker(
    name: str, resolved: Mapping[str, Any], given: Mapping[str, object], subject: str
) -> DeclaredBreaker:
    """A breaker with these resolved options; refused if the ``given`` ones do not go together."""
    if resolved["rate"] is not None and "failures" in given:
        hint = "failures=5 counts consecutive failures; rate=0.5, minimum=20, over='1m' counts a share of the calls."
        raise InvalidOption("failures", given["failures"], "cannot be combined with rate", subject=subject, hint=hint)
    for option in ("minimum", "over"):
        if resolved["rate"] is None and option in given:
            raise InvalidOption(option, given[option], "works with rate only", subject=subject, hint="Add rate=0.5.")
    return DeclaredBreaker(name, resolved)


def to_breaker(value: Any, name: str) -> tuple[DeclaredBreaker, ...]:
    """Return the option of a task in normal form: a tuple with one breaker or none."""
    if value is None or value == ():
        return ()
    if isinstance(value, DeclaredBreaker):
        found = value
    else:
        hint = 'breaker=app.breaker("payments"), or its options: breaker={"failures": 5, "open_for": "30s"}'
        raise InvalidOption(name, value, "is not a breaker", hint=hint)
    if found.fallback is not None:
        hint = "Jobs wait while a breaker is open. Use a fallback for a function: @breaker.at(fallback=...)."
        raise InvalidOption(name, value, "has a fallback, which does not work for tasks", hint=hint)
    return (found,)


def is_failure(guard: DeclaredBreaker, error: BaseException) -> bool:
    """Whether this error of guarded code counts as a failure. Cancellation and the signals to the worker do not."""
    ordinary = isinstance(error, Exception) and not isinstance(error, (Signal, BreakerOpen))
    return guard.counts(error, retryable=ordinary)
