"""Queries: which jobs a call is about."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar
from uuid import UUID

import msgspec

from mainspring.common.clock import from_datetime
from mainspring.common.duration import Duration, to_us
from mainspring.common.handles import foreign_hint, without_options
from mainspring.common.ids import parse_id
from mainspring.common.text import qualified_name, storable
from mainspring.errors import InvalidOption, UnknownOption
from mainspring.states import Reason, State

if TYPE_CHECKING:
    from typing import Unpack

E = TypeVar("E", bound=StrEnum)


class NamedObject(Protocol):
    """A task or a declared queue, which may stand for its name."""

    @property
    def name(self) -> str: ...


class Conditions(TypedDict, total=False):
    """Which jobs are meant: all conditions must hold. None is no condition.

    The singular name of a condition takes one value or several, the plural name takes several. Several values are
    alternatives, but a job must have all tags. A duration for ``since``, ``until`` and ``ended_before`` means so long
    ago: ``since="1h"`` are the jobs of the last hour.
    """

    state: State | str | Iterable[State | str] | None
    states: Iterable[State | str] | None
    queue: str | NamedObject | Iterable[str | NamedObject] | None
    queues: Iterable[str | NamedObject] | None
    task: str | NamedObject | Iterable[str | NamedObject] | None
    tasks: Iterable[str | NamedObject] | None
    tag: str | Iterable[str] | None
    tags: Iterable[str] | None
    error: str | Iterable[str] | None
    errors: Iterable[str] | None
    reasons: Iterable[Reason | str] | None
    since: datetime | Duration | None
    until: datetime | Duration | None
    ended_before: datetime | Duration | None
    parent: UUID | str | None
    flow: UUID | str | None


class AllConditions(Conditions, total=False):
    """The conditions, and ``reason``, which is the reason of the cancel itself in ``app.jobs.cancel``."""

    reason: Reason | str | Iterable[Reason | str] | None


_SINGULAR = {
    "state": "states", "queue": "queues", "task": "tasks", "tag": "tags", "error": "errors", "reason": "reasons",
}  # fmt: skip
FLOW_MARK = "%"
"""What the mark of the jobs of a flow begins with."""
MOMENTS = ("since", "until", "ended_before")


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A set of jobs: those for which all conditions hold. An empty query matches no job.

    Calls that change jobs refuse an empty query. :meth:`everything` matches all jobs.
    """

    ids: tuple[bytes, ...] | None = None
    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    """Tags, all of which the job must have; ``^`` and the hex id of its parent; ``%`` and the hex id of its flow."""
    reasons: tuple[Reason, ...] = ()
    errors: tuple[str, ...] = ()
    """Types of errors, one of which the dead job died of; the reason if there was no error."""
    since: int | None = None
    """Enqueued at this moment or later, microseconds since 1970."""
    until: int | None = None
    """Enqueued before this moment."""
    ended_before: int | None = None
    """Ended before this moment."""
    all: bool = False

    @classmethod
    def everything(cls) -> Query:
        return cls(all=True)

    @classmethod
    def of(cls, *jobs: UUID | str | bytes) -> Query:
        """The jobs with these ids."""
        return cls(ids=tuple(parse_id(job).bytes for job in jobs))

    @classmethod
    def where(cls, **conditions: Unpack[AllConditions]) -> Query:
        """The jobs for which all conditions hold: ``Query.where(state="dead", queue=["email", "sms"], since="1h")``.

        A condition that is left out, or None, is no condition. Several values of one condition are alternatives; tags
        must all match. An empty list is refused, because no job matches it and a missing condition would match all
        jobs. ``since`` and ``until`` are about the enqueue, ``error`` is the type of error that a dead job died of.
        A duration counts back from now, by the clock of this machine.
        """
        return cls.build("Query.where", conditions, time.time_ns() // 1000)

    @classmethod
    def build(cls, verb: str, conditions: Mapping[str, Any], now: int) -> Query:
        """The query of these conditions. Durations count back from ``now``; an unknown condition names ``verb``."""
        given: dict[str, Any] = {}
        for name, value in conditions.items():
            if name not in AllConditions.__annotations__:
                raise UnknownOption(verb, name, AllConditions.__annotations__)
            if value is not None:
                plural = _SINGULAR.get(name, name)
                if plural in given:
                    raise InvalidOption(name, value, f"cannot be given together with {plural}", subject=verb)
                given[plural] = (name, _several(value) if plural != name else value)
        marks = _given(given, "tags")
        for name, mark in (("parent", parent_mark), ("flow", flow_mark)):
            if name in given:
                marks += (mark(parse_id(given[name][1]).bytes),)
        return cls(
            states=_words(State, given.get("states", ("states",))[0], _given(given, "states")),
            queues=_given(given, "queues"),
            tasks=_given(given, "tasks"),
            marks=marks,
            reasons=_words(Reason, given.get("reasons", ("reasons",))[0], _given(given, "reasons")),
            errors=_given(given, "errors"),
            since=_moment(given, "since", now),
            until=_moment(given, "until", now),
            ended_before=_moment(given, "ended_before", now),
        )

    @property
    def empty(self) -> bool:
        return not self.all and self.ids is None and self.bare

    @property
    def bare(self) -> bool:
        """Whether the query has no condition other than ids."""
        return self == Query(ids=self.ids, all=self.all)

    def checked(self) -> Query:
        """This query with states and reasons as enums; ``InvalidOption`` for a value that a field cannot have."""
        for name in ("states", "queues", "tasks", "marks", "reasons", "errors"):
            values = getattr(self, name)
            if not isinstance(values, tuple):
                raise InvalidOption(name, values, "must be a tuple", hint="Query.where(...) takes lists.")
            _texts(name, values)
        for name in ("since", "until", "ended_before"):
            at = getattr(self, name)
            if at is not None and (type(at) is not int or abs(at) >> 63):
                raise InvalidOption(name, at, "must be microseconds", hint="Query.where(...) takes a datetime.")
        ids = () if self.ids is None else self.ids
        if not isinstance(ids, tuple) or not all(isinstance(id, bytes) and len(id) == 16 for id in ids):
            raise InvalidOption("ids", ids, "must be a tuple of 16 bytes each", hint="Query.of(...) takes ids.")
        if not isinstance(self.all, bool):
            raise InvalidOption("all", self.all, "must be True or False", hint="Query.everything()")
        states, reasons = _words(State, "states", self.states), _words(Reason, "reasons", self.reasons)
        return msgspec.structs.replace(self, states=states, reasons=reasons)


def parent_mark(parent: bytes) -> str:
    """The mark of the children of a job."""
    return "^" + parent.hex()


def flow_mark(flow: bytes) -> str:
    """The mark of the jobs of a flow."""
    return FLOW_MARK + flow.hex()


def _several(value: Any) -> Any:
    """The values of a condition with a singular name: one value, or several."""
    alone = isinstance(value, str) or isinstance(getattr(value, "name", None), str) or not isinstance(value, Iterable)
    return (value,) if alone else value


def _given(given: Mapping[str, tuple[str, Any]], plural: str) -> tuple[str, ...]:
    """The values of a condition; a task or a queue is replaced by its name."""
    if plural not in given:
        return ()
    name, values = given[plural]
    if isinstance(values, Iterable) and not isinstance(values, str):
        values = tuple(_name_of(each, name) for each in values)
    found = _texts(name, values)
    if not found:
        raise InvalidOption(name, values, "names nothing", hint=f"Leave {name} out to make it no condition.")
    return found


def _name_of(value: Any, condition: str) -> Any:
    name = None if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str):
        return value
    without_options(value, condition, hint="Leave .options(...) out. Other conditions: queue=, tags=, states=.")
    return name


def _moment(given: Mapping[str, tuple[str, Any]], name: str, now: int) -> int | None:
    """A moment as microseconds since 1970; a duration means so long before ``now``."""
    if name not in given:
        return None
    value = given[name][1]
    if isinstance(value, datetime):
        return from_datetime(value, what=name)
    if not isinstance(value, (str, int, float, timedelta)) or isinstance(value, bool):
        hint = f'{name}="1h" (an hour ago), or {name}=datetime.now(UTC) - timedelta(hours=1).'
        raise InvalidOption(name, value, "is neither a moment nor a duration", hint=hint)
    return now - to_us(value, what=name)


def _words(kind: type[E], name: str, values: Iterable[str]) -> tuple[E, ...]:
    found = []
    for value in values:
        try:
            found.append(kind(value))
        except ValueError:
            hint = foreign_hint(value, kind.__name__.lower()) if isinstance(value, str) else ""
            raise InvalidOption(name, value, f"must be one of {', '.join(kind)}", hint=hint) from None
    return tuple(found)


def _texts(name: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise InvalidOption(name, values, "must be a list", hint=f"{name}=[{str(values)!r}]")
    if not isinstance(values, Iterable):
        raise InvalidOption(name, values, "must be a list of texts")
    values = tuple(values)
    if not all(isinstance(value, str) for value in values):
        given: tuple[object, ...] = values
        classes = [each for each in given if isinstance(each, type)]
        hint = f"Give its name: {name}={qualified_name(classes[0])!r}." if classes else ""
        raise InvalidOption(name, values, "must be texts", hint=hint)
    if not all(map(storable, values)):
        raise InvalidOption(name, values, "holds a character that cannot be stored")
    return values
