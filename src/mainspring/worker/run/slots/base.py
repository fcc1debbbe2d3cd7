"""What both pools have in common: a number of slots, and the claims that wait for a slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from mainspring.jobs.outcomes import Ack
from mainspring.worker.run.attempt import RunningAttempt

AHEAD_MAX = 256
"""Most claims of a pool that wait for a slot."""
AHEAD_US = 50_000
"""Most microseconds of work that wait for each slot."""
SHORT_US = 10_000
"""Bodies with a longer median run time, in microseconds, are not claimed ahead."""
_SAMPLES = 32
_MIN_SAMPLES = 16

Finish = Callable[[RunningAttempt, Ack], None]


class SlotPool(Protocol):
    """Runs attempts in at most ``slots`` slots; further attempts wait in a queue."""

    slots: int
    claim_ahead: ClaimAhead
    held: int
    """Attempts that run or wait here."""

    def submit(self, attempt: RunningAttempt) -> None:
        """Run the attempt in a free slot, or when a slot becomes free."""
        ...

    def take_waiting(self, before: float) -> list[RunningAttempt]:
        """Take out the attempts that were claimed before this moment and have not started."""
        ...

    def running(self) -> list[RunningAttempt]:
        """The attempts whose body runs."""
        ...

    def add_slot(self) -> bool:
        """A body here waits for another job: run one body more. False if that is not possible."""
        ...

    def remove_slot(self) -> None:
        """That body goes on: when the next body ends, no other body takes its slot."""
        ...

    def close(self) -> None: ...


class LaneRequest(NamedTuple):
    """What to ask for in separate lanes."""

    n: int
    now: int
    """How many of the ``n`` jobs start in slots that are free now. The others are claimed ahead."""
    slots: int
    """How many free slots they will use."""


class PoolOfProcesses(SlotPool, Protocol):
    """A pool whose children may all have failed."""

    failed: bool


class PoolLanes:
    """The lanes of one pool of process slots, which are asked for in a want of their own."""

    def __init__(self, kind: str, kinds: tuple[str, ...], pool: PoolOfProcesses) -> None:
        self.kind = kind
        """The name of the slots."""
        self.kinds = kinds
        """The kinds of the base lanes of its jobs."""
        self._pool = pool

    def request(self, free: int, *, ahead: bool) -> LaneRequest:
        """As many jobs as slots are free; with ``ahead`` also short jobs, when half of those before are used up."""
        pool = self._pool
        if pool.failed:
            return LaneRequest(0, 0, 0)
        more = pool.claim_ahead.size() if ahead else 0
        room = pool.slots + more - pool.held
        return LaneRequest(max(free, room) if more and room > more // 2 else free, free, free)


class ClaimAhead:
    """How many jobs to claim beyond the free slots, computed from the recent run times."""

    __slots__ = ("_recent", "record_run", "slots")

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._recent: deque[int] = deque(maxlen=_SAMPLES)
        self.record_run: Callable[[int], None] = self._recent.append
        """Record how many microseconds a body ran."""

    def reset(self) -> None:
        """Claims ahead were not used in time: claim none ahead until 16 more bodies were short."""
        self._recent.clear()

    def size(self) -> int:
        """Claims beyond the slots: 0 until 16 bodies were short, then up to 50 ms of work, at most 256."""
        recent = self._recent
        if len(recent) < _MIN_SAMPLES:
            return 0
        median = sorted(recent)[len(recent) // 2]
        if median >= SHORT_US:
            return 0
        return min(AHEAD_MAX, self.slots * AHEAD_US // max(median, 1))
