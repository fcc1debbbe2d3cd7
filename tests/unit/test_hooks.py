"""Hooks: which hook gets which event, and which events an ack or a rescue makes."""

from __future__ import annotations

from typing import Any

import pytest

from mainspring.errors import InvalidOption, UnknownOption
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.states import Reason, State
from mainspring.tasks.events import EVENTS, Event
from mainspring.tasks.hooks import Hooks
from mainspring.worker.events import names as event_names
from mainspring.worker.events.names import MovedJob
from mainspring.worker.records import RescueResult

LEASE = Lease(b"x" * 16, 1)


def hook(event: Event) -> None: ...


def test_a_hook_gets_its_events_and_tasks() -> None:
    hooks = Hooks()
    assert not hooks
    hooks.add(["dead"], hook, None)
    hooks.add(["dead", "failed"], print, "shop.*")
    assert hooks
    assert [each.fn for each in hooks.of("dead", "shop.send")] == [hook, print]
    assert [each.fn for each in hooks.of("dead", "mail.send")] == [hook]
    assert hooks.of("failed", "mail.send") == []
    assert [hooks.has(event) for event in ("dead", "failed", "started")] == [True, True, False]


def test_an_event_named_twice_is_reported_once() -> None:
    hooks = Hooks()
    hooks.add(["dead", "dead"], hook, None)
    assert len(hooks.of("dead", "t")) == 1


@pytest.mark.parametrize(
    ("events", "fn", "task", "error"),
    [
        (["deed"], hook, None, UnknownOption),
        (["dead", "deed"], hook, None, UnknownOption),
        ([], hook, None, InvalidOption),
        (["dead"], "hook", None, InvalidOption),
        (["dead"], hook, "", InvalidOption),
        (["dead"], hook, hook, InvalidOption),
    ],
)
def test_an_invalid_hook_is_refused_and_not_registered(
    events: list[str], fn: Any, task: Any, error: type[Exception]
) -> None:
    hooks = Hooks()
    with pytest.raises(error):
        hooks.add(events, fn, task)
    assert not hooks


@pytest.mark.parametrize(
    ("ack", "names"),
    [
        (Ack.succeeded(LEASE), ("succeeded",)),
        (Ack.failed(LEASE, b"{}", retry_in=1), ("failed", "retrying")),
        (Ack.failed(LEASE, b"{}", retry_in=1, timed_out=True), ("failed", "retrying")),
        (Ack.dead(LEASE, b"{}", Reason.RETRIES_EXHAUSTED), ("failed", "dead")),
        (Ack.dead(LEASE, b"{}", Reason.TIMED_OUT, timed_out=True), ("failed", "dead")),
        (Ack.snoozed(LEASE, delay=1), ("snoozed",)),
        (Ack.cancelled(LEASE), ("cancelled",)),
        (Ack.lost_early(LEASE, b"{}"), ("dead",)),
        (Ack.interrupted(LEASE), ()),
        (Ack.returned(LEASE), ()),
        (Ack.crashed(LEASE, b"{}"), ("stalled",)),
        (Ack.crashed(LEASE, b"{}", early=True), ("stalled", "dead")),
    ],
)
def test_the_events_of_an_ack(ack: Ack, names: tuple[str, ...]) -> None:
    assert event_names.events_of_ack(ack) == names
    assert set(names) <= set(EVENTS)


def test_jobs_of_a_lost_worker_have_a_stalled_event_in_every_state() -> None:
    found = event_names.moved_by_rescue("w", RescueResult(True, (b"1",), (b"2",), (b"3",), (b"4",)))
    assert found == [
        MovedJob(b"1", State.READY, ("stalled",), "w"),
        MovedJob(b"2", State.RETRYING, ("stalled",), "w"),
        MovedJob(b"3", State.DEAD, ("stalled", "dead"), "w"),
        MovedJob(b"4", State.CANCELLED, ("stalled", "cancelled"), "w"),
    ]


def test_jobs_that_a_supervisor_acked_have_events() -> None:
    late = Ack.dead(LEASE, b"{}", Reason.TIMED_OUT, timed_out=True)
    early = Ack.lost_early(LEASE, b"{}")
    assert [each.names for each in event_names.moved_by_acks("w", [late, early, Ack.returned(LEASE)])] == [
        ("failed", "dead"),
        ("stalled", "dead"),
    ]
