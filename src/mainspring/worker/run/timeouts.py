"""All time limits of a worker, with one timer.

Each running attempt has the moment of its next check. The timer is set to the earliest of these moments. When it fires,
all running attempts (never more than there are slots) are checked. A job that ends before its limit costs nothing here:
no timer, and no entry in a heap that outlives the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable
from typing import Any

from mainspring.common.clock import boottime
from mainspring.errors import SoftTimeout
from mainspring.worker.run import cancel
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt
from mainspring.worker.run.place import find_place


class AttemptTimeouts:
    """Enforces soft and hard limits, and watches bodies that were asked to end.

    ``running`` lists the attempts whose body runs. ``on_stuck`` is called for a body that did not end within the grace.
    """

    def __init__(
        self,
        running: Callable[[], Iterable[RunningAttempt]],
        grace: float,
        on_stuck: Callable[[RunningAttempt], None],
    ) -> None:
        self.check_at = NEVER
        """When the timer fires. A pool that starts a body with an earlier ``check_at`` must call :meth:`arm`."""
        self._running = running
        self._grace = grace
        self._on_stuck = on_stuck
        self.loop = asyncio.get_running_loop()
        """The loop of the worker."""
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, at: float) -> None:
        """Check at ``at`` or earlier."""
        if at >= self.check_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.check_at = at
        self._timer = self.loop.call_later(max(0.0, at - boottime()), self._fire)

    def arm_from_thread(self, at: float) -> None:
        """Like :meth:`arm`, from any thread."""
        self.loop.call_soon_threadsafe(self.arm, at)

    def request_end(self, attempt: RunningAttempt, ending: Ending, reason: str = "") -> bool:
        """Ask a body to end, and check that it does."""
        asked = cancel.request_end(attempt, ending, boottime(), self._grace, reason)
        if asked:
            self.arm(attempt.check_at)
        return asked

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        self._timer, self.check_at = None, NEVER  # before the checks: a thread that starts a body now arms it again
        now = boottime()
        soonest = NEVER
        try:
            for attempt in self._running():
                if attempt.check_at <= now:
                    self.check(attempt, now)
                soonest = min(soonest, attempt.check_at)
        finally:
            self.arm(soonest)

    def check(self, attempt: RunningAttempt, now: float) -> None:
        """Do what is due for the attempt now."""
        if attempt.ending:
            if cancel.repeat_request(attempt, now, self._grace):
                attempt.stuck = True
                self._on_stuck(attempt)
        elif attempt.deadline <= now:
            cancel.request_end(attempt, Ending.HARD, now, self._grace, find_place(attempt))
        elif attempt.soft_at <= now:
            cancel.raise_soft_timeout(attempt)
        else:  # ctx.check() raised SoftTimeout first
            attempt.check_at = min(attempt.soft_at, attempt.deadline)


class WithSoftTimeout:
    """Awaits a body, and raises ``SoftTimeout`` in it in place of the cancellation that means "soft limit"."""

    __slots__ = ("_attempt", "_body")

    def __init__(self, attempt: RunningAttempt, body: Coroutine[Any, Any, Any]) -> None:
        self._attempt = attempt
        self._body = body

    def __await__(self) -> Generator[Any, Any, Any]:
        body = self._body
        step: Callable[[Any], Any] = body.send
        value: Any = None
        while True:
            try:
                awaited = step(value)
            except StopIteration as end:
                return end.value
            try:
                step, value = body.send, (yield awaited)
            except GeneratorExit:
                body.close()
                raise
            except BaseException as error:  # noqa: BLE001 - passed on to the body
                step, value = body.throw, self._translate(error)

    def _translate(self, error: BaseException) -> BaseException:
        attempt = self._attempt
        if not (isinstance(error, asyncio.CancelledError) and attempt.soft_pending):
            return error
        attempt.soft_pending = False
        if attempt.ending is not Ending.NONE:
            return error
        task = asyncio.current_task()
        if task is not None:
            task.uncancel()
        return SoftTimeout(attempt.spec.soft_timeout / 1e6)
