"""The statement that inserts a batch, and what its rows say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, TypeVar

from psycopg.pq import Format

from mainspring.jobs.lanes import base_lane
from mainspring.jobs.records import Enqueued, JobBatch, NewJob
from mainspring.stores.postgres.driver.arrays import flags, numbers, words
from mainspring.stores.postgres.driver.native import NativeRows, NativeStep, byteas
from mainspring.stores.postgres.driver.session import Rows, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.fair import stored_buckets
from mainspring.stores.postgres.flows import flow_columns, stored_bits
from mainspring.stores.postgres.jobs.follow_ups import follow_ups_json
from mainspring.stores.postgres.jobs.keys import key_columns
from mainspring.stores.postgres.lanes import home
from mainspring.stores.postgres.limits import limits_json
from mainspring.stores.postgres.queues import queues_json
from mainspring.stores.shared import plain
from mainspring.stores.shared.folding import folded, unfolded

T = TypeVar("T")

_JOBS = """%(id)b::bytea[], %(task)b::text[], %(queue)b::text[], %(home)b::text[],
    %(priority)s::integer[], %(delay)s::bigint[], %(run_at)s::bigint[], %(expires_in)s::bigint[],
    %(crashes)s::integer[], %(early)s::boolean[], %(record)b::bytea[]"""

_ONE = "select * from {schema}.enqueue_one_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_ALIKE = "select * from {schema}.enqueue_alike_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_T, _B = Format.TEXT, Format.BINARY
_SHORT_FORMATS = (_B, _T, _B, _B, _B, _B, _T, _T, _T, _B)
_fits_short = plain.only("id", "task", "queue", "kind", "priority", "crashes", "early", "record")

_fits_plain = plain.only(
    "id", "task", "queue", "kind", "priority", "delay", "run_at", "expires_in", "crashes", "early", "record"
)
_PLAIN = "select * from {schema}.enqueue_plain_v1(%(batch)s, %(now)s::bigint, " + _JOBS + ")"

_FULL = (
    "select * from {schema}.enqueue_v1(%(batch)s, %(retry)s, %(now)s::bigint, "
    + _JOBS
    + """,
    %(keep)s::bigint[], %(followed)s::smallint[], %(names)b::text[], %(costs)b::text[],
    %(key)b::bytea[], %(window)s::bigint[], %(conflict)b::text[], %(modes)s::jsonb, %(limits)s::jsonb,
    %(queues)s::jsonb, %(accepted)s::boolean, %(open)s::boolean,
    %(child_at)s::integer[], %(parent)b::bytea[], %(parent_at)s::integer[], %(policy)b::text[],
    %(join_at)s::integer[], %(join_open)s::boolean[], %(join_lenient)s::boolean[],
    %(before_at)s::integer[], %(before)b::bytea[], %(before_in)s::integer[],
    %(mark_at)s::integer[], %(mark)b::text[], %(follow_ups)s::jsonb
)"""
)


def enqueue_short(batch: JobBatch, schema: str, now: int | None) -> NativeStep | None:
    """The short statement for plain jobs that are due at once and differ only in their ids and records.

    None for any other batch.
    """
    jobs = batch.jobs
    if not jobs or not _is_bare(batch) or not _fits_short(first := jobs[0]):
        return None
    one = len(jobs) == 1
    if not one and (len({job.id for job in jobs}) < len(jobs) or not plain.are_alike(jobs)):
        return None
    values = (
        batch.id, None if now is None else str(now).encode(),
        first.id if one else byteas([job.id for job in jobs]),
        first.task, first.queue, base_lane(first.queue, first.kind), str(first.priority).encode(),
        str(first.crashes).encode(), b"t" if first.early else b"f",
        first.record if one else byteas([job.record for job in jobs]),
    )  # fmt: skip
    return NativeStep(_short_text(schema, one), values, _SHORT_FORMATS)


@cache
def _short_text(schema: str, one: bool) -> bytes:
    return fill_schema(_ONE if one else _ALIKE, schema).encode()


def enqueue_call(batch: JobBatch, schema: str, now: int | None, *, open_: bool = False) -> Step:
    """The statement that inserts a batch; ``open_`` if it runs in a transaction that may stay open for long."""
    jobs = folded(_distinct(batch.jobs))
    short = _is_bare(batch) and all(map(_fits_plain, jobs))
    each = _one_for_all if short else list
    params: dict[str, Any] = {
        "batch": batch.id,
        "now": now,
        "id": [job.id for job in jobs],
        "task": each([job.task for job in jobs]),
        "queue": each([job.queue for job in jobs]),
        "home": each([home(job) for job in jobs]),
        "priority": numbers(each([job.priority for job in jobs])),
        "delay": numbers(each([job.delay for job in jobs])),
        "run_at": numbers(_unless_all_none([job.run_at for job in jobs])),
        "expires_in": numbers(_unless_all_none([job.expires_in for job in jobs])),
        "crashes": numbers(each([job.crashes for job in jobs])),
        "early": flags(each([job.early for job in jobs])),
        "record": [job.record for job in jobs],
    }
    if short:
        return fill_schema(_PLAIN, schema), params
    whole = {
        "retry": batch.retry, "limits": limits_json(batch.limits), "queues": queues_json(batch.queues),
        "accepted": batch.accepted, "open": open_,
    }  # fmt: skip
    return fill_schema(_FULL, schema), params | whole | _optional_columns(jobs)


def may_wait(batch: JobBatch) -> bool:
    """Whether other transactions can hold the batch up: keys, limits, queues and parents are locked."""
    return bool(batch.limits or batch.queues) or any(
        job.unique or job.buckets or job.fair or job.after or job.before or job.join for job in batch.jobs
    )


def enqueue_reply(batch: JobBatch, rows: Rows) -> list[Enqueued]:
    """The reply for each job, in the order of the batch. The rows name only jobs that were not inserted.

    An id that occurs twice in the batch was inserted once.
    """
    jobs = folded(batch.jobs)
    if not rows and len({job.id for job in jobs}) == len(batch.jobs):
        return [Enqueued(job.id, True) for job in jobs]
    answers = {row[0]: row[1] for row in rows}
    replies = []
    for job in jobs:
        replies.append(Enqueued(answers.get(job.id, job.id), job.id not in answers))
        answers.setdefault(job.id, job.id)
    return unfolded(batch.jobs, replies)


def decode_rows(rows: NativeRows) -> Rows:
    """The rows of :func:`enqueue_short`: ids, and the name of a queue."""
    return [(id, answer, None if queue is None else queue.decode()) for id, answer, queue in rows]


def freed_queues(rows: Rows) -> set[str]:
    """The queues in which jobs of earlier enqueues became ready."""
    return {row[2] for row in rows if row[2] is not None}


def _distinct(jobs: Sequence[NewJob]) -> Sequence[NewJob]:
    """The jobs without repeated ids; the first job of an id stays."""
    if len({job.id for job in jobs}) == len(jobs):
        return jobs
    found: dict[bytes, NewJob] = {}
    for job in jobs:
        found.setdefault(job.id, job)
    return list(found.values())


def _is_bare(batch: JobBatch) -> bool:
    """Whether the batch has nothing but its jobs."""
    return not (batch.retry or batch.limits or batch.queues or batch.accepted)


def _optional_columns(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """What only some jobs have. A list with one entry per job is empty when no job has the thing."""
    marks = [(at, mark) for at, job in enumerate(jobs, start=1) for mark in job.marks]
    named = [stored_buckets(job) for job in jobs] if any(job.buckets or job.fair for job in jobs) else []
    return {
        "keep": numbers(_unless_all_none([job.keep for job in jobs])),
        "followed": stored_bits(jobs),
        "names": [None if each is None else words(each) for each in named],
        "costs": [numbers(each.values()) if each and set(each.values()) - {1} else None for each in named],
        **key_columns(jobs if any(job.unique for job in jobs) else ()),
        **flow_columns(jobs),
        "mark_at": numbers(at for at, _ in marks),
        "mark": [mark for _, mark in marks],
        "follow_ups": follow_ups_json(jobs),
    }


def _one_for_all(values: list[T]) -> list[T]:
    """The first value alone, if all are equal: most batches have one task."""
    return values[:1] if values and values.count(values[0]) == len(values) else values


def _unless_all_none(values: list[int | None]) -> Iterable[int | None]:
    return values if any(value is not None for value in values) else ()
