"""Flows: joins, the edges of a job, and the retry of a flow from where it failed.

A join is a blocked row of ``jobs`` with the flag ``FLAG_JOIN`` and a row of ``joins``, which has the counts and stays
until the job is deleted. Its members are the parents of its edges with the policy ``member``. The other parts are with
the features that they belong to: ``jobs/enqueue.py`` adds edges, ``jobs/finish.py`` resolves edges and ends joins,
``jobs/promote.py`` goes on with large joins and cancelled flows, ``jobs/prune.py`` deletes flows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mainspring.jobs.records import ActResult, Edge, FlowRetry, JoinRow
from mainspring.states import Action, State, sources
from mainspring.stores.shared.retries import distinct_retries

from .driver.constants import FLAG_HAS_CHILDREN, FLAG_JOIN
from .driver.statements import sizes
from .jobs.actions import is_join, revive, table_and_state
from .jobs.enqueue import NewEdges
from .jobs.finish import settle_join
from .jobs.keys import retake_key
from .lanes import enter_ready

if TYPE_CHECKING:
    from .driver.transaction import Tx
    from .lanes import Placement


def close_join(tx: Tx, join: bytes) -> JoinRow | None:
    if tx.run("close_join", (join,)):
        settle_join(tx, join)
    return next(iter(joins(tx, [join])), None)


def joins(tx: Tx, ids: Sequence[bytes]) -> list[JoinRow]:
    found: dict[bytes, JoinRow] = {}
    for start, end in sizes(len(ids)):
        for job, is_open, total, succeeded, dead, cancelled, bypassed in tx.sized("joins", end - start, ids[start:end]):
            found[job] = JoinRow(
                id=job, open=bool(is_open), total=total, succeeded=succeeded, dead=dead, cancelled=cancelled,
                bypassed=bypassed,
            )  # fmt: skip
    return [found[id] for id in ids if id in found]


def waits_for(tx: Tx, job: bytes, limit: int) -> list[Edge]:
    return [Edge(*row) for row in tx.all("waits_for", (job, limit))]


# ---- retry ---------------------------------------------------------------------------------------------------


def retry_flow(tx: Tx, retries: Sequence[FlowRetry]) -> ActResult:
    """Revive the jobs first: then parents and children are live when the edges between them are added."""
    revived: dict[bytes, FlowRetry] = {}
    places: dict[bytes, tuple[str, Placement, int]] = {}
    refused: list[tuple[bytes, State]] = []
    held: list[tuple[bytes, bytes]] = []
    for retry in distinct_retries(retries):
        found = table_and_state(tx, retry.id)
        if found is None:
            continue
        table, state = found
        holder = retake_key(tx, retry.id) if state in sources(Action.RETRY_FLOW) else None
        if state not in sources(Action.RETRY_FLOW):
            refused.append((retry.id, state))
        elif holder is not None:
            held.append((retry.id, holder))
        else:
            revived[retry.id] = retry
            places[retry.id] = _revive(tx, retry, table)
    _link(tx, revived, places)
    return ActResult(tuple(revived), tuple(refused), held=tuple(held))


def _revive(tx: Tx, retry: FlowRetry, table: str) -> tuple[str, Placement, int]:
    """A revived join is closed, and its children and its flow are no longer ended in slices."""
    flags = FLAG_HAS_CHILDREN if retry.before else 0
    if is_join(tx, retry.id):
        flags |= FLAG_JOIN
        for statement in ("reopen_join", "all_released", "end_sweep"):
            tx.run(statement, (retry.id,))
    return revive(tx, retry.id, table, flags)


def _link(tx: Tx, revived: dict[bytes, FlowRetry], places: dict[bytes, tuple[str, Placement, int]]) -> None:
    """Add the edges, then block the jobs or make them ready. A job that does not wait takes no further parent."""
    edges = NewEdges(tx, list(revived.values()), {job for job in revived if is_join(tx, job)})
    edges.add(lambda _flags, _is_open: True, must_wait=False)
    for job, place in places.items():
        if job not in edges.ended and not edges.block(job, None):
            enter_ready(tx, *place)
    edges.settle()
