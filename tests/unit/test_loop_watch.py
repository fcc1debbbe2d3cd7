"""LoopWatch with stand-ins for the parts of a worker: the moments that a test with processes meets only by chance."""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop

from mainspring.common.clock import boottime
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.worker.lease.shared_state import Phase, SharedState
from mainspring.worker.loop.loop_watch import LoopWatch
from mainspring.worker.records import Turn, TurnResult


class World:
    """A worker whose event loop is blocked by a body past its limit, and whose thread bodies end as the test says."""

    def __init__(self) -> None:
        self.stored: list[Lease] = []
        self.ended: list[Lease] = []
        self.running = 0
        self.ends_during_turn: Lease | None = None
        self.environment = SimpleNamespace(
            reports=SimpleNamespace(unsent_ends=list[Any], half_sent_ends=list[Any]), worker="w"
        )
        self.blocking = SimpleNamespace(deadline=0.0, slot=0, spec=SimpleNamespace(fn=None, name="t"), claim=None)

    # ---- the turn loop and the store

    def repeat_with_acks(self, acks: list[Ack]) -> Turn | None:
        left = [ack for ack in acks if ack.lease not in self.stored]
        return Turn(worker="w", number=1, seen=1, acks=tuple(left), wants=(), suspects=0) if left else None

    async def turn(self, turn: Turn) -> TurnResult:
        if self.ends_during_turn is not None:
            self.ended.append(self.ends_during_turn)
            self.ends_during_turn, self.running = None, self.running - 1
        return TurnResult(0)

    def record_saved(self, turn: Turn, _: TurnResult) -> None:
        self.stored += [ack.lease for ack in turn.acks]

    def wake(self) -> None: ...

    # ---- the dispatcher

    def uncollected_ends(self) -> list[tuple[Any, Ack]]:
        return [(SimpleNamespace(has_reports=False), Ack.succeeded(lease)) for lease in self.ended]

    def enforce_thread_limits(self, _: float) -> None: ...

    def find_running_task(self, _: object) -> Any:
        return self.blocking

    def stop_threads(self) -> bool:
        return not self.running


async def test_a_body_that_ends_while_acks_are_sent_is_stored_before_the_worker_is_done(monkeypatch: Any) -> None:
    monkeypatch.setattr("mainspring.worker.failure_log.log_blocked_loop", lambda *_: None)
    world: Any = World()
    state = SharedState.create(8)
    state.ticked, state.phase = boottime() - 60, Phase.RUNNING
    watch = LoopWatch(state, world, world, supervised=True, on_overdue=lambda *_: None)

    async def connect() -> Any:
        return world

    first, last = Lease(b"a" * 16, 1), Lease(b"b" * 16, 1)
    world.running = 1
    await watch.check(connect)
    await watch.check(connect)
    assert state.phase == Phase.REPLACE
    world.ended, world.ends_during_turn = [first], last
    while state.phase == Phase.REPLACE:
        await watch.check(connect)
    assert state.phase == Phase.DONE
    assert world.stored == [first, last]
    state.close()


def _callback_that_blocks(release: threading.Event) -> None:
    release.wait()


@pytest.mark.parametrize("new_loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
@pytest.mark.parametrize("is_idle", [True, False])
def test_a_loop_that_waits_for_events_is_not_blamed_on_a_callback(
    caplog: pytest.LogCaptureFixture, new_loop: Any, is_idle: bool
) -> None:
    """The process got no processor time: nothing on the stack of the loop's thread is at fault."""
    world: Any = World()
    world.blocking = None
    state = SharedState.create(8)
    loop, release, watches = new_loop(), threading.Event(), queue.Queue[LoopWatch]()

    async def make() -> None:
        watches.put(LoopWatch(state, world, world, supervised=True, on_overdue=lambda *_: None))

    def run() -> None:
        loop.create_task(make())
        loop.run_forever()

    thread = threading.Thread(target=run)
    thread.start()
    watch = watches.get()
    state.ticked, state.phase = boottime() - 60, Phase.RUNNING
    if not is_idle:
        loop.call_soon_threadsafe(_callback_that_blocks, release)
    name = "wait" if not is_idle else "select" if new_loop is asyncio.SelectorEventLoop else "run"
    while sys._current_frames()[thread.ident or 0].f_code.co_name != name:
        time.sleep(0.01)

    async def check() -> None:
        for _ in range(2):
            await watch.check(lambda: None)  # type: ignore[arg-type, return-value]  # nothing is stored

    asyncio.run(check())
    release.set()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    state.close()
    assert ("no function blocks it" in caplog.text) is is_idle
    assert ("_callback_that_blocks" in caplog.text) is not is_idle
