"""How long a failed job waits before its next attempt.

A delay grows with the attempt, is limited by ``cap`` and then shortened by jitter, so it is never longer than ``cap``.
``jitter="full"`` draws a delay from 0 to the whole delay, ``"none"`` uses the whole delay, and a fraction such as 0.1
draws from 90 % to 100 % of it.

=============  =====================================  ========================  =========
kind           delay of attempt n                     cap                       jitter
=============  =====================================  ========================  =========
exponential    base x factor^(n-1)                    10 min, or base if more   full
linear         base + step x (n-1)                    10 min, or base if more   full
fixed          base                                   none                      none
of (function)  fn(n, error)                           none                      none
=============  =====================================  ========================  =========

``fixed`` and ``of`` give exact delays: they have no cap and no jitter unless these are given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Literal, Protocol

import msgspec

from mainspring.common.duration import LONGEST_US, Duration, format_duration, to_us
from mainspring.errors import InvalidOption

BackoffFunction = Callable[[int, BaseException | None], Duration]
Jitter = Literal["full", "none"] | float

_CAP: Duration = "10m"
_HINT = 'Write "30s", "exponential", Backoff.exponential("5s", factor=4), or a function(attempt, error).'


class Random(Protocol):
    """The part of ``random`` that jitter uses."""

    def random(self) -> float: ...


class Backoff(msgspec.Struct, frozen=True):
    """A rule for delays between attempts; make one with its constructors.

    >>> rule = Backoff.exponential("5s", factor=4, jitter="none")
    >>> [rule.delay(attempt).total_seconds() for attempt in (1, 2, 3, 4, 5)]
    [5.0, 20.0, 80.0, 320.0, 600.0]
    """

    kind: Literal["fixed", "linear", "exponential", "function"]
    base_us: int = 0
    step_us: int = 0
    factor: float = 1.0
    cap_us: int | None = None
    jitter: float = 0.0
    fn: BackoffFunction | None = None

    @classmethod
    def fixed(cls, delay: Duration, *, cap: Duration | None = None, jitter: Jitter = "none") -> Backoff:
        """The same delay each time."""
        base = to_us(delay, what="backoff delay")
        return cls("fixed", base_us=base, cap_us=_cap(cap, base), jitter=_jitter(jitter))

    @classmethod
    def linear(
        cls,
        base: Duration = "5s",
        *,
        step: Duration | None = None,
        cap: Duration | None = None,
        jitter: Jitter = "full",
    ) -> Backoff:
        """``base`` at first, and ``step`` more each time; the default of ``step`` is ``base``."""
        base_us = to_us(base, what="backoff base")
        step_us = base_us if step is None else to_us(step, what="backoff step")
        cap_us = _cap(cap, base_us, default=_CAP)
        return cls("linear", base_us=base_us, step_us=step_us, cap_us=cap_us, jitter=_jitter(jitter))

    @classmethod
    def exponential(
        cls, base: Duration = "5s", *, factor: float = 4, cap: Duration | None = None, jitter: Jitter = "full"
    ) -> Backoff:
        """``base`` at first, and ``factor`` times as long each time."""
        base_us = to_us(base, what="backoff base")
        if not _is_number(factor) or not 1 <= factor < math.inf:
            raise InvalidOption("backoff factor", factor, "must be a finite number of at least 1")
        cap_us = _cap(cap, base_us, default=_CAP)
        return cls("exponential", base_us=base_us, factor=float(factor), cap_us=cap_us, jitter=_jitter(jitter))

    @classmethod
    def of(cls, fn: BackoffFunction, *, cap: Duration | None = None, jitter: Jitter = "none") -> Backoff:
        """The delay that ``fn(attempt, error)`` returns; the default backoff if it raises or returns a wrong value."""
        from inspect import iscoroutinefunction

        if iscoroutinefunction(fn) or not callable(fn):
            raise InvalidOption("backoff", fn, "must be a plain function(attempt, error)", hint=_HINT)
        cap_us = None if cap is None else to_us(cap, what="backoff cap")
        return cls("function", cap_us=cap_us, jitter=_jitter(jitter), fn=fn)

    def delay(self, attempt: int, error: BaseException | None = None, rng: Random | None = None) -> timedelta:
        """How long to wait after the ``attempt``-th attempt (from 1) failed with ``error``."""
        return self.plan(attempt, error, rng)[0]

    def plan(
        self, attempt: int, error: BaseException | None = None, rng: Random | None = None
    ) -> tuple[timedelta, Exception | None]:
        """The delay, and the exception of a failed backoff function, for which the default was used. Never raises."""
        problem: Exception | None = None
        rule, attempt = self, max(attempt, 1)
        try:
            whole = self._whole_us(attempt, error)
        except Exception as failure:  # noqa: BLE001 - a bad backoff function must not lose the job
            problem, rule = failure, DEFAULT
            whole = rule._whole_us(attempt, error)  # noqa: SLF001 - a method of the same class
        whole = min(whole, LONGEST_US if rule.cap_us is None else rule.cap_us)
        return timedelta(microseconds=_shortened(int(whole), rule.jitter, rng)), problem

    def __str__(self) -> str:
        if self.kind == "function":
            return f"function {getattr(self.fn, '__qualname__', self.fn)}"
        grows = {"fixed": "", "linear": f" + {_text(self.step_us)}", "exponential": f" x {self.factor:g}"}[self.kind]
        cap = "" if self.cap_us is None else f", cap {_text(self.cap_us)}"
        jitter = {0.0: "no jitter", 1.0: "full jitter"}.get(self.jitter, f"jitter {self.jitter:g}")
        return f"{_text(self.base_us)}{grows}{cap}, {jitter}"

    def _whole_us(self, attempt: int, error: BaseException | None) -> float:
        if self.fn is not None:
            return to_us(self.fn(attempt, error), what="backoff function's delay")
        if self.kind == "linear":
            return self.base_us + self.step_us * (attempt - 1)
        if self.kind == "exponential" and self.base_us:
            try:
                return self.base_us * self.factor ** (attempt - 1)
            except OverflowError:  # after about 500 attempts: the longest delay
                return LONGEST_US
        return self.base_us


def coerce(value: object, *, what: str = "backoff") -> Backoff:
    """A ``Backoff`` from the value of an option: a ``Backoff``, a duration (fixed), a kind's name or a function."""
    if isinstance(value, Backoff):
        return value
    if value == "exponential":
        return DEFAULT
    if value == "linear":
        return Backoff.linear()
    if value == "fixed":
        return Backoff.fixed("5s")
    if isinstance(value, (str, int, float, timedelta)) and not isinstance(value, bool):
        return Backoff.fixed(to_us(value, what=what) / 1_000_000)
    if callable(value) and not isinstance(value, type):
        return Backoff.of(value)
    raise InvalidOption(what, value, f"cannot be {type(value).__name__}", hint=_HINT)


def _cap(cap: Duration | None, base_us: int, *, default: Duration | None = None) -> int | None:
    if cap is None:
        return None if default is None else max(to_us(default), base_us)
    cap_us = to_us(cap, what="backoff cap")
    if cap_us < base_us:
        raise InvalidOption("backoff cap", cap, f"is shorter than the first delay, {_text(base_us)}")
    return cap_us


def _jitter(jitter: Any) -> float:
    if jitter in ("full", "none"):
        return 1.0 if jitter == "full" else 0.0
    if _is_number(jitter) and 0 <= jitter <= 1:
        return float(jitter)
    raise InvalidOption("backoff jitter", jitter, 'must be "full", "none" or a fraction from 0 to 1')


def _shortened(whole: int, jitter: float, rng: Random | None) -> int:
    if not jitter or not whole:
        return whole
    if rng is None:
        import random

        return whole - min(whole, int(whole * jitter * random.random()))
    return whole - min(whole, int(whole * jitter * rng.random()))


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(us: int) -> str:
    return format_duration(timedelta(microseconds=us))


DEFAULT = Backoff.exponential("5s", factor=4)
