"""Every verb that touches the store exists as ``x`` and as ``ax``, and both are called alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Batch, Call, Job, Mainspring
from mainspring.breakers.manager import Breakers
from mainspring.flows.manager import Flows
from mainspring.jobs.dead import Dead
from mainspring.jobs.manager import Jobs
from mainspring.limits.manager import Limits
from mainspring.locks.election import Election
from mainspring.locks.lock import Lock
from mainspring.locks.manager import Locks
from mainspring.queues.manager import Queues
from mainspring.schedules.manager import Schedules
from mainspring.tasks.task import AsyncTask, BaseTask, Task
from mainspring.worker.manager import Workers

OF_A_TASK = {"bound_to", "job", "join", "options", "s", "spec", "upgrade"}

NO_STORE: dict[type, set[str]] = {
    Job: {"holder"},
    Jobs: set(),
    Dead: set(),
    Queues: set(),
    Limits: set(),
    Workers: set(),
    Breakers: set(),
    Lock: {"check", "register"},
    Locks: set(),
    Election: set(),
    Schedules: {"group"},
    BaseTask: OF_A_TASK,
    Task: OF_A_TASK,
    AsyncTask: OF_A_TASK,
    Call: {"build", "each", "flow", "new_job", "options", "retargeted", "then", "undo", "when", "with_undo"},
    Batch: set(),
    Flows: {"batch", "batch_of"},
    Mainspring: {
        "breaker",
        "bulk_task",
        "call",
        "election",
        "import_included",
        "include",
        "lifespan",
        "limiter",
        "lock",
        "middleware",
        "on",
        "parts",
        "pool",
        "queue",
        "schedule",
        "semaphore",
        "task",
    },
}
"""Public methods that do not look into the store."""

NO_TWIN: dict[type, set[str]] = {
    Mainspring: {"run", "test", "worker"},
}
"""Methods that run something for as long as it takes, have ``with`` and ``async with``, or serve a verb."""


def verbs(kind: type) -> dict[str, Callable[..., Any]]:
    """The public methods of a class that may touch the store."""
    left_out = NO_STORE[kind] | NO_TWIN.get(kind, set())
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: fn for name, fn in found if not name.startswith("_") and name not in left_out}


@pytest.mark.parametrize("kind", NO_STORE, ids=lambda kind: kind.__name__)
def test_every_blocking_method_has_an_async_method(kind: type) -> None:
    names = set(verbs(kind))
    twins = {name for name in names if name[0] == "a" and name[1:] in names}
    assert {name for name in names - twins if f"a{name}" not in twins} == set()
    assert twins, "nothing was compared"


@pytest.mark.parametrize("kind", NO_STORE, ids=lambda kind: kind.__name__)
def test_both_methods_have_the_same_parameters_and_result(kind: type) -> None:
    found = verbs(kind)
    for name, twin in found.items():
        if name[0] != "a" or name[1:] not in found:
            continue
        one, other = inspect.signature(found[name[1:]]), inspect.signature(twin)
        assert list(one.parameters.values()) == list(other.parameters.values()), name
        assert one.return_annotation.replace("Iterator[", "AsyncIterator[") == other.return_annotation, name


@pytest.mark.parametrize("kind", NO_STORE, ids=lambda kind: kind.__name__)
def test_an_async_method_is_awaited_or_iterated_with_async_for(kind: type) -> None:
    found = verbs(kind)
    for name, twin in found.items():
        if name[0] != "a" or name[1:] not in found:
            continue
        blocking = found[name[1:]]
        assert not inspect.iscoroutinefunction(blocking)
        iterates = str(inspect.signature(blocking).return_annotation).startswith("Iterator[")
        assert inspect.iscoroutinefunction(twin) is not iterates, name
