"""The statement that inserts a batch, and what its rows say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from mainspring.jobs.records import Batch, Enqueued, NewJob
from mainspring.schedules.records import part_of
from mainspring.stores.postgres.driver.arrays import flags, numbers, words
from mainspring.stores.postgres.driver.session import Rows, Step
from mainspring.stores.postgres.driver.statements import fill_schema
from mainspring.stores.postgres.fair import stored_buckets
from mainspring.stores.postgres.jobs.follow_ups import follow_ups_json, followed_bits
from mainspring.stores.postgres.jobs.keys import key_columns
from mainspring.stores.postgres.lanes import home
from mainspring.stores.postgres.limits import limits_json
from mainspring.stores.postgres.queues import queues_json
from mainspring.stores.shared.folding import folded, unfolded

T = TypeVar("T")

_JOBS = """%(id)b::bytea[], %(task)b::text[], %(queue)b::text[], %(home)b::text[],
    %(priority)s::integer[], %(delay)s::bigint[], %(run_at)s::bigint[], %(expires_in)s::bigint[],
    %(crashes)s::integer[], %(early)s::boolean[], %(record)b::bytea[]"""

_PLAIN = "select * from {schema}.enqueue_plain_v1(%(batch)s, %(now)s::bigint, " + _JOBS + ")"

_FULL = (
    "select * from {schema}.enqueue_v1(%(batch)s, %(retry)s, %(now)s::bigint, "
    + _JOBS
    + """,
    %(keep)s::bigint[], %(followed)s::smallint[], %(names)b::text[], %(costs)b::text[],
    %(key)b::bytea[], %(window)s::bigint[], %(conflict)b::text[], %(modes)s::jsonb, %(limits)s::jsonb,
    %(queues)s::jsonb, %(accepted)s::boolean, %(open)s::boolean,
    %(child_at)s::integer[], %(parent)b::bytea[], %(parent_at)s::integer[], %(policy)b::text[],
    %(mark_at)s::integer[], %(mark)b::text[], %(follow_ups)s::jsonb, %(schedule)b::text[], %(forced)s::boolean
)"""
)


def enqueue_call(batch: Batch, schema: str, now: int | None, *, open_: bool = False) -> Step:
    """The statement that inserts a batch; ``open_`` if it runs in a transaction that may stay open for long."""
    jobs = folded(_distinct(batch.jobs))
    plain = not (batch.retry or batch.limits or batch.queues or batch.accepted) and _are_plain(jobs)
    each = _one_for_all if plain else list
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
    if plain:
        return fill_schema(_PLAIN, schema), params
    whole = {
        "retry": batch.retry, "limits": limits_json(batch.limits), "queues": queues_json(batch.queues),
        "accepted": batch.accepted, "open": open_, "forced": batch.forced,
    }  # fmt: skip
    return fill_schema(_FULL, schema), params | whole | _optional_columns(jobs)


def may_wait(batch: Batch) -> bool:
    """Whether other transactions can hold the batch up: keys, limits, queues, parents and schedules are locked."""
    return bool(batch.limits or batch.queues) or any(
        job.unique or job.buckets or job.fair or job.after or (job.marks and part_of(job.marks) is not None)
        for job in batch.jobs
    )


def enqueue_reply(batch: Batch, rows: Rows) -> list[Enqueued]:
    """The reply for each job, in the order of the batch. The rows name only jobs that were not inserted.

    An id that occurs twice in the batch was inserted once.
    """
    if not rows and len(batch.jobs) == 1:
        return [Enqueued(batch.jobs[0].id, True)]
    answers = {row[0]: row[1] for row in rows}
    replies = []
    for job in folded(batch.jobs):
        replies.append(Enqueued(answers.get(job.id, job.id), job.id not in answers))
        answers.setdefault(job.id, job.id)
    return unfolded(batch.jobs, replies)


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


def _are_plain(jobs: Sequence[NewJob]) -> bool:
    return not any([  # noqa: C419  # a generator costs 3 x as much for one job
        job.after or job.buckets or job.fair or job.unique or job.marks or job.follows or job.keep is not None
        for job in jobs
    ])  # fmt: skip


def _optional_columns(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """What only some jobs have. A list with one entry per job is empty when no job has the thing."""
    places = {job.id: at for at, job in enumerate(jobs, start=1)}
    edges = [(at, edge) for at, job in enumerate(jobs, start=1) for edge in job.after]
    marks = [(at, mark) for at, job in enumerate(jobs, start=1) for mark in job.marks]
    named = [stored_buckets(job) for job in jobs] if any(job.buckets or job.fair for job in jobs) else []
    schedules = [part_of(job.marks) for job in jobs]
    return {
        "keep": numbers(_unless_all_none([job.keep for job in jobs])),
        "followed": numbers([followed_bits(job) for job in jobs] if any(job.follows for job in jobs) else []),
        "names": [None if each is None else words(each) for each in named],
        "costs": [numbers(each.values()) if each and set(each.values()) - {1} else None for each in named],
        **key_columns(jobs if any(job.unique for job in jobs) else ()),
        "child_at": numbers(at for at, _ in edges),
        "parent": [edge.parent for _, edge in edges],
        "parent_at": numbers(places.get(edge.parent) for _, edge in edges),
        "policy": [edge.policy for _, edge in edges],
        "mark_at": numbers(at for at, _ in marks),
        "mark": [mark for _, mark in marks],
        "follow_ups": follow_ups_json(jobs),
        "schedule": schedules if any(schedule is not None for schedule in schedules) else [],
    }


def _one_for_all(values: list[T]) -> list[T]:
    """The first value alone, if all are equal: most batches have one task."""
    return values[:1] if values and values.count(values[0]) == len(values) else values


def _unless_all_none(values: list[int | None]) -> Iterable[int | None]:
    return values if any(value is not None for value in values) else ()
