"""The bare driver: what psycopg and asyncio cost without a queue around them. No recovery, no retries, nothing.

Run as a program it drains: the ack of a batch and the claim of the next in one statement, which is one commit. When
there is nothing it waits for a notification.
"""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import psycopg
import psycopg_pool

from benchmarks.programs import produce
from benchmarks.programs.bodies import BATCH, body, run

SCHEMA = """
create table if not exists job (
    id bigint generated always as identity primary key, state integer not null, body bytea not null
);
create index if not exists job_ready on job (id) where state = 0;
"""
INSERT = "with made as (insert into job (state, body) values (0, %b)) select pg_notify('ready', '')"
FILL = """
with made as (insert into job (state, body) select 0, b from unnest(%b::bytea[]) b)
select pg_notify('ready', '')
"""
TURN = f"""
with gone as (delete from job where id = any(%b))
update job set state = 1
where id = any(array(select id from job where state = 0 order by id limit {BATCH} for update skip locked))
returning id, body
"""  # noqa: S608
POOL = 10


def options() -> str:
    return f"-c synchronous_commit={'on' if os.environ['BENCH_DURABILITY'] == 'full' else 'off'}"


@functools.cache
def connect() -> psycopg.Connection:
    connection = psycopg.connect(os.environ["BENCH_STORE"], autocommit=True, options=options())
    connection.execute(SCHEMA)
    return connection


def one(task: str, n: int) -> None:
    """One durable insert."""
    connect().execute(INSERT, (body(task, n),), prepare=True)


def many(task: str, numbers: Sequence[int]) -> None:
    """One transaction."""
    connect().execute(FILL, ([body(task, n) for n in numbers],), prepare=True)


_pool: list[psycopg_pool.AsyncConnectionPool] = []


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    connect()
    arguments = {"autocommit": True, "options": options()}
    async with psycopg_pool.AsyncConnectionPool(
        os.environ["BENCH_STORE"], kwargs=arguments, min_size=POOL, max_size=POOL, open=False
    ) as pool:
        _pool.append(pool)
        yield


async def aone(task: str, n: int) -> None:
    """One durable insert on a connection of the pool: nothing is shared with other producers."""
    async with _pool[0].connection() as connection:
        await connection.execute(INSERT, (body(task, n),), prepare=True)


async def drain() -> None:
    connect()
    loop = asyncio.get_running_loop()
    link = await psycopg.AsyncConnection.connect(os.environ["BENCH_STORE"], autocommit=True, options=options())
    await link.execute("listen ready")
    cursor = link.cursor(binary=True)
    done: list[int] = []
    while True:
        claimed = await (await cursor.execute(TURN, (done,), prepare=True)).fetchall()
        done = [id for id, _ in claimed]
        if not done:
            async for _ in link.notifies(timeout=1, stop_after=1):
                pass
        await asyncio.gather(*[loop.create_task(run(data)) for _, data in claimed])


if __name__ == "__main__":
    produce.run(drain())
