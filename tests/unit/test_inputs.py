"""InputLoader: a job whose arguments are read holds a place of its pool, and is started or handed back once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from mainspring.common.ids import raw_id
from mainspring.errors import StoreUnavailable, Undecodable
from mainspring.jobs.outcomes import Ack, Lease, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBody
from mainspring.states import State
from mainspring.worker.run.flows.inputs import InputLoader, add_inputs

PARENT = raw_id()


class Store:
    """Finds one succeeded job, after ``go``; ``error`` is raised instead."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go = asyncio.Event()
        self.error = error

    async def find(self, query: Query, limit: int = 100, cursor: str | None = None) -> Any:
        await self.go.wait()
        if self.error is not None:
            raise self.error
        row = SimpleNamespace(id=PARENT, task="load", state=State.SUCCEEDED, reason=None, result=b"7", record=b"{}")
        return SimpleNamespace(jobs=[row], cursor=None)


class Floor:
    """A pool, and what has become of the attempts."""

    def __init__(self, error: Exception | None = None) -> None:
        self.store = Store(error)
        self.pool = SimpleNamespace(held=0)
        self.started: list[Any] = []
        self.acks: list[Ack] = []
        self.loader = InputLoader(
            cast("Any", self.store), {"async": cast("Any", self.pool)}, self.started.append,
            lambda attempt, ack: self.acks.append(ack), lambda attempt, error: cast("Any", error),
        )  # fmt: skip

    async def settle(self) -> None:
        self.store.go.set()
        for _ in range(10):
            await asyncio.sleep(0)


def attempt(**body: Any) -> Any:
    record = msgspec.json.encode(JobBody(**body))
    claim = SimpleNamespace(record=record, task="count", id=raw_id())
    facts = {"claim": claim, "lease": Lease(claim.id, 1), "spec": SimpleNamespace(kind="async", slots="async")}
    return type("Attempt", (), {**facts, "inputs": None, "finished": False})()


def waiting() -> Any:
    return attempt(inputs={"n": PARENT.hex()})


async def test_jobs_without_inputs_start_at_once() -> None:
    floor, plain = Floor(), attempt()
    assert floor.loader.take([plain]) == [plain]
    assert floor.pool.held == 0


async def test_a_job_holds_a_place_until_its_inputs_are_there() -> None:
    floor, plain, late = Floor(), attempt(), waiting()
    assert floor.loader.take([plain, late]) == [plain]
    assert (floor.pool.held, floor.started) == (1, [])
    await floor.settle()
    assert (floor.pool.held, floor.started, late.inputs) == (0, [late], {"n": b"7"})
    assert floor.acks == []


async def test_an_outage_hands_the_job_back() -> None:
    """It is not the job's fault: no attempt is used up."""
    floor, late = Floor(StoreUnavailable("gone")), waiting()
    floor.loader.take([late])
    await floor.settle()
    [ack] = floor.acks
    assert (ack.outcome, floor.pool.held, late.finished) == (Outcome.INTERRUPTED, 0, True)


async def test_an_error_of_the_results_ends_the_job() -> None:
    floor, late = Floor(Undecodable("job of task 'count'", "too large")), waiting()
    floor.loader.take([late])
    await floor.settle()
    [error] = floor.acks
    assert "too large" in str(error)


async def test_a_worker_that_stops_hands_back_what_it_reads_for_once() -> None:
    floor, first, second = Floor(), waiting(), waiting()
    floor.loader.take([first, second])
    floor.loader.hand_back()
    floor.loader.hand_back()
    await floor.settle()
    assert [ack.outcome for ack in floor.acks] == [Outcome.INTERRUPTED] * 2
    assert (floor.pool.held, floor.started) == (0, [])


@pytest.mark.parametrize(("missing", "data"), [((), b'{"a":1,"b":[2,3]}'), (("c",), b'{"a":1,"c":null,"b":[2,3]}')])
def test_results_are_put_into_the_stored_arguments(missing: tuple[str, ...], data: bytes) -> None:
    assert add_inputs(b'{"a":1}', {"b": b"[2,3]"}, missing) == data
