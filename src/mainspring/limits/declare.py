"""Limits as users declare them: how many jobs at once, how many starts in a time; for all, or for each value of ``by``.

A limit has a name in the store, made of what declares it and of its kind: ``shop.send:at-once``,
``shop.send:per-1s/tenant_id``, ``limiter/api:per-1s``. Its size is no part of the name, so it can change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from mainspring.breakers.declare import DeclaredBreaker
from mainspring.codec.canonical import canonical
from mainspring.common.duration import Duration, format_duration, to_us
from mainspring.errors import InvalidOption, did_you_mean
from mainspring.limits.records import Bucket, Limit

By: TypeAlias = str | Callable[..., object]
"""An argument's name, a dotted path into it, or a function of the arguments, which it gets by name."""
Cost: TypeAlias = int | str | Callable[..., int]
Window = Literal["sliding", "gcra"]

_LARGEST = 1_000_000_000


class Concurrency:
    """At most ``n`` jobs run at once, in the whole fleet; with ``by``, for each of its values.

    >>> Concurrency(5, by="tenant_id")
    Concurrency(5, by='tenant_id')
    """

    __slots__ = ("by", "n")

    def __init__(self, n: int, *, by: By | None = None) -> None:
        self.n = _number(n, "n", type(self).__name__)
        self.by = _by(by, type(self).__name__)

    def limit(self, owner: str) -> Limit:
        """What the store is told of it."""
        return Limit(name=f"{owner}:at-once{_suffix(self.by)}", kind="concurrency", size=self.n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concurrency) and (self.n, self.by) == (other.n, other.by)

    def __hash__(self) -> int:
        return hash((self.n, self.by))

    def __repr__(self) -> str:
        return f"Concurrency({self.n}{'' if self.by is None else f', by={self.by!r}'})"


class Rate:
    """Jobs that cost at most ``n`` in all start in any window of ``per``, in the whole fleet; with ``by``, for each of
    its values. ``cost`` is what one job uses up: a number, an argument, or a function of the arguments.

    ``window="gcra"`` spreads them evenly, one each ``per / n``, and lets up to ``burst`` through at once after quiet
    time: then a window may see ``n + burst``.

    >>> Rate(100, per="1s", by="api_key")
    Rate(100, per='1s', by='api_key')
    """

    __slots__ = ("_per", "burst", "by", "cost", "n", "per", "window")

    def __init__(
        self,
        n: int,
        per: Duration,
        *,
        burst: int | None = None,
        by: By | None = None,
        cost: Cost = 1,
        window: Window = "sliding",
    ) -> None:
        self.n = _number(n, "n", "Rate")
        self.per = to_us(per, what="per")
        if self.per <= 0:
            raise InvalidOption("per", per, "must be longer than nothing", subject="Rate", hint='Rate(100, per="1s")')
        if window not in get_args(Window):
            raise InvalidOption("window", window, "must be 'sliding' or 'gcra'", subject="Rate")
        if burst is not None and window == "sliding":
            hint = "A sliding window lets all of n through at once; window='gcra' spreads them and has a burst."
            raise InvalidOption("burst", burst, "goes with window='gcra' only", subject="Rate", hint=hint)
        self._per = per
        self.burst = None if burst is None else _number(burst, "burst", "Rate")
        self.by = _by(by, "Rate")
        self.cost = _cost(cost)
        self.window = window

    def limit(self, owner: str) -> Limit:
        """What the store is told of it."""
        name = f"{owner}:per-{format_duration(self.per / 1e6)}{_suffix(self.by)}"
        if self.window == "gcra":
            return Limit(name=name, kind="smooth", size=self.n, per=self.per, burst=self.burst or 1)
        return Limit(name=name, kind="rate", size=self.n, per=self.per)

    @property
    def _facts(self) -> tuple[Any, ...]:
        return self.n, self.per, self.burst, self.by, self.cost, self.window

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rate) and self._facts == other._facts

    def __hash__(self) -> int:
        return hash(self._facts)

    def __repr__(self) -> str:
        said = {"burst": (self.burst, None), "by": (self.by, None), "cost": (self.cost, 1)}
        parts = [f"{name}={value!r}" for name, (value, default) in said.items() if value != default]
        window = [] if self.window == "sliding" else [f"window={self.window!r}"]
        return f"Rate({', '.join([str(self.n), f'per={self._per!r}', *parts, *window])})"


class LimitSet:
    """Limits under a name of their own, which several tasks may share."""

    def __init__(self, name: str, limits: Sequence[Concurrency | Rate]) -> None:
        self.name = name
        self.limits = tuple(limits)

    @property
    def owner(self) -> str:
        """What the names of its limits begin with: a task of the same name has limits of its own."""
        return f"limiter/{self.name}"


AnyLimit: TypeAlias = Concurrency | Rate | LimitSet


class BoundLimit(NamedTuple):
    """A declared limit with where its key and its cost come from."""

    limit: Limit
    by: By | None
    cost: Cost


def to_limits(value: Any, name: str = "limit") -> tuple[AnyLimit, ...]:
    """The option in normal form: one limit or several."""
    if value is None:
        return ()
    given = value if isinstance(value, (list, tuple)) else (value,)
    for each in given:
        if not isinstance(each, (Concurrency, Rate, LimitSet)):
            hint = 'limit=Concurrency(5), limit=Rate(100, per="1s"), a limiter, or a list of them.'
            raise InvalidOption(name, each, "is not a limit", hint=hint)
    return tuple(given)


def bind(owner: str, limits: Iterable[AnyLimit | DeclaredBreaker], subject: str) -> tuple[BoundLimit, ...]:
    """The limits under the names that they have in the store."""
    found: dict[str, BoundLimit] = {}
    for each in limits:
        for one in each.limits if isinstance(each, LimitSet) else (each,):
            limit = one.limit(each.owner if isinstance(each, LimitSet) else owner)
            if "=" in limit.name:
                hint = "Behind a = stands the value of by=. Give what has the limit another name."
                raise InvalidOption(
                    "name", limit.name, "is no name for a limit: it has a =", subject=subject, hint=hint
                )
            if limit.name in found:
                hint = "Several limits must differ in kind, window or by."
                raise InvalidOption("limit", one, f"is there twice: {limit.name}", subject=subject, hint=hint)
            found[limit.name] = BoundLimit(limit, one.by, one.cost if isinstance(one, Rate) else 1)
    return tuple(found.values())


def check_arguments(bounds: Iterable[BoundLimit], known: Collection[str], subject: str) -> None:
    """Refuse a limit that speaks of an argument which is not there."""
    for bound in bounds:
        for option, path in (("by", bound.by), ("cost", bound.cost)):
            if isinstance(path, str) and (name := path.partition(".")[0]) not in known:
                why = f"names {name!r}, which is no argument of the task{did_you_mean(name, known)}"
                raise InvalidOption(option, path, why, subject=subject)


def buckets_of(
    bounds: Iterable[BoundLimit], arguments: Callable[[], Mapping[str, Any]], subject: str
) -> tuple[Bucket, ...]:
    """The buckets of a job with these arguments, which are plain JSON values by name."""
    found: Mapping[str, Any] | None = None
    buckets = []
    for limit, by, cost in bounds:
        key, units = "", 1
        if by is not None or not isinstance(cost, int):
            found = arguments() if found is None else found
        if by is not None:
            key = key_text(value_at(by, found or {}, "by", subject), by, "by", subject)
        units = cost if isinstance(cost, int) else _units(value_at(cost, found or {}, "cost", subject), cost, subject)
        if limit.kind != "concurrency" and units > limit.size:
            why = f"is {units}, and no more than {limit.size} may start in a window"
            raise InvalidOption("cost", cost, why, subject=subject, hint=f"Of limit {limit.name!r}.")
        buckets.append(Bucket(limit.name, key, units))
    return tuple(sorted(buckets, key=lambda bucket: bucket.name))


def value_at(path: By | Cost, arguments: Mapping[str, Any], option: str, subject: str) -> Any:
    """What a path leads to in the arguments of a call, or what a function makes of them."""
    if callable(path):
        try:
            return path(**arguments)
        except Exception as error:
            why = f"raised {type(error).__name__}: {error}"
            hint = "It gets every argument by name: def by(tenant_id, **others): ..."
            raise InvalidOption(option, path, why, subject=subject, hint=hint) from error
    value: Any = arguments
    for name in str(path).split("."):
        if not isinstance(value, Mapping) or name not in value:
            why = f"leads nowhere: there is no {name!r}"
            raise InvalidOption(option, path, why, subject=subject, hint="Paths go through names of fields.")
        value = value[name]
    return value


def key_text(value: Any, path: By, option: str, subject: str) -> str:
    """Text is its own key, other values are written as JSON: the number 7 and the text "7" are one."""
    if isinstance(value, str) and value:
        return value
    try:
        return canonical(value).decode()
    except (TypeError, ValueError, NotImplementedError) as error:
        why = f"gave a {type(value).__name__}, which is no key"
        hint = "Return text or a number, or whatever JSON can hold."
        raise InvalidOption(option, path, why, subject=subject, hint=hint) from error


def _units(value: Any, cost: Cost, subject: str) -> int:
    if type(value) is not int or not 1 <= value <= _LARGEST:
        raise InvalidOption("cost", cost, f"gave {value!r}, not a whole number from 1", subject=subject)
    return value


def _number(value: Any, name: str, subject: str) -> int:
    if type(value) is not int or not 1 <= value <= _LARGEST:
        hint = "To stop jobs altogether, pause their queue."
        raise InvalidOption(name, value, "must be a whole number from 1", subject=subject, hint=hint)
    return value


def _by(value: Any, subject: str) -> By | None:
    if value is None:
        return None
    if callable(value):
        return cast("By", value)
    if isinstance(value, str) and value and all(part.isidentifier() for part in value.split(".")):
        return value
    why = "is neither the name of an argument, nor a dotted path, nor a function"
    raise InvalidOption("by", value, why, subject=subject, hint='by="tenant_id", by="user.tenant" or by=function')


def _cost(value: Any) -> Cost:
    if callable(value):
        return cast("Cost", value)
    if isinstance(value, str) and value and all(part.isidentifier() for part in value.split(".")):
        return value
    if type(value) is int and 1 <= value <= _LARGEST:
        return value
    hint = 'cost=2, cost="tokens" or cost=function'
    raise InvalidOption("cost", value, "is neither a number from 1 nor an argument", subject="Rate", hint=hint)


def _suffix(by: By | None) -> str:
    if by is None:
        return ""
    return "/" + (by if isinstance(by, str) else getattr(by, "__qualname__", type(by).__qualname__))
