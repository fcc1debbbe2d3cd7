"""The bare driver: what SQLite and asyncio cost without a queue around them. No recovery, no retries, nothing.

Run as a program it drains: the ack of a batch and the claim of the next in one transaction.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
from collections.abc import Sequence

from benchmarks.programs import produce
from benchmarks.programs.bodies import BATCH, body, run

CLAIM = f"""
update job set state = 1
where id in (select id from job where state = 0 order by id limit {BATCH})
returning id, body
"""  # noqa: S608


@functools.cache
def connect() -> sqlite3.Connection:
    connection = sqlite3.connect(os.environ["BENCH_STORE"], isolation_level=None)
    connection.execute("pragma journal_mode = wal")
    connection.execute(f"pragma synchronous = {os.environ['BENCH_DURABILITY']}")
    connection.execute("create table if not exists job (id integer primary key, state integer not null, body blob)")
    return connection


def one(task: str, n: int) -> None:
    """One durable insert."""
    connect().execute("insert into job (state, body) values (0, ?)", (body(task, n),))


def many(task: str, numbers: Sequence[int]) -> None:
    """One transaction."""
    connection = connect()
    connection.execute("begin immediate")
    connection.executemany("insert into job (state, body) values (0, ?)", [(body(task, n),) for n in numbers])
    connection.execute("commit")


def version(connection: sqlite3.Connection) -> int:
    """A number that changes when another connection commits."""
    return int(connection.execute("pragma data_version").fetchone()[0])


async def drain() -> None:
    connection = connect()
    loop = asyncio.get_running_loop()
    done: list[int] = []
    while True:
        connection.execute("begin immediate")
        if done:
            connection.execute(f"delete from job where id in ({','.join('?' * len(done))})", done)  # noqa: S608
        claimed = connection.execute(CLAIM).fetchall()
        seen = version(connection) if not claimed else 0
        connection.execute("commit")
        while not claimed and version(connection) == seen:  # noqa: ASYNC110  # no event comes from other processes
            await asyncio.sleep(0.001)  # nothing tells one process of another's commit
        await asyncio.gather(*[loop.create_task(run(data)) for _, data in claimed])
        done = [id for id, _ in claimed]


if __name__ == "__main__":
    produce.run(drain())
