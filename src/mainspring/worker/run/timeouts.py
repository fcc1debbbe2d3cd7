"""All time limits behind one timer.

Each running attempt knows when it next needs a look. The timer is set to the earliest of these;
when it fires, the running attempts (never more than there are slots) are looked through. A job
that ends before its limit costs nothing here: no timer, no entry in a heap that outlives it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from mainspring.common.clock import boottime
from mainspring.worker.run import cancel
from mainspring.worker.run.attempt import NEVER, Ending, RunningAttempt


class AttemptTimeouts:
    """Sees to soft and hard limits, and to bodies that were asked to end and did not."""

    def __init__(
        self, bodies: Callable[[], Iterable[RunningAttempt]], grace: float, on_stuck: Callable[[RunningAttempt], None]
    ) -> None:
        self.next_at = NEVER
        """When the timer fires; whoever starts a body with an earlier moment arms it."""
        self._bodies = bodies
        self._grace = grace
        self._on_stuck = on_stuck
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def arm(self, at: float) -> None:
        """Look at ``at`` or before."""
        if at >= self.next_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self.next_at = at
        self._timer = self._loop.call_later(max(0.0, at - boottime()), self._fire)

    def arm_from_thread(self, at: float) -> None:
        self._loop.call_soon_threadsafe(self.arm, at)

    def ask(self, attempt: RunningAttempt, ending: Ending, reason: str = "") -> bool:
        """Ask a body to end, and watch that it does."""
        asked = cancel.ask(attempt, ending, boottime(), self._grace, reason)
        if asked:
            self.arm(attempt.next_at)
        return asked

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self) -> None:
        self._timer, self.next_at = None, NEVER  # before the look: a thread that starts a body now arms anew
        now = boottime()
        soonest = NEVER
        try:
            for attempt in self._bodies():
                if attempt.next_at <= now:
                    self._look(attempt, now)
                soonest = min(soonest, attempt.next_at)
        finally:
            self.arm(soonest)

    def _look(self, attempt: RunningAttempt, now: float) -> None:
        if attempt.ending:
            if cancel.ask_again(attempt, now, self._grace):
                attempt.stuck = True
                self._on_stuck(attempt)
        elif attempt.deadline <= now:
            cancel.ask(attempt, Ending.HARD, now, self._grace)
        elif attempt.soft_at <= now:
            cancel.soften(attempt)
        else:  # ctx.check() told the soft limit first
            attempt.next_at = min(attempt.soft_at, attempt.deadline)
