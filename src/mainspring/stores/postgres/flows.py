"""Flows: joins, unresolved edges, retries of flows. Edges are resolved in the server: see ``sql/flows.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mainspring.jobs.records import ActResult, Edge, FlowRetry, JoinRow, NewJob
from mainspring.stores.postgres.driver.arrays import flags, numbers
from mainspring.stores.postgres.driver.constants import EDGE_HOLD, EDGE_MEMBER, IS_JOIN
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.jobs.actions import act_reply
from mainspring.stores.postgres.jobs.follow_ups import followed_bits
from mainspring.stores.shared.retries import distinct_retries

_COLUMNS = "id, open, total, succeeded, dead, cancelled, bypassed"
_CLOSE = f"select {_COLUMNS}, woken from {{schema}}.close_join_v1(%(join)s, %(now)s::bigint)"
_JOINS = f"select {_COLUMNS} from {{schema}}.joins where id = any(%(ids)b::bytea[])"
_WAITS_FOR = """
select parent, policy from {schema}.edges where child = %(job)s and policy <> %(hold)s order by parent limit %(limit)s
"""
_RETRY = """
select kind, id, note, holder from {schema}.retry_flow_v1(
    %(ids)b::bytea[], %(child_at)s::integer[], %(parent)b::bytea[], %(policy)b::text[],
    %(before_at)s::integer[], %(before)b::bytea[], %(now)s::bigint
)
"""


async def close_join(db: Database, join: bytes) -> JoinRow | None:
    rows = await db.rows(_CLOSE, {"join": join, "now": db.now()})
    if not rows:
        return None
    ((*row, woken),) = rows
    await db.wake(woken)
    return _join_row(row)


async def joins(db: Database, ids: Sequence[bytes]) -> list[JoinRow]:
    rows = await db.rows(_JOINS, {"ids": list(ids)})
    found = {row[0]: _join_row(row) for row in rows}
    return [found[each] for each in ids if each in found]


async def waits_for(db: Database, job: bytes, limit: int) -> list[Edge]:
    """A job that waits for itself waits for a call of ``close_join``, which is no edge of the contract."""
    rows = await db.rows(_WAITS_FOR, {"job": job, "hold": EDGE_HOLD, "limit": limit})
    return [Edge(parent) if policy == EDGE_MEMBER else Edge(parent, policy) for parent, policy in rows]


async def retry_flow(db: Database, retries: Sequence[FlowRetry]) -> ActResult:
    distinct = distinct_retries(retries)
    edges = [(at, edge) for at, retry in enumerate(distinct, start=1) for edge in retry.after]
    before = [(at, join) for at, retry in enumerate(distinct, start=1) for join in retry.before]
    params = {
        "ids": [retry.id for retry in distinct],
        "child_at": numbers(at for at, _ in edges),
        "parent": [edge.parent for _, edge in edges],
        "policy": [edge.policy for _, edge in edges],
        "before_at": numbers(at for at, _ in before),
        "before": [join for _, join in before],
        "now": db.now(),
    }
    result, woken = act_reply(await db.rows(_RETRY, params), by_id=True)
    await db.wake(woken)
    return result


def flow_columns(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The parameters of an enqueue that describe edges and joins; ``_at`` is the position of a job, from 1.

    A job before another job of the batch that is no join is written as a parent of that job.
    """
    places = {job.id: at for at, job in enumerate(jobs, start=1)}
    joined = [(at, job.join) for at, job in enumerate(jobs, start=1) if job.join is not None]
    edges = [(at, edge) for at, job in enumerate(jobs, start=1) for edge in job.after]
    before = []
    for at, job in enumerate(jobs, start=1):
        for child in job.before:
            inside = places.get(child)
            if inside is not None and jobs[inside - 1].join is None:
                edges.append((inside, Edge(job.id)))
            else:
                before.append((at, child, inside))
    return {
        "child_at": numbers(at for at, _ in edges),
        "parent": [edge.parent for _, edge in edges],
        "parent_at": numbers(places.get(edge.parent) for _, edge in edges),
        "policy": [edge.policy for _, edge in edges],
        "join_at": numbers(at for at, _ in joined),
        "join_open": flags(join.open for _, join in joined),
        "join_lenient": flags(join.lenient for _, join in joined),
        "before_at": numbers(at for at, _, _ in before),
        "before": [child for _, child, _ in before],
        "before_in": numbers(inside for _, _, inside in before),
    }


def stored_bits(jobs: Sequence[NewJob]) -> str:
    """The column ``followed``: for which ends a job has follow-up jobs, and whether it is a join. Empty if none is."""
    if not any(job.follows or job.join is not None for job in jobs):
        return numbers(())
    return numbers([followed_bits(job) | (0 if job.join is None else IS_JOIN) for job in jobs])


def _join_row(row: Sequence[Any]) -> JoinRow:
    id, open_, total, succeeded, dead, cancelled, bypassed = row
    return JoinRow(
        id=id, open=open_, total=total, succeeded=succeeded, dead=dead, cancelled=cancelled, bypassed=bypassed
    )
