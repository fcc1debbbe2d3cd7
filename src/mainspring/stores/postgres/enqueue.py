"""Enqueue: one statement with parameters, which runs on any connection."""

from __future__ import annotations

from typing import Any, LiteralString

import psycopg

from mainspring.errors import WrongConnection
from mainspring.lanes import base_lane, limited_lane
from mainspring.records import Enqueued, NewJob
from mainspring.stores.base import Batch
from mainspring.stores.postgres.arrays import flags, numbers
from mainspring.stores.postgres.session import Params, Rows, run
from mainspring.stores.postgres.statements import fill
from mainspring.stores.postgres.unbuilt import check_jobs

_CALL = """
select * from {schema}.enqueue_v1(
    %(batch)s, %(retry)s, %(now)s::bigint, %(id)b::bytea[], %(task)b::text[], %(queue)b::text[], %(home)b::text[],
    %(priority)s::integer[], %(delay)s::bigint[], %(run_at)s::bigint[], %(expires_in)s::bigint[],
    %(crashes)s::integer[], %(early)s::boolean[], %(record)b::bytea[],
    %(child)b::bytea[], %(parent)b::bytea[], %(policy)b::text[],
    %(holder)b::bytea[], %(bucket)b::text[], %(size)s::integer[]
)
"""


def call(batch: Batch, schema: str, now: int | None) -> tuple[LiteralString, Params]:
    """The statement that inserts a batch."""
    jobs = batch.jobs
    check_jobs(jobs)
    edges = [(job.id, edge) for job in jobs for edge in job.after]
    limits = [(job.id, bucket) for job in jobs for bucket in job.buckets]
    return fill(_CALL, schema), {
        "batch": batch.id,
        "retry": batch.retry,
        "now": now,
        "id": [job.id for job in jobs],
        "task": [job.task for job in jobs],
        "queue": [job.queue for job in jobs],
        "home": [_home(job) for job in jobs],
        "priority": numbers(job.priority for job in jobs),
        "delay": numbers(job.delay for job in jobs),
        "run_at": numbers(job.run_at for job in jobs),
        "expires_in": numbers(job.expires_in for job in jobs),
        "crashes": numbers(job.crashes for job in jobs),
        "early": flags(job.early for job in jobs),
        "record": [job.record for job in jobs],
        "child": [child for child, _ in edges],
        "parent": [edge.parent for _, edge in edges],
        "policy": [edge.policy for _, edge in edges],
        "holder": [holder for holder, _ in limits],
        "bucket": [bucket.name for _, bucket in limits],
        "size": numbers(bucket.size for _, bucket in limits),
    }


def reply(batch: Batch, rows: Rows) -> list[Enqueued]:
    """What became of each job, in the order of the batch; an id that is twice in it was made once."""
    created = {row[0] for row in rows}
    said = []
    for job in batch.jobs:
        said.append(Enqueued(job.id, job.id in created))
        created.discard(job.id)
    return said


def in_callers_transaction(connection: Any, sql: LiteralString, params: Params, *, schema: str) -> Rows:
    """Run the statement on the caller's connection: it commits or rolls back with what the caller does there."""
    if not isinstance(connection, psycopg.Connection):
        raise WrongConnection(
            f"connection= is a {type(connection).__module__}.{type(connection).__qualname__}, not a psycopg.Connection",
            hint="Pass an open psycopg 3 connection; SQLAlchemy: session.connection().connection.driver_connection.",
        )
    if connection.closed:
        raise WrongConnection("connection= is closed", hint="Enqueue before the connection is closed or given back.")
    if run(connection, "select to_regnamespace(%(schema)s)", {"schema": schema}) == [(None,)]:
        raise WrongConnection(
            f"connection= leads to database {connection.info.dbname!r}, which has no schema {schema!r}",
            hint="Pass a connection to the database that the store's URL names.",
        )
    return run(connection, sql, params)


def _home(job: NewJob) -> str:
    base = base_lane(job.queue, job.kind)
    return limited_lane(base, sorted({bucket.name for bucket in job.buckets})) if job.buckets else base
