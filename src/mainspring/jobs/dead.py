"""app.dead: the dead letters. Every verb has its a-twin."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args
from uuid import UUID

import msgspec

from mainspring.client import blocking
from mainspring.common.clock import to_datetime
from mainspring.common.duration import Duration, to_us
from mainspring.common.handles import Reserved
from mainspring.errors import InvalidOption, WrongState
from mainspring.jobs import actions, manager
from mainspring.jobs.actions import Which
from mainspring.jobs.manager import RATE, Page
from mainspring.jobs.query import Query
from mainspring.states import Action, State

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.info import JobInfo

By = Literal["error", "task", "queue"]


class DeadGroup(msgspec.Struct, frozen=True):
    """Dead jobs that share a value."""

    value: str
    """A type of error (the reason where there was no error), a task or a queue."""
    count: int
    first: datetime
    """When the first of them died."""
    last: datetime


DeadGroups = list[DeadGroup]


class Dead(Reserved):
    """Jobs that failed for good. Every query is narrowed to them; see ``app.jobs`` for how to say which."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def list(self, query: Which | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        """Up to ``limit`` of them, newest first; ``cursor`` of the page before goes on after it."""
        return blocking.run("app.dead.list", self.alist(query, limit=limit, cursor=cursor))

    async def alist(self, query: Which | None = None, *, limit: int = 100, cursor: str | None = None) -> Page:
        return await manager.page(self._app, _narrowed(actions.asked(query)), limit, cursor)

    def get(self, id: UUID | str) -> JobInfo:
        """One of them with its payload, options and every attempt; ``WrongState`` if the job is not dead."""
        return blocking.run("app.dead.get", self.aget(id))

    async def aget(self, id: UUID | str) -> JobInfo:
        info = await (await self._app.jobs.aget(id)).ainfo()
        if info.state is not State.DEAD:
            raise WrongState(info.id, "app.dead.get", info.state, {State.DEAD})
        return info

    def stats(self, by: By = "error") -> DeadGroups:
        """How many died of which error (or of which task, on which queue), the most frequent first."""
        return blocking.run("app.dead.stats", self.astats(by))

    async def astats(self, by: By = "error") -> DeadGroups:
        if by not in get_args(By):
            raise InvalidOption("by", by, f"is one of {', '.join(get_args(By))}")
        store = await self._app.client.store()
        tallies = await store.tally(Query.where(states=[State.DEAD]), by)
        groups = [
            DeadGroup(each.value, each.count, to_datetime(each.first), to_datetime(each.last)) for each in tallies
        ]
        return sorted(groups, key=lambda group: (-group.count, group.value))

    def retry(self, query: Which, *, rate: float | None = RATE) -> int:
        """Run them again, each once, in a new epoch; at most ``rate`` jobs a second, None for no limit.

        Returns how many. One whose unique key is held by another job stays dead.
        """
        return blocking.run("app.dead.retry", self.aretry(query, rate=rate))

    async def aretry(self, query: Which, *, rate: float | None = RATE) -> int:
        return await manager.retry(self._app, _narrowed(actions.named(query)), rate)

    def delete(self, query: Which | None = None, *, older_than: Duration | None = None) -> int:
        """Remove those of a query, those that died longer ago than ``older_than``, or those that are both.

        Returns how many.
        """
        return blocking.run("app.dead.delete", self.adelete(query, older_than=older_than))

    async def adelete(self, query: Which | None = None, *, older_than: Duration | None = None) -> int:
        if query is None and older_than is None:
            raise InvalidOption(
                "query", None, "is missing, and so is older_than", hint="To delete all, say Query.everything()."
            )
        narrowed = _narrowed(Query.everything() if query is None else actions.named(query))
        store = await self._app.client.store()
        if older_than is not None:
            before = await actions.store_now(store) - to_us(older_than, what="older_than")
            earlier = before if narrowed.ended_before is None else min(before, narrowed.ended_before)
            narrowed = msgspec.structs.replace(narrowed, ended_before=earlier)
        return await actions.act(store, Action.DELETE, narrowed)


def _narrowed(query: Query) -> Query:
    """The dead ones of them; an empty query still means nobody."""
    if query.empty:
        return query
    if query.states and State.DEAD not in query.states:
        raise InvalidOption(
            "states", query.states, "leaves out the dead", hint="app.jobs looks at jobs in every state."
        )
    return msgspec.structs.replace(query, states=(State.DEAD,))
