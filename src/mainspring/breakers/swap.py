"""Compare-and-set on the row of one breaker, for code that makes no turns: blocks, operators, rescuers, supervisors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from mainspring.breakers.counting import BreakerEnd, Counted, changed_rows, count_ends, set_by_hand
from mainspring.breakers.records import BreakerRow, BreakerSwap, StoredBreaker, is_breaker
from mainspring.errors import StoreError
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.query import Query
from mainspring.states import State

if TYPE_CHECKING:
    from mainspring.jobs.outcomes import Ack
    from mainspring.jobs.records import JobRow
    from mainspring.stores.base import Store
    from mainspring.worker.records import RescueResult

log = logging.getLogger("mainspring.breakers")

_FOUND_AT_ONCE = 500


async def count_now(store: Store, name: str, ends: Collection[BreakerEnd]) -> list[BreakerRow]:
    """Count these ends now. Returns the breaker after each change of its state; nothing for an unknown breaker."""
    return await _swap(store, name, lambda breaker: count_ends(breaker, ends)) or []


async def trip(store: Store, name: str, span: int | None) -> list[BreakerRow] | None:
    """Open a breaker for ``span`` microseconds, with None until it is reset. None if there is no such breaker."""
    return await _swap(store, name, lambda breaker: Counted(set_by_hand(breaker, span), ("open",)))


async def reset(store: Store, name: str) -> list[BreakerRow] | None:
    """Close a breaker and delete its counts. None if there is no such breaker."""

    def closed(breaker: StoredBreaker) -> Counted:
        return Counted(set_by_hand(breaker, 0), ("closed",) if breaker.until else ())

    return await _swap(store, name, closed)


async def count_lost_worker(
    store: Store, rescued: RescueResult, cause: Outcome, acks: Sequence[Ack] = ()
) -> list[BreakerRow]:
    """Count one failure for each breaker that the jobs of a lost or crashed worker name, and the failures of ``acks``.

    The jobs have been moved already: if this process ends before it has counted, these failures are not counted.
    """
    faults = {ack.id: ack for ack in acks if ack.fault}
    is_failure = rescued.taken and cause is not Outcome.INTERRUPTED
    lost = {*rescued.ready, *rescued.retrying, *rescued.dead, *rescued.cancelled} if is_failure else set[bytes]()
    if not rescued.taken or not (faults or lost):
        return []
    try:
        ends = await _ends_of_jobs(
            store, faults, lost, f"its worker {'is' if cause is Outcome.LOST else 'has'} {cause}"
        )
        return [row for name in sorted(ends) for row in await count_now(store, name, ends[name])]
    except StoreError as error:
        log.warning("the loss of a worker was not counted for its breakers: %s", error)
        return []


async def _ends_of_jobs(
    store: Store, faults: dict[bytes, Ack], lost: set[bytes], error: str
) -> dict[str, list[BreakerEnd]]:
    """The ends to count, by breaker: those of the acks, then one for the lost jobs that name the breaker."""
    if not any(row.limit.kind == "breaker" for row in await store.limits()):
        return {}
    ends: dict[str, list[BreakerEnd]] = {}
    started: dict[str, int] = {}
    jobs = (*faults, *(lost - faults.keys()))
    for first in range(0, len(jobs), _FOUND_AT_ONCE):
        ids = jobs[first : first + _FOUND_AT_ONCE]
        for row in (await store.find(Query(ids=ids), limit=len(ids))).jobs:
            for name in {bucket.limit for bucket in row.buckets if is_breaker(bucket.name)}:
                if row.id in faults:
                    end = BreakerEnd("failure", faults[row.id].token, error=faults[row.id].fault)
                    ends.setdefault(name, []).append(end)
                else:
                    started[name] = max(started.get(name, 0), await _lost_token(store, row))
    for name, token in started.items():
        ends.setdefault(name, []).append(BreakerEnd("failure", token, error=error))
    return ends


async def _lost_token(store: Store, row: JobRow) -> int:
    """The token that a lost worker had for this job. The job may run again, perhaps as a probe."""
    if row.state is not State.RUNNING:
        return row.token
    return max((attempt.token for attempt in await store.attempts(row.id)), default=row.token)


async def _swap(store: Store, name: str, compute: Callable[[StoredBreaker], Counted]) -> list[BreakerRow] | None:
    """Read the row, compute the change and write it, again as long as others write in between. None if unknown."""
    found = await store.swap_breakers([BreakerSwap(name=name)])
    while found:
        (before,) = found
        counted = compute(before)
        if counted.swap is None:
            return []
        found = await store.swap_breakers([counted.swap])
        if found and found[0].rev == counted.swap.rev:
            return changed_rows(before, found[0], counted.changes)
    return None
