"""Which jobs are meant."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from mainspring.errors import InvalidOption
from mainspring.ids import parse_id
from mainspring.states import State


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A set of jobs: all conditions hold at once; an empty query means nothing, not everything.

    Dangerous calls refuse an empty query; :meth:`everything` says it on purpose.
    """

    ids: tuple[bytes, ...] | None = None
    states: tuple[State, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
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
        states: Iterable[State | str] = (),
        queues: Iterable[str] = (),
        tasks: Iterable[str] = (),
    ) -> Query:
        try:
            wanted = tuple(State(state) for state in states)
        except ValueError:
            raise InvalidOption("states", tuple(states), f"a state is one of {', '.join(State)}") from None
        return cls(states=wanted, queues=tuple(queues), tasks=tuple(tasks))

    @property
    def empty(self) -> bool:
        return not self.all and self.ids is None and not (self.states or self.queues or self.tasks)
