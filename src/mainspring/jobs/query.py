"""Queries: which jobs a call is about."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

import msgspec

from mainspring.common.clock import from_datetime
from mainspring.common.ids import parse_id
from mainspring.common.text import storable
from mainspring.errors import InvalidOption
from mainspring.states import Reason, State

E = TypeVar("E", bound=StrEnum)


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A set of jobs: those for which all conditions hold. An empty query matches no job.

    Calls that change jobs refuse an empty query. :meth:`everything` matches all jobs.
    """

    ids: tuple[bytes, ...] | None = None
    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    """Tags, all of which the job must have; ``^`` and the hex id of its parent."""
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
    def where(
        cls,
        *,
        states: Iterable[State | str] | None = None,
        queues: Iterable[str] | None = None,
        tasks: Iterable[str] | None = None,
        tags: Iterable[str] | None = None,
        reasons: Iterable[Reason | str] | None = None,
        errors: Iterable[str] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        ended_before: datetime | None = None,
        parent: UUID | str | None = None,
    ) -> Query:
        """The jobs for which all conditions hold. Several values of one condition are alternatives; tags must all
        match.

        An argument that is left out, or None, is no condition. An empty list is refused, because no job matches it
        and a missing condition would match all jobs. ``since`` and ``until`` are about the enqueue, ``errors`` about
        the type of error that a dead job died of.
        """
        marks = _given("tags", tags) + (() if parent is None else (parent_mark(parse_id(parent).bytes),))
        return cls(
            states=_words(State, "states", _given("states", states)),
            queues=_given("queues", queues),
            tasks=_given("tasks", tasks),
            marks=marks,
            reasons=_words(Reason, "reasons", _given("reasons", reasons)),
            errors=_given("errors", errors),
            since=None if since is None else from_datetime(since, what="since"),
            until=None if until is None else from_datetime(until, what="until"),
            ended_before=None if ended_before is None else from_datetime(ended_before, what="ended_before"),
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


def _given(name: str, values: Iterable[str] | None) -> tuple[str, ...]:
    if values is None:
        return ()
    found = _texts(name, values)
    if not found:
        raise InvalidOption(name, values, "names nothing", hint=f"Leave {name} out to make it no condition.")
    return found


def _words(kind: type[E], name: str, values: Iterable[str]) -> tuple[E, ...]:
    try:
        return tuple(kind(value) for value in values)
    except ValueError:
        raise InvalidOption(name, values, f"are some of {', '.join(kind)}") from None


def _texts(name: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise InvalidOption(name, values, "must be a list", hint=f"{name}=[{str(values)!r}]")
    if not isinstance(values, Iterable):
        raise InvalidOption(name, values, "must be a list of texts")
    values = tuple(values)
    if not all(isinstance(value, str) for value in values):
        raise InvalidOption(name, values, "must be texts")
    if not all(map(storable, values)):
        raise InvalidOption(name, values, "holds a character that cannot be stored")
    return values
