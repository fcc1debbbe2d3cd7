"""Exceptions thrown into the thread of a body that is just ending: the thread lives on, and no other body is hurt."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mainspring.worker.run.attempt import RunningAttempt
from mainspring.worker.run.slots.thread_slots import SlotThread, ThreadSlots

ROUNDS = 6_000
LIMIT = 20.0


class _Struck(Exception):
    pass


class _Pool:
    """As much of a pool as one thread needs; what a body came to is ``ok`` or the exception."""

    def __init__(self) -> None:
        self.line: SimpleQueue[RunningAttempt | None] = SimpleQueue()
        self.ends: SimpleQueue[Any] = SimpleQueue()
        self.take = self.line.get
        self.surplus = False
        self.timeouts = SimpleNamespace(check_at=0.0)
        self.surplus = False
        self.executor = SimpleNamespace(
            refuse=lambda attempt: None,
            prepare_call=lambda attempt: (attempt.fn, (), {}),
            begin=lambda attempt, slot: None,
            ack_success=lambda attempt, value: value,
            ack_failure=lambda attempt, error: error,
        )

    def run(self, call: Callable[..., Any], *args: Any) -> None:
        call(*args)

    def report_end(self, attempt: RunningAttempt, end: Any) -> None:
        self.ends.put(end)


def _attempt(fn: Callable[[], Any]) -> RunningAttempt:
    environment = SimpleNamespace(pid=os.getpid())
    facts = SimpleNamespace(
        fn=fn, is_bulk=False, limited=False, check_at=1.0, ending=None, begun=False, environment=environment
    )
    return cast("RunningAttempt", facts)


@pytest.fixture
def hasty() -> Iterator[None]:
    """Threads change places at nearly every chance they have."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty")
def test_a_slot_thread_survives_an_exception_at_any_moment() -> None:
    """Half of the exceptions reach the body and half come late. The test adapts the length of the body to stay near
    that moment.
    """
    pool = _Pool()
    runner = SlotThread(cast("ThreadSlots", pool), 0)
    runner.start()
    length, found = 3_000, 0
    for round_ in range(ROUNDS):
        begun = threading.Event()

        def edge(begun: threading.Event = begun, steps: int = length + round_ % 397) -> str:
            begun.set()
            for _ in range(steps):
                pass
            return "ok"

        racing = _attempt(edge)
        pool.line.put(racing)
        pool.line.put(_attempt(lambda: "calm"))
        assert begun.wait(LIMIT)
        for _ in range(1 + round_ % 2):  # told of a soft limit and of a hard one at nearly the same time
            runner.throw(racing, _Struck())
        end, calm = pool.ends.get(timeout=LIMIT), pool.ends.get(timeout=LIMIT)
        assert end == "ok" or isinstance(end, _Struck)
        assert calm == "calm"
        hit = end != "ok"
        found += hit
        length = max(1, length + (-20 if hit else 20))
    pool.line.put(None)
    assert 0 < found < ROUNDS
