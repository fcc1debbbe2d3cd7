"""A small world for tests: one store, some tasks, workers in this process."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, TypeVar

import msgspec

from mainspring.codec import ErrorRecord, Signature, decode_result
from mainspring.common.backoff import Backoff
from mainspring.common.ids import new_id
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptRow, JobBatch, JobBody, JobRow, LogLine, NewJob
from mainspring.launch.services import build_services
from mainspring.states import FINAL, State
from mainspring.stores.base import Store
from mainspring.stores.connect import StoreAddress, connect
from mainspring.tasks.spec import TaskSpec
from mainspring.testing.contract.hands import limits_of
from mainspring.worker.config import WorkerConfig, WorkerSettings
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.worker import Worker
from tests.timing import patience

LIMIT = 60.0
"""Seconds after which something that must happen counts as not happening; see `patience`."""
SECOND = 1_000_000
BATCH = 1000
"""Jobs that every store takes at once."""

T = TypeVar("T")


class World:
    """The store, the tasks and the workers of one test."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store: Store = connect(url, durability="normal", deadline=patience(10))
        self.tasks: dict[str, TaskSpec] = {}
        self.running: list[Running] = []

    def task(self, fn: Callable[..., Any], **options: Any) -> str:
        """Declare a task; returns its name. Options are the fields of ``TaskSpec``."""
        name: str = options.pop("name", fn.__name__)
        takes_context = options.pop("takes_context", False)
        kind: Literal["async", "thread"] = "async" if inspect.iscoroutinefunction(fn) else "thread"
        plain: dict[str, Any] = {
            "retries": 0, "timeout": 0, "soft_timeout": 0, "backoff": Backoff.fixed(0), "retry_on": (),
            "never_retry_on": (), "retry_if": None, "crashes": 3, "early": False, "strict": False, "keep_result": True,
            "options": {"queue": "default"},
        }  # fmt: skip
        self.tasks[name] = TaskSpec(
            name=name, fn=fn, kind=kind, signature=Signature.of(fn, skip_context=takes_context, task=name),
            takes_context=takes_context, **{**plain, **options},
        )  # fmt: skip
        return name

    def new_job(self, task: str, /, *args: Any, _body: Mapping[str, Any] | None = None, **options: Any) -> NewJob:
        spec = self.tasks.get(task)
        data = spec.signature.encode_call(args, {}) if spec else b"{}"
        record = msgspec.json.encode(JobBody(args=msgspec.Raw(data), **(_body or {})))
        kind = spec.kind if spec else "any"
        fields = {"id": new_id().bytes, "queue": "default", "kind": kind, "record": record, **options}
        return NewJob(task=task, early=bool(spec and spec.early), **fields)

    async def put(self, *jobs: NewJob) -> list[bytes]:
        for start in range(0, len(jobs), BATCH):
            await self.store.enqueue(
                JobBatch(id=os.urandom(16), jobs=jobs[start : start + BATCH], limits=limits_of(jobs))
            )
        return [job.id for job in jobs]

    async def enqueue(self, task: str, /, *args: Any, **options: Any) -> bytes:
        (made,) = await self.put(self.new_job(task, *args, **options))
        return made

    # ---- workers -----------------------------------------------------------------------------

    def worker(self, *, store: Store | None = None, lifespans: tuple[Any, ...] = (), **settings: Any) -> Running:
        """A worker that starts now."""
        supervised = settings.pop("supervised", False)
        plain = {"async_slots": 8, "thread_slots": 4, "grace": 2 * SECOND, "poll": SECOND // 4}
        parts = WorkerConfig(
            StoreAddress(url=self.url), dict(self.tasks), WorkerSettings(**{**plain, **settings}), lifespans, "test"
        )
        running = Running(
            Worker(
                parts,
                store or self.store,
                shared_state=SharedState.create(256),
                services=build_services,
                supervised=supervised,
            )
        )
        self.running.append(running)
        return running

    async def drain(self, **settings: Any) -> int:
        """Run a worker until nothing is left."""
        return await self.worker(until_empty=True, **settings).end()

    async def close(self) -> None:
        for running in self.running:
            running.worker.stop()
        for running in self.running:
            await asyncio.wait({running.task}, timeout=LIMIT)
        await self.store.close()

    # ---- looking -----------------------------------------------------------------------------

    async def row(self, job: bytes) -> JobRow:
        found = await self.store.find(Query.of(job))
        return found.jobs[0]

    async def final(self, job: bytes) -> JobRow:
        """The row of the job once it is final."""
        return await self.until(job, *FINAL)

    async def until(self, job: bytes, *states: State) -> JobRow:
        async def look() -> JobRow | None:
            row = await self.row(job)
            return row if row.state in states else None

        return await eventually(look, f"job {job.hex()} in {states}")

    async def counts(self) -> dict[State, int]:
        counted = await self.store.count(Query.everything())
        return {state: count for state, count in counted.items() if count}

    async def attempts(self, job: bytes) -> list[AttemptRow]:
        return await self.store.attempts(job)

    async def logs(self, job: bytes) -> list[LogLine]:
        return await self.store.logs(job)


class Running:
    """A worker on its way."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.task = asyncio.create_task(worker.run())

    async def started(self) -> Running:
        waits = {self.task, asyncio.create_task(self.worker.wait_started())}
        await asyncio.wait(waits, timeout=patience(LIMIT), return_when=asyncio.FIRST_COMPLETED)
        assert not self.task.done(), self.task.result()
        return self

    async def drained(self) -> int:
        self.worker.drain()
        return await self.end()

    async def stopped(self) -> int:
        self.worker.stop()
        return await self.end()

    async def end(self) -> int:
        async with asyncio.timeout(patience(LIMIT)):
            return await asyncio.shield(self.task)


async def eventually(look: Callable[[], Awaitable[T | None]], what: str) -> T:
    """What ``look`` finds, asked for again and again."""
    end = asyncio.get_running_loop().time() + patience(LIMIT)
    while (found := await look()) is None:
        if asyncio.get_running_loop().time() > end:
            raise AssertionError(f"never happened: {what}")
        await asyncio.sleep(0.01)
    return found


def result(row: JobRow) -> Any:
    assert row.state is State.SUCCEEDED, (row.state, row.reason, row.error)
    assert row.result is not None
    return decode_result(row.result)


def error(row: JobRow | AttemptRow) -> ErrorRecord:
    assert row.error is not None
    return msgspec.json.decode(row.error, type=ErrorRecord)
