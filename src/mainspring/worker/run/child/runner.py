"""Runs the jobs of one pool child: one at a time, ``def`` bodies in the main thread of the process.

Two threads. The *control thread* has an event loop: it reads the channel, checks time limits and sends reports. The
*main thread* runs ``def`` bodies and sends the end of each. So the end is on its way before the next body starts, and
the job in the line of the shared state is always the one to blame if the process dies.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mainspring.common.clock import boottime
from mainspring.jobs.outcomes import Ack, Lease
from mainspring.pools.records import (
    BodyStuck,
    EndJob,
    JobEnded,
    JobsGivenBack,
    RunJobs,
    TakeBack,
)
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.run.attempt import Ending, RunEnvironment, RunningAttempt
from mainspring.worker.run.executor import Executor
from mainspring.worker.run.place import find_place
from mainspring.worker.run.slots.thread_slots import SlotThread, ThreadSlots
from mainspring.worker.run.timeouts import AttemptTimeouts

if TYPE_CHECKING:
    from mainspring.tasks.middleware import Middleware
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.run.child.link import ChildLink

WAKE = getattr(signal, "SIGURG", signal.SIGTERM)
"""A signal whose default action is nothing. The child handles it with a function that does nothing: to run it, the
interpreter leaves the call that waits, and then raises the exception that is pending."""


class ChildExecutor(Executor):
    """The worker's executor. The line of the shared state is emptied by the runner, after the end was sent."""

    in_child = True

    def end(self, attempt: RunningAttempt) -> None:
        pass


class MainThread(SlotThread):
    """The main thread of the process. A signal wakes it from a call that waits, such as ``time.sleep``."""

    def throw(self, attempt: RunningAttempt, error: BaseException) -> None:
        super().throw(attempt, error)
        if hasattr(signal, "pthread_kill") and self.ident is not None:
            signal.pthread_kill(self.ident, WAKE)


class MainThreadSlot(ThreadSlots):
    """One slot, whose bodies run in the main thread of the process."""

    def __init__(
        self, line: int, executor: Executor, timeouts: AttemptTimeouts,
        on_end: Callable[[RunningAttempt, Ack], None],
    ) -> None:  # fmt: skip
        super().__init__(1, line, executor, timeouts, on_end)
        self._on_end = on_end
        self._slot = MainThread(self, line, threading.main_thread())
        self._threads.append(self._slot)

    def serve(self) -> None:
        """Run bodies in the calling thread, the main thread, until :meth:`close`."""
        self._slot.serve()

    def report_end(self, attempt: RunningAttempt, ack: Ack) -> None:
        self._on_end(attempt, ack)


class JobRunner:
    """Takes messages of the worker and runs its jobs. Made on the control loop."""

    def __init__(
        self,
        link: ChildLink,
        shared_state: SharedState,
        line: int,
        tasks: Mapping[str, TaskSpec],
        learn: Callable[[str], TaskSpec | None] | None,
        middleware: Sequence[Middleware],
        environment: RunEnvironment,
        grace: float,
    ) -> None:
        self._link = link
        self._shared_state = shared_state
        self._line = line
        self._tasks = tasks
        self._learn = learn
        self._environment = environment
        self._held: dict[tuple[bytes, int], RunningAttempt] = {}
        self._loop = asyncio.get_running_loop()
        executor = ChildExecutor(shared_state, middleware)
        self._timeouts = AttemptTimeouts(self._running, grace, self._on_stuck)
        self.main = MainThreadSlot(line, executor, self._timeouts, self._on_end)

    def handle(self, message: Any) -> None:
        """Do what a message of the worker says."""
        match message:
            case RunJobs():
                self._run(message)
            case EndJob():
                self._end(message)
            case TakeBack():
                self._give_back()

    def close(self) -> None:
        """Run no further body."""
        self._timeouts.close()
        self.main.close()

    # ---- private ------------------------------------------------------------------------------

    def _running(self) -> list[RunningAttempt]:
        return self.main.running()

    def _run(self, order: RunJobs) -> None:
        environment = self._environment
        environment.worker = order.worker
        environment.store_ahead, environment.store_replied = order.store_ahead, order.store_replied
        for job in order.jobs:
            claim = job.claim
            lease = Lease(claim.id, claim.token)
            spec = self._tasks.get(claim.task) or (self._learn(claim.task) if self._learn is not None else None)
            if spec is None:
                self._link.send(JobEnded(Ack.returned(lease, park=True), begun=False, started=0.0))
                continue
            attempt = RunningAttempt(claim, spec, lease, boottime(), environment)
            attempt.inputs = job.inputs
            self._held[lease] = attempt
            self.main.submit(attempt)

    def _end(self, order: EndJob) -> None:
        attempt = self._held.get((order.id, order.token))
        if attempt is not None:
            self._timeouts.request_end(attempt, Ending(order.ending), order.reason)

    def _give_back(self) -> None:
        taken = self.main.take_waiting(float("inf"))
        for attempt in taken:
            attempt.finished = True
            del self._held[attempt.lease]
        self._link.send(JobsGivenBack(tuple((each.claim.id, each.claim.token) for each in taken)))

    def _on_end(self, attempt: RunningAttempt, ack: Ack) -> None:
        """The attempt has ended. In the main thread for ``def`` bodies, outside of the body."""
        self._held.pop(attempt.lease, None)
        if attempt.has_reports:
            self._link.send_reports(attempt)
        self._link.send(JobEnded(ack, attempt.begun, attempt.started, attempt.actual_cost))
        if attempt.begun:
            self._shared_state.end(self._line)

    def _on_stuck(self, attempt: RunningAttempt) -> None:
        """The body does not end: the worker kills this process."""
        claim = attempt.claim
        self._link.send(BodyStuck(claim.id, claim.token, attempt.ending, attempt.ending_reason or find_place(attempt)))
