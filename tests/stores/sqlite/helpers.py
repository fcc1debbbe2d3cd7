"""Helpers of these tests, and of the child processes that they start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeVar

from mainspring.common.ids import new_id, new_ids
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.jobs.query import Query
from mainspring.jobs.records import Enqueued, JobBatch, NewJob
from mainspring.states import State
from mainspring.stores.sqlite import SqliteStore
from mainspring.worker.records import Beat, Claim, Registration, Turn, TurnResult, Want

T = TypeVar("T")
TASK = "shop.tasks.send"
LANE = "q/any"
PATIENCE = 60.0


def job(**options: Any) -> NewJob:
    return NewJob(**{"id": new_id().bytes, "task": TASK, "queue": "q", **options})


def jobs(n: int, **options: Any) -> tuple[NewJob, ...]:
    return tuple(job(id=made.bytes, **options) for made in new_ids(n))


def batch(*made: NewJob) -> JobBatch:
    return JobBatch(id=new_id().bytes, jobs=made)


def enqueue(store: SqliteStore, *made: NewJob, connection: Any = None) -> list[Enqueued]:
    return store.enqueue_now(batch(*made), connection)


async def close(*stores: SqliteStore) -> None:
    for store in stores:
        await store.close()


async def states(store: SqliteStore) -> dict[State, int]:
    counts = await store.count(Query.everything())
    return {state: n for state, n in counts.items() if n}


class Worker:
    """A worker that numbers its turns."""

    def __init__(self, store: SqliteStore, name: str = "w", tasks: tuple[str, ...] = (TASK,)) -> None:
        self.store, self.name, self.tasks, self.number = store, name, tasks, 0

    async def join(self) -> Worker:
        registration = Registration(queues=("q",), tasks=self.tasks)
        (beaten,) = await self.store.beat([Beat(self.name, registration)])
        assert beaten.alive
        return self

    async def turn(self, *acks: Ack, n: int = 0) -> TurnResult:
        self.number += 1
        wants = (Want((LANE,), n),) if n else ()
        return await self.store.turn(
            Turn(worker=self.name, number=self.number, seen=self.number - 1, acks=acks, wants=wants)
        )

    async def take(self, n: int = 1) -> tuple[Claim, ...]:
        return (await self.turn(n=n)).claims


def succeeded(claim: Claim, result: bytes = b"1") -> Ack:
    return Ack.succeeded(Lease(claim.id, claim.token), result)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def child(program: str, path: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start a process that runs ``program`` with the names ``path`` and ``store``; its output is read by line."""
    head = """
        import asyncio, os, sys
        from pathlib import Path
        from mainspring.stores.sqlite import SqliteStore
        from tests.stores.sqlite.helpers import *
        path, arguments = Path(sys.argv[1]), sys.argv[2:]
        store = SqliteStore(str(path), durability="normal")
        def say(*words):
            print(*words, flush=True)
    """
    return subprocess.Popen(
        [sys.executable, "-c", dedent(head) + dedent(program), str(path), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )


def read_line(process: subprocess.Popen[str]) -> str:
    """The next line that the child prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, f"the child ended with {process.wait(PATIENCE)}"
    return line.strip()


def write_line(process: subprocess.Popen[str], line: str = "") -> None:
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def read_rest(process: subprocess.Popen[str]) -> str:
    """Everything else that the child prints; it must end with code 0."""
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    return said
