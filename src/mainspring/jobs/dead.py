"""app.dead: the dead jobs (dead letters). Every method ``x`` has an async version ``ax``."""

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
    from typing import Unpack

    from mainspring.app import Mainspring
    from mainspring.jobs.info import JobInfo
    from mainspring.jobs.query import AllConditions

By = Literal["error", "task", "queue"]


class DeadGroup(msgspec.Struct, frozen=True):
    """Dead jobs with the same error, task or queue."""

    value: str
    """The type of the error (the reason if there was no error), the task, or the queue."""
    count: int
    first: datetime
    """When the first of them died."""
    last: datetime
    """When the last of them died."""


DeadGroups = list[DeadGroup]


class Dead(Reserved):
    """The dead jobs: jobs that failed and are not retried. Every query is restricted to dead jobs; see ``app.jobs``."""

    _PATH = "app.dead"

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def alist(
        self, query: Which | None = None, *, limit: int = 100, cursor: str | None = None,
        **where: Unpack[AllConditions],
    ) -> Page:  # fmt: skip
        """Return up to ``limit`` dead jobs, newest first. Pass ``cursor`` of a page to get the next page."""
        named = await actions.query_to_read(self._app, "app.dead.list", query, where)
        return await manager.load_page(self._app, _restrict(named), limit, cursor)

    list = blocking.twin(alist)

    async def aget(self, id: UUID | str) -> JobInfo:
        """Return one dead job with its arguments, options and every attempt; ``WrongState`` if it is not dead."""
        info = await (await self._app.jobs.aget(id)).ainfo()
        if info.state is not State.DEAD:
            raise WrongState(info.id, "app.dead.get", info.state, {State.DEAD})
        return info

    get = blocking.twin(aget)

    async def astats(self, by: By = "error") -> DeadGroups:
        """Return the number of dead jobs for each error, task or queue, the most frequent first."""
        if by not in get_args(By):
            raise InvalidOption("by", by, f"must be one of {', '.join(get_args(By))}")
        store = await self._app.client.store()
        tallies = await store.tally(Query.where(states=[State.DEAD]), by)
        groups = [
            DeadGroup(each.value, each.count, to_datetime(each.first), to_datetime(each.last)) for each in tallies
        ]
        return sorted(groups, key=lambda group: (-group.count, group.value))

    stats = blocking.twin(astats)

    async def aretry(
        self, query: Which | None = None, *, rate: float | None = RATE, **where: Unpack[AllConditions]
    ) -> int:
        """Run dead jobs again, each once, in a new epoch; at most ``rate`` jobs per second, None for no limit.

        Return the number of jobs. A job whose unique key another job holds stays dead.
        """
        named = await actions.query_to_change(self._app, "app.dead.retry", query, where)
        return await manager.retry(self._app, _restrict(named), rate)

    retry = blocking.twin(aretry)

    async def adelete(
        self, query: Which | None = None, *, older_than: Duration | None = None, **where: Unpack[AllConditions]
    ) -> int:
        """Delete dead jobs: of a query, those that died longer ago than ``older_than``, or both conditions together.

        Return the number of jobs.
        """
        if query is None and not where and older_than is None:
            hint = "Pass a query, conditions or older_than=. To delete every dead job, pass Query.everything()."
            raise InvalidOption("query", None, "is missing, and older_than is missing too", hint=hint)
        select = actions.query_to_change if query is not None or where else actions.query_to_read
        narrowed = _restrict(await select(self._app, "app.dead.delete", query, where))
        store = await self._app.client.store()
        if older_than is not None:
            before = await store.now() - to_us(older_than, what="older_than")
            earlier = before if narrowed.ended_before is None else min(before, narrowed.ended_before)
            narrowed = msgspec.structs.replace(narrowed, ended_before=earlier)
        return await actions.act(store, Action.DELETE, narrowed)

    delete = blocking.twin(adelete)


def _restrict(query: Query) -> Query:
    """Restrict a query to dead jobs. An empty query stays empty."""
    if query.empty:
        return query
    if query.states and State.DEAD not in query.states:
        raise InvalidOption(
            "states", query.states, "does not include the state dead", hint="app.jobs finds jobs in every state."
        )
    return msgspec.structs.replace(query, states=(State.DEAD,))
