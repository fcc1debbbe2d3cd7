"""Actions by hand: cancel, retry, run_now, reprioritise and delete."""

from __future__ import annotations

from typing import Final

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult
from mainspring.states import Action, State
from mainspring.stores.redis.driver.client import RedisClient
from mainspring.stores.redis.driver.constants import STATES
from mainspring.stores.shared.constants import HIGHEST_PRIORITY

from .query import QueryWalk, pack_query

SLICE: Final = 200
"""Jobs that one script changes."""
LOOK: Final = 1_000
"""Jobs that one script looks at."""

_ACTIONS = (Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE)


async def act(
    client: RedisClient, action: Action, query: Query, *, limit: int, reason: str, priority: int, cursor: str | None
) -> ActResult:
    """In slices, until ``limit`` jobs were changed or refused, or at the end of the query or of the time limit."""
    _check(action, query, priority)
    done: list[bytes] = []
    refused: list[tuple[bytes, State]] = []
    held: list[tuple[bytes, bytes]] = []
    packed, walk = pack_query(query), QueryWalk(query, cursor, SLICE)
    while walk.left is not None and not walk.is_late:
        left = limit - len(done) - len(refused) - len(held)
        if left <= 0:
            break
        some, others, rivals, went_to = await client.run(
            "act", action.value, packed, walk.left, min(left, SLICE), reason, priority, LOOK
        )
        done += some
        refused += ((job, STATES[state - 1]) for job, state in others)
        held += ((job, holder) for job, holder in rivals)
        walk.went(walk.left, went_to)
    return ActResult(tuple(done), tuple(refused), walk.left is not None and limit > 0, tuple(held), walk.cursor)


def _check(action: Action, query: Query, priority: int) -> None:
    if action not in _ACTIONS:
        raise InvalidOption("action", action, f"is not done by hand; use one of {', '.join(sorted(_ACTIONS))}")
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To mean every job, use Query.everything().")
    if abs(priority) > HIGHEST_PRIORITY:
        raise InvalidOption("priority", priority, f"is not between -{HIGHEST_PRIORITY} and {HIGHEST_PRIORITY}")
