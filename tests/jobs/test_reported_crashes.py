"""The process that ran one job has died and its worker says so: the events and the log lines that follow."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from mainspring.common.clock import to_datetime
from mainspring.jobs.outcomes import Ack
from mainspring.jobs.query import Query
from mainspring.states import Action, Reason, State
from mainspring.stores.connect import StoreAddress
from mainspring.tasks.hooks import Hooks
from mainspring.testing.contract.hands import Hand, lease
from mainspring.worker import failure_log
from mainspring.worker.config import WorkerConfig, WorkerSettings
from mainspring.worker.events.dispatcher import EventDispatcher
from mainspring.worker.events.names import moved_by_acks
from mainspring.worker.job_lines import JobLines
from mainspring.worker.run.attempt import RunEnvironment, RunningAttempt
from tests.jobs.world import World
from tests.timing import patience

ERROR = b'{"type":"ChildDied","message":"the child process ended with SIGSEGV"}'


async def crash(world: World, *, limit: int, ordered: bool = False, early: bool = False) -> tuple[Hand, Ack, Any]:
    """A worker runs a job whose process dies. Returns the worker, the ack that the store has, and the attempt."""

    def work() -> None: ...

    job = await world.enqueue(world.task(work, early=early), crashes=limit)
    hand = await Hand(world.store).join()
    claim = await hand.take_one("default/thread")
    if ordered:
        await world.store.act(Action.CANCEL, Query.of(job))
    environment = RunEnvironment("code")
    environment.worker = hand.name
    attempt = RunningAttempt(claim, world.tasks[claim.task], lease(claim), 0.0, environment)
    attempt.begun = True
    return hand, Ack.crashed(attempt.lease, ERROR, early=attempt.early, run_us=2_000_000), attempt


def dispatcher_of(world: World, events: list[Any]) -> EventDispatcher:
    hooks = Hooks()
    hooks.add(["stalled", "dead", "cancelled"], events.append, None)
    config = WorkerConfig(StoreAddress(url=world.url), dict(world.tasks), WorkerSettings(), (), "test", hooks=hooks)
    return EventDispatcher(config, world.store)


ENDS: dict[str, tuple[dict[str, Any], list[tuple[str, State, Reason | None]]]] = {
    "it runs again": ({"limit": 3}, [("stalled", State.READY, None)]),
    "its last crash": (
        {"limit": 1}, [("stalled", State.DEAD, Reason.CRASHED), ("dead", State.DEAD, Reason.CRASHED)],
    ),
    "acknowledged early": (
        {"limit": 3, "early": True}, [("stalled", State.DEAD, Reason.CRASHED), ("dead", State.DEAD, Reason.CRASHED)],
    ),
    "cancelled meanwhile": (
        {"limit": 3, "ordered": True},
        [("stalled", State.CANCELLED, Reason.BY_USER), ("cancelled", State.CANCELLED, Reason.BY_USER)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
async def test_hooks_get_the_events_of_a_crash(world: World, end: str) -> None:
    """The same as after the crash of a worker, with the error."""
    options, expected = ENDS[end]
    hand, ack, attempt = await crash(world, **options)
    said = await hand.turn(ack)
    events: list[Any] = []
    dispatcher = dispatcher_of(world, events)
    dispatcher.on_acks_stored([ack], said, {ack.id: attempt}, hand.name)
    await dispatcher.close(patience(20))
    assert [(each.name, each.state, each.reason) for each in events] == expected
    for each in events:
        assert (each.worker, each.attempt, each.at) == (hand.name, 1, to_datetime(said.now))
        assert each.error.type == "ChildDied"


@pytest.mark.parametrize("end", ENDS)
async def test_a_supervisor_reports_the_events_of_a_crash(world: World, end: str) -> None:
    options, expected = ENDS[end]
    hand, ack, _ = await crash(world, **options)
    await hand.turn(ack)
    events: list[Any] = []
    dispatcher = dispatcher_of(world, events)
    dispatcher.on_jobs_moved(moved_by_acks(hand.name, [ack]))
    await dispatcher.close(patience(20))
    assert [(each.name, each.state, each.reason) for each in events] == expected


@pytest.mark.parametrize(
    ("options", "level", "text"),
    [
        ({"limit": 3}, logging.WARNING, "the attempt crashed (crash 1 of the job): ChildDied: the child process ended"),
        ({"limit": 3, "early": True}, logging.ERROR, "the job is dead (crashed): ChildDied: the child process ended"),
    ],
)
async def test_a_crash_has_one_log_line(
    world: World, caplog: pytest.LogCaptureFixture, options: dict[str, Any], level: int, text: str
) -> None:
    hand, ack, attempt = await crash(world, **options)
    await hand.turn(ack)
    with caplog.at_level(logging.WARNING, logger="mainspring.worker"):
        failure_log.log_crashed_attempt(attempt, ack)
    (line,) = caplog.records
    assert (line.levelno, line.getMessage()) == (level, f"{text} with SIGSEGV")
    assert vars(line)["worker"] == hand.name


async def test_the_last_crash_of_a_suspect_is_logged_as_an_error(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A job in the lane of suspects is dead after its next crash."""
    hand, ack, attempt = await crash(world, limit=2)
    await hand.turn(ack)
    claim = await hand.take_one("default/thread")
    again = RunningAttempt(claim, attempt.spec, lease(claim), 0.0, attempt.environment)
    last = Ack.crashed(again.lease, ERROR, out_of_memory=True)
    await hand.turn(last)
    assert (await world.row(claim.id)).reason is Reason.OUT_OF_MEMORY
    with caplog.at_level(logging.WARNING, logger="mainspring.worker"):
        failure_log.log_crashed_attempt(again, last)
    (line,) = caplog.records
    assert line.levelno == logging.ERROR
    assert line.getMessage().startswith("the job is dead (out_of_memory): ChildDied")


async def test_the_line_of_an_attempt_names_the_crash(world: World, caplog: pytest.LogCaptureFixture) -> None:
    _, ack, attempt = await crash(world, limit=3)
    with caplog.at_level(logging.INFO, logger="mainspring.worker"):
        JobLines(logging.INFO).log_end(attempt, ack)
    (line,) = caplog.records
    assert line.levelno == logging.WARNING
    assert line.getMessage() == (
        "crashed  work(...): ChildDied: the child process ended with SIGSEGV (crash 1 of the job)  2.0 s"
    )
