"""What people do to jobs by hand, and what retention does."""

from __future__ import annotations

from mainspring.errors import InvalidOption
from mainspring.jobs.query import Query
from mainspring.jobs.records import ActResult, Retention
from mainspring.states import Action, State
from mainspring.stores.base import NUMBERS_KEPT

from . import where
from .connection import Connection
from .enqueue import HIGHEST
from .heads import STATES

SLICE = 200
"""Jobs that one script changes."""
LOOK = 1_000
"""Jobs that one script looks at."""
KEEP_NUMBERS = 86_400_000_000
"""Microseconds for which the number of a schedule that went is kept: longer than a clock goes back."""

_ACTIONS = (Action.CANCEL, Action.RETRY, Action.RUN_NOW, Action.REPRIORITISE, Action.DELETE)


async def act(
    connection: Connection, action: Action, query: Query, *, limit: int, reason: str, priority: int, cursor: str | None
) -> ActResult:
    """In slices until ``limit`` were looked at by id, or changed, or the query is exhausted, or the time."""
    _check(action, query, priority)
    done: list[bytes] = []
    refused: list[tuple[bytes, State]] = []
    held: list[tuple[bytes, bytes]] = []
    packed, walk = where.packed(query), where.Walk(query, cursor, SLICE)
    while walk.left is not None and not walk.is_late:
        room = limit - len(done) - len(refused) - len(held)
        if room <= 0:
            break
        some, others, rivals, went_to = await connection.run(
            "act", action.value, packed, walk.left, min(room, SLICE), reason, priority, LOOK
        )
        done += some
        refused += ((job, STATES[state - 1]) for job, state in others)
        held += ((job, holder) for job, holder in rivals)
        walk.went(walk.left, went_to)
    return ActResult(tuple(done), tuple(refused), walk.left is not None and limit > 0, tuple(held), walk.cursor)


def _check(action: Action, query: Query, priority: int) -> None:
    """Refuse what nobody can have meant."""
    if action not in _ACTIONS:
        raise InvalidOption("action", action, f"is not done by hand; use one of {', '.join(sorted(_ACTIONS))}")
    if query.empty:
        raise InvalidOption("query", query, "is empty", hint="To mean every job, say Query.everything().")
    if abs(priority) > HIGHEST:
        raise InvalidOption("priority", priority, f"is not between -{HIGHEST} and {HIGHEST}")


async def prune(connection: Connection, retention: Retention, limit: int) -> int:
    """What retention lets go, in slices: those with a keep of their own, then the others, then the dead."""
    rules = (
        ("held", 0, 0),
        ("drops", 0, 0),
        ("done", retention.keep, retention.keep_count),
        ("died", retention.keep_dead, retention.keep_dead_count),
    )
    gone = 0
    for which, keep, keep_count in rules:
        more = True
        while more and gone < limit:
            size = min(limit - gone, SLICE)
            went, more = await connection.run("prune", which, keep, keep_count, retention.keep_at_least, size)
            gone += went
    await connection.run("prune_workers", retention.keep_workers)
    await connection.run("prune_schedules", KEEP_NUMBERS)
    while await connection.run("prune_rates", LOOK, NUMBERS_KEPT) == LOOK:
        pass
    return gone
