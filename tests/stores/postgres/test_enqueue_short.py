"""The short statements for plain jobs store what the long statements store, and refuse the same data."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import psycopg
import pytest

from mainspring.common.ids import new_id
from mainspring.errors import StoreConflict
from mainspring.jobs.records import Enqueued, JobBatch, NewJob
from mainspring.stores.door import Door
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.driver.native import PREPARE_AFTER
from mainspring.stores.postgres.jobs.enqueue.statement import enqueue_short
from mainspring.testing.contract.hands import job

Enqueue = Callable[[PostgresStore, JobBatch], Coroutine[None, None, list[Enqueued]]]
OWN = {"id", "seq", "enqueued"}
"""The columns in which two equal jobs differ."""


def single(made: NewJob, **fields: Any) -> JobBatch:
    return JobBatch(id=made.id, jobs=(made,), **fields)


async def by_loop(store: PostgresStore, batch: JobBatch) -> list[Enqueued]:
    return await Door(store).enqueue(batch)


async def by_thread(store: PostgresStore, batch: JobBatch) -> list[Enqueued]:
    return await asyncio.to_thread(Door(store).enqueue_now, batch)


BOTH = pytest.mark.parametrize("enqueue", [by_loop, by_thread])


def row_of(url: str, schema: str, id: bytes) -> dict[str, Any]:
    with psycopg.connect(url, row_factory=psycopg.rows.dict_row) as connection:
        (row,) = connection.execute(f"select * from {schema}.jobs where id = %b", (id,)).fetchall()
    return {name: value for name, value in row.items() if name not in OWN}


@BOTH
async def test_the_short_and_the_long_statement_store_the_same_row(
    enqueue: Enqueue, store: PostgresStore, postgres_url: str
) -> None:
    fields: dict[str, Any] = {
        "queue": "Büro", "kind": "thread", "priority": -3, "crashes": 7, "early": True, "record": b"\0\xff",
    }  # fmt: skip
    short, long, retried = (job(**fields) for _ in range(3))
    alike = [job(**fields) for _ in range(3)]
    for _ in range(2 * PREPARE_AFTER):  # first as it is, then prepared; with a notification and without one
        short = msgspec.structs.replace(short, id=new_id().bytes)
        assert enqueue_short(single(short), "s", None) is not None
        assert await enqueue(store, single(short)) == [Enqueued(short.id, True)]
    several = JobBatch(id=alike[0].id, jobs=tuple(alike))
    assert enqueue_short(several, "s", None) is not None
    assert await enqueue(store, several) == [Enqueued(made.id, True) for made in alike]
    await enqueue(store, JobBatch(id=long.id, jobs=(long, job())))
    await enqueue(store, single(retried, retry=True))
    rows = [row_of(postgres_url, store.schema, made.id) for made in (long, short, *alike, retried)]
    assert rows == rows[:1] * 6


@BOTH
async def test_a_repeated_call_makes_one_job(enqueue: Enqueue, store: PostgresStore) -> None:
    batch = single(job())
    assert await enqueue(store, batch) == [Enqueued(batch.id, True)]
    assert await enqueue(store, batch) == [Enqueued(batch.id, False)]
    assert await enqueue(store, single(batch.jobs[0], retry=True)) == [Enqueued(batch.id, False)]
    assert await enqueue(store, batch) == [Enqueued(batch.id, False)]


@BOTH
async def test_jobs_that_exist_are_found_and_the_others_inserted_in_order(
    enqueue: Enqueue, store: PostgresStore, postgres_url: str
) -> None:
    jobs = [job() for _ in range(6)]
    await enqueue(store, single(jobs[2]))
    batch = JobBatch(id=new_id().bytes, jobs=tuple(jobs))
    assert enqueue_short(batch, "s", None) is not None
    said = await enqueue(store, batch)
    assert said == [Enqueued(made.id, made is not jobs[2]) for made in jobs]
    assert await enqueue(store, batch) == [Enqueued(made.id, False) for made in jobs]
    with psycopg.connect(postgres_url) as connection:
        found = connection.execute(f"select id from {store.schema}.jobs order by seq").fetchall()
    assert [id for (id,) in found] == [jobs[n].id for n in (2, 0, 1, 3, 4, 5)]


@BOTH
@pytest.mark.parametrize("fields", [{"queue": "a\0b"}, {"task": "a\0b"}, {"priority": 2**40}])
async def test_data_that_the_server_cannot_store_is_refused(
    enqueue: Enqueue, store: PostgresStore, postgres_url: str, fields: dict[str, Any]
) -> None:
    made = job(**fields)
    assert enqueue_short(single(made), "s", None) is not None
    with pytest.raises(StoreConflict, match="the data was refused"):
        await enqueue(store, single(made))
    with psycopg.connect(postgres_url) as connection:
        assert connection.execute(f"select count(*) from {store.schema}.jobs").fetchall() == [(0,)]


def test_other_batches_take_the_long_way() -> None:
    plain = job()
    assert enqueue_short(single(plain), "s", None) is not None
    for batch in (
        JobBatch(id=b"b", jobs=()),
        JobBatch(id=b"b", jobs=(plain, job(priority=1))),
        JobBatch(id=b"b", jobs=(plain, plain)),
        single(plain, retry=True),
        single(plain, accepted=True),
        single(job(delay=1)),
        single(job(marks=("tag",))),
    ):
        assert enqueue_short(batch, "s", None) is None
