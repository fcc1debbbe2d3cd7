"""The starts of jobs with a rate limit: no more in a window than were claimed in a window."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from random import Random
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import Concurrency, Rate
from mainspring.limits.declare import AnyLimit, bind
from mainspring.worker.run.rate_slots import RateSlots, Window, windows_of

SECOND = 1_000_000


class Run:
    """A worker with a clock of its own. A job arrives some time after its claim, and starts when it may."""

    def __init__(self, per: int, size: int, name: str = "api") -> None:
        self.now = 0.0
        self.slots = RateSlots({name: Window(per, size)}, lambda: self.now)

    def look(self, claimed: int, lane: str = "default/async#api") -> float:
        attempt: Any = SimpleNamespace(claim=SimpleNamespace(token=claimed, lane=lane))
        return self.slots.seconds_until_start([attempt])

    def start(self, claimed: int, arrives: float, lane: str = "default/async#api") -> float:
        self.now = max(self.now, arrives)
        while (pause := self.look(claimed, lane)) > 0:
            self.now += pause
        return self.now


def densest(times: list[float], window: float) -> int:
    return max((sum(first <= each < first + window for each in times) for first in times), default=0)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 700_000), st.integers(1, 4), st.floats(0, 1.5)), max_size=30),
    st.integers(100_000, SECOND),
    st.sampled_from(["declared", "smaller", "unknown"]),
    st.randoms(use_true_random=False),
)
def test_starts_are_no_denser_than_claims(
    turns: list[tuple[int, int, float]], per: int, size: str, random: Random
) -> None:
    """Whatever the declared size, because an operator may have set a larger one, and in whatever order jobs that wait
    at the same time look again.
    """
    claims: list[tuple[int, float]] = []
    at = SECOND
    for gap, number, late in turns:
        at += gap
        claims += [(at, at / 1e6 + late * n / number) for n in range(number)]
    # claims of one piece of the window count as one moment
    most = densest([claimed / 1e6 for claimed, _ in claims], per / 1e6 * 1.002)
    run = Run(per, {"declared": most, "smaller": most // 2, "unknown": 0}[size])
    waiting = [(arrives, random.random(), claimed) for claimed, arrives in claims]
    starts = []
    heapify(waiting)
    while waiting:
        run.now, _, claimed = heappop(waiting)
        if pause := run.look(claimed):
            heappush(waiting, (run.now + pause + random.choice([0, 0, 0.2]), random.random(), claimed))
        else:
            starts.append(run.now)
    assert densest(starts, per / 1e6) <= most


def test_jobs_below_the_rate_never_wait() -> None:
    """Also after a job that was late."""
    run = Run(SECOND, 20)
    for n in range(100):
        claimed = n * SECOND // 10
        arrives = claimed / 1e6 + (0.5 if n == 30 else 0.002)
        assert run.start(claimed, arrives) == run.now == max(arrives, run.now)
        assert run.now - claimed / 1e6 < 0.503


def test_a_job_waits_until_the_window_has_room() -> None:
    run = Run(SECOND, 2)
    first = run.start(0, 0.25)
    assert first == run.start(1, 0.25)
    assert 1.25 <= run.start(SECOND + 1, 1.0) < 1.26


def test_a_job_that_waited_longer_does_not_start_beside_a_later_one() -> None:
    """Both wait for the same moment, and the job of the later window looks first."""
    run = Run(SECOND, 2)
    run.start(0, 0.5), run.start(0, 0.5)
    run.now = 1.6
    for _ in range(2):
        assert not run.look(SECOND + 600_000)
    assert run.look(SECOND // 2) > 0.9


def test_buckets_of_other_keys_and_limits_do_not_wait() -> None:
    run = Run(SECOND, 1, "tenant")
    assert run.start(0, 0.5, "default/async#=tenant=7") == 0.5
    assert run.start(SECOND, 1.0, "default/async#=tenant=8!") == 1.0
    assert run.start(SECOND, 1.0, "default/async#other") == 1.0
    assert run.start(SECOND, 1.0, "default/async#=tenant=7?task") > 1.4


def test_a_rate_with_costs_is_kept_by_the_claims_alone() -> None:
    rates: list[AnyLimit] = [Rate(10, per="1s"), Rate(100, per="1m", cost=5), Concurrency(3)]
    found = windows_of(bind("t", rates, "t"))
    assert sorted(found.values()) == [Window(SECOND, 10), Window(60 * SECOND, 0)]


def test_unused_buckets_are_removed() -> None:
    run = Run(SECOND, 1, "tenant")
    for n in range(5_000):
        run.start(n * SECOND, float(n), f"default/async#=tenant={n}")
    assert len(run.slots._starts) <= 1_000
