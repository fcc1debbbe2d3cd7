"""Limits as users declare them: jobs at the same time, or starts in a window; for all jobs or for each ``by`` value.

The name of a limit in the store consists of its owner and its kind: ``shop.send:at-once``,
``shop.send:per-1s/tenant_id``, ``limiter/api:per-1s``. The size is not part of the name, so it can change.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, cast, get_args

from mainspring.breakers.declare import DeclaredBreaker
from mainspring.codec.canonical import canonical
from mainspring.common.callables import explain_call
from mainspring.common.duration import Duration, format_duration, to_us
from mainspring.errors import InvalidOption, did_you_mean
from mainspring.limits.records import Bucket, Limit

By: TypeAlias = str | Callable[..., object]
"""The name of an argument, a dotted path into it, or a function that gets the arguments by name."""
Cost: TypeAlias = int | str | Callable[..., int]
Window = Literal["sliding", "gcra"]

_MAX_NUMBER = 1_000_000_000


class Concurrency:
    """At most ``n`` jobs run at the same time, in the whole fleet; with ``by``, for each value of ``by``.

    >>> Concurrency(5, by="tenant_id")
    Concurrency(5, by='tenant_id')
    """

    __slots__ = ("by", "n")

    @explain_call("Concurrency", "Concurrency(5)", per='A number of starts in a time is a rate: Rate(100, per="1s").')
    def __init__(self, n: int, *, by: By | None = None) -> None:
        self.n = _check_number(n, "n", type(self).__name__)
        self.by = _check_by(by, type(self).__name__)

    def limit(self, owner: str) -> Limit:
        """Return the limit as the store keeps it."""
        return Limit(name=f"{owner}:at-once{_name_suffix(self.by)}", kind="concurrency", size=self.n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Concurrency) and (self.n, self.by) == (other.n, other.by)

    def __hash__(self) -> int:
        return hash((self.n, self.by))

    def __repr__(self) -> str:
        return f"Concurrency({self.n}{'' if self.by is None else f', by={self.by!r}'})"


class Rate:
    """Jobs with a total cost of at most ``n`` start in any window of ``per``, in the whole fleet.

    With ``by``, the limit holds for each value of ``by``. ``cost`` is the cost of one job: a number, the name of an
    argument, or a function of the arguments; the default is 1.

    ``window="gcra"`` spreads the starts evenly: one in each ``per / n``. After idle time up to ``burst`` jobs start at
    once, so a window may have ``n + burst`` starts.

    >>> Rate(100, per="1s", by="api_key")
    Rate(100, per='1s', by='api_key')
    """

    __slots__ = ("_per", "burst", "by", "cost", "n", "per", "window")

    @explain_call("Rate", 'Rate(100, per="1m") is 100 starts in any minute.')
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
        self.n = _check_number(n, "n", "Rate")
        self.per = to_us(per, what="per")
        if self.per <= 0:
            raise InvalidOption("per", per, "must be greater than zero", subject="Rate", hint='Rate(100, per="1s")')
        if window not in get_args(Window):
            raise InvalidOption("window", window, "must be 'sliding' or 'gcra'", subject="Rate")
        if burst is not None and window == "sliding":
            hint = "A sliding window may start all n jobs at once. window='gcra' spreads the starts and has a burst."
            raise InvalidOption("burst", burst, "works with window='gcra' only", subject="Rate", hint=hint)
        self._per = per
        self.burst = None if burst is None else _check_number(burst, "burst", "Rate")
        self.by = _check_by(by, "Rate")
        self.cost = _check_cost(cost)
        self.window = window

    def limit(self, owner: str) -> Limit:
        """Return the limit as the store keeps it."""
        name = f"{owner}:per-{format_duration(self.per / 1e6)}{_name_suffix(self.by)}"
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
    """Limits under a name of their own, which several tasks can share."""

    def __init__(self, name: str, limits: Sequence[Concurrency | Rate]) -> None:
        self.name = name
        self.limits = tuple(limits)

    @property
    def owner(self) -> str:
        """The first part of the names of its limits, different from that of a task with the same name."""
        return f"limiter/{self.name}"

    @property
    def of_a_block(self) -> str:
        """What was chosen for a block of code, as written (``key='42'``); empty for the limiter itself."""
        return ""


AnyLimit: TypeAlias = Concurrency | Rate | LimitSet


class BoundLimit(NamedTuple):
    """A declared limit, with the sources of its key and its cost."""

    limit: Limit
    by: By | None
    cost: Cost


def to_limits(value: Any, name: str = "limit") -> tuple[AnyLimit, ...]:
    """Return the option in normal form: a tuple of limits."""
    if value is None:
        return ()
    given = value if isinstance(value, (list, tuple)) else (value,)
    for each in given:
        if not isinstance(each, (Concurrency, Rate, LimitSet)):
            hint = 'limit=Concurrency(5), limit=Rate(100, per="1s"), a limiter, or a list of them.'
            raise InvalidOption(name, each, "is not a limit", hint=hint)
        if isinstance(each, LimitSet) and each.of_a_block:
            why = f"has {each.of_a_block}, which would be ignored: .at(...) is for blocks of code"
            hint = (
                "Give the limiter itself: by= of its limits takes the key from the arguments, cost= of a Rate the cost."
            )
            raise InvalidOption(name, each, why, hint=hint)
    return tuple(given)


def bind(owner: str, limits: Iterable[AnyLimit | DeclaredBreaker], subject: str) -> tuple[BoundLimit, ...]:
    """Give limits the names that they have in the store."""
    found: dict[str, BoundLimit] = {}
    for each in limits:
        for one in each.limits if isinstance(each, LimitSet) else (each,):
            limit = one.limit(each.owner if isinstance(each, LimitSet) else owner)
            if "=" in limit.name:
                hint = "In the name of a bucket, the value of by= follows the =. Choose a name without =."
                raise InvalidOption("name", limit.name, "contains a =", subject=subject, hint=hint)
            if limit.name in found:
                hint = "Several limits must differ in kind, window or by."
                raise InvalidOption("limit", one, f"is declared twice: {limit.name}", subject=subject, hint=hint)
            found[limit.name] = BoundLimit(limit, one.by, one.cost if isinstance(one, Rate) else 1)
    return tuple(found.values())


def check_arguments(bounds: Iterable[BoundLimit], known: Collection[str], subject: str) -> None:
    """Refuse a limit whose ``by`` or ``cost`` names an argument that the task does not have."""
    for bound in bounds:
        for option, path in (("by", bound.by), ("cost", bound.cost)):
            if isinstance(path, str) and (name := path.partition(".")[0]) not in known:
                why = f"names {name!r}, which is not an argument of the task{did_you_mean(name, known)}"
                raise InvalidOption(option, path, why, subject=subject)


def buckets_of(
    bounds: Iterable[BoundLimit], arguments: Callable[[], Mapping[str, Any]], subject: str
) -> tuple[Bucket, ...]:
    """Return the buckets of a job. ``arguments`` returns its arguments by name, as plain JSON values."""
    found: Mapping[str, Any] | None = None
    buckets = []
    for limit, by, cost in bounds:
        key, units = "", 1
        if by is not None or not isinstance(cost, int):
            found = arguments() if found is None else found
        if by is not None:
            key = key_text(value_at(by, found or {}, "by", subject), by, "by", subject)
        units = (
            cost if isinstance(cost, int) else _check_units(value_at(cost, found or {}, "cost", subject), cost, subject)
        )
        if limit.kind != "concurrency" and units > limit.size:
            why = f"is {units}, and the limit allows {limit.size} in a window"
            raise InvalidOption("cost", cost, why, subject=subject, hint=f"The limit is {limit.name!r}.")
        buckets.append(Bucket(limit.name, key, units))
    return tuple(sorted(buckets, key=lambda bucket: bucket.name))


def value_at(path: By | Cost, arguments: Mapping[str, Any], option: str, subject: str) -> Any:
    """Return the value of a path in the arguments of a call, or the result of a function of the arguments."""
    if callable(path):
        try:
            return path(**arguments)
        except Exception as error:
            why = f"raised {type(error).__name__}: {error}"
            hint = "The function gets every argument by name: def by(tenant_id, **others): ..."
            raise InvalidOption(option, path, why, subject=subject, hint=hint) from error
    value: Any = arguments
    for name in str(path).split("."):
        if not isinstance(value, Mapping) or name not in value:
            why = f"was not found: there is no {name!r}"
            raise InvalidOption(
                option, path, why, subject=subject, hint="A path consists of names of fields, for example user.tenant."
            )
        value = value[name]
    return value


def key_text(value: Any, path: By, option: str, subject: str) -> str:
    """Return the key of a value: text as it is, other values as JSON. The number 7 and the text "7" give one key."""
    if isinstance(value, str) and value:
        return value
    try:
        return canonical(value).decode()
    except (TypeError, ValueError, NotImplementedError) as error:
        why = f"returned a {type(value).__name__}, which cannot be a key"
        hint = "Return text, a number, or another value that JSON can represent."
        raise InvalidOption(option, path, why, subject=subject, hint=hint) from error


def _check_units(value: Any, cost: Cost, subject: str) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_NUMBER:
        raise InvalidOption("cost", cost, f"returned {value!r}, not a whole number from 1", subject=subject)
    return value


def _check_number(value: Any, name: str, subject: str) -> int:
    if type(value) is not int or not 1 <= value <= _MAX_NUMBER:
        hint = "To start no jobs at all, pause their queue."
        if isinstance(value, str):
            hint = 'Write Rate(100, per="1m") for 100 starts in any minute, Concurrency(5) for 5 jobs at the same time.'
        raise InvalidOption(name, value, "must be a whole number from 1", subject=subject, hint=hint)
    return value


def _check_by(value: Any, subject: str) -> By | None:
    if value is None:
        return None
    if callable(value):
        return cast("By", value)
    if isinstance(value, str) and value and all(part.isidentifier() for part in value.split(".")):
        return value
    why = "is neither the name of an argument, nor a dotted path, nor a function"
    raise InvalidOption("by", value, why, subject=subject, hint='by="tenant_id", by="user.tenant" or by=function')


def _check_cost(value: Any) -> Cost:
    if callable(value):
        return cast("Cost", value)
    if isinstance(value, str) and value and all(part.isidentifier() for part in value.split(".")):
        return value
    if type(value) is int and 1 <= value <= _MAX_NUMBER:
        return value
    hint = 'cost=2, cost="tokens" or cost=function'
    raise InvalidOption(
        "cost",
        value,
        "is neither a number from 1, nor the name of an argument, nor a function",
        subject="Rate",
        hint=hint,
    )


def _name_suffix(by: By | None) -> str:
    if by is None:
        return ""
    return "/" + (by if isinstance(by, str) else getattr(by, "__qualname__", type(by).__qualname__))
