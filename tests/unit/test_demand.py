"""What a worker asks for, turn by turn, against a store that is a few numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.jobs.lanes import base_lane, base_of
from mainspring.worker.loop.demand import Demand
from mainspring.worker.records import Claim, Want
from mainspring.worker.run.slots.base import LaneRequest, SlotPool

WEIGHTS = {"gold": 5.0, "silver": 3.0, "bronze": 2.0}


class Slots:
    """A pool with the given number of slots."""

    def __init__(self, slots: int, ahead: int = 0) -> None:
        self.slots = slots
        self.held = 0
        self.claim_ahead = self
        self._ahead = ahead

    def size(self) -> int:
        return self._ahead


def claim(lane: str) -> Claim:
    return Claim(
        id=b"", token=0, task="t", queue=lane.partition("/")[0], lane=lane, priority=0, attempt=1, epoch=0, crashes=0,
        early=False, enqueued=0, expires=None, record=b"", turn=1,
    )  # fmt: skip


class Shop:
    """A worker and its store: how many jobs wait in each lane, and what was handed out."""

    def __init__(self, ready: Mapping[str, int], *, aio: Slots, thread: Slots, **given: Any) -> None:
        self.ready = Counter(ready)
        self.pools = {"async": aio, "thread": thread}
        queues = sorted({lane.partition("/")[0] for lane in ready})
        self.demand = Demand(queues, given.pop("caps", {}), cast("Mapping[str, SlotPool]", self.pools), **given)
        self.got = Counter[str]()
        self.held = Counter[str]()

    def turn(self, most: int = 10_000, *, gate: bool = False) -> list[str]:
        """One turn in which the store claims at most ``most`` jobs, because the reply is partial or because a limit
        that all jobs name is full. Returns the lanes.
        """
        lanes = list[str]()
        wants = self.demand.next_wants()
        for want in wants:
            left = want.n
            for lane in want.lanes:
                n = min(self.ready[lane], left, most - len(lanes))
                self.ready[lane] -= n
                left -= n
                lanes += [lane] * n
        partly = len(lanes) == most and not gate
        if partly:
            self.demand.wake()
        held = {lane.partition("/")[0] for lane, n in self.ready.items() if n and gate and len(lanes) == most}
        self.demand.record_reply([claim(lane) for lane in lanes], partial=partly, blocked=held)
        for lane in lanes:
            queue, _, kind = lane.partition("/")
            self.demand.count_claim(queue)
            self.got[queue] += 1
            self.held[lane] += 1
            self.pools["thread" if kind.startswith("thread") else "async"].held += 1
        return lanes

    def finish(self, lane: str) -> None:
        queue, _, kind = lane.partition("/")
        self.held[lane] -= 1
        self.demand.count_release(queue)
        self.pools["thread" if kind.startswith("thread") else "async"].held -= 1

    def shares(self) -> dict[str, float]:
        return {queue: 100 * n / self.got.total() for queue, n in self.got.items()}


def backlog(kind: str = "async") -> dict[str, int]:
    return {base_lane(queue, kind): 100_000 for queue in WEIGHTS}


@pytest.mark.parametrize("weights", [None, {}, {"gold": 1, "elsewhere": 5}])
def test_without_weights_all_queues_are_one_want(weights: Any) -> None:
    shop = Shop(backlog(), aio=Slots(10), thread=Slots(4), weights=weights)
    every = tuple(f"{queue}/{kind}" for queue in sorted(WEIGHTS) for kind in ("async", "thread", "any"))
    alone = tuple(f"{queue}/async" for queue in sorted(WEIGHTS))
    assert shop.demand.next_wants() == (Want(every, 4), Want(alone, 6))


def test_wants_for_free_slots_come_before_wants_ahead() -> None:
    shop = Shop({"a/async": 0, "b/async": 0}, aio=Slots(10, 50), thread=Slots(0), weights={"a": 2})
    wants = shop.demand.next_wants()
    assert [want.ahead for want in wants] == sorted(want.ahead for want in wants)
    assert sum(want.n for want in wants if not want.ahead) == 10
    assert sum(want.n for want in wants if want.ahead) == 50


class TestPassedOver:
    """The store passed over jobs that need a free slot."""

    def shop(self) -> Shop:
        shop = Shop({"a/async": 1_000}, aio=Slots(4, 20), thread=Slots(0))
        assert len(shop.turn()) == 24
        for _ in range(15):
            shop.finish("a/async")
        assert shop.demand.is_urgent
        (want,) = shop.demand.next_wants()
        assert want.ahead
        shop.demand.record_reply([claim("a/async")] * want.n, passed=True)
        return shop

    def test_nothing_is_claimed_ahead_until_a_slot_is_free(self) -> None:
        shop = self.shop()
        assert not shop.demand.is_urgent
        for _ in range(6):
            shop.finish("a/async")
        lanes = [*shop.demand.next_wants()[0].lanes]
        assert shop.demand.next_wants() == (Want(tuple(lanes), 1),)

    def test_while_all_jobs_have_limits_nothing_is_claimed_ahead(self) -> None:
        shop = self.shop()
        for _ in range(9):
            shop.finish("a/async")
        for _ in range(3):
            assert [(want.n, want.ahead) for want in shop.demand.next_wants()] == [(4, False)]
            shop.demand.record_reply([claim("a/async#api=tenant=7")] * 4)

    def test_a_job_that_fits_into_no_free_slot_is_not_asked_for_again_and_again(self) -> None:
        """The thread slots are in use. A limited job enqueued by name may need one."""
        shop = Shop({"a/any": 0}, aio=Slots(2, 20), thread=Slots(1))
        shop.pools["thread"].held = 1
        for _ in range(2):
            assert shop.demand.is_urgent
            wants = shop.demand.next_wants()
            shop.demand.record_reply([], passed=any(want.ahead for want in wants))
        assert not shop.demand.is_urgent

    @pytest.mark.parametrize("got", [["a/async#api", "a/async"] * 2, ["a/async#api"] * 3], ids=["others", "fewer"])
    def test_claims_ahead_go_on_when_it_is_the_turn_of_other_jobs(self, got: list[str]) -> None:
        shop = self.shop()
        for _ in range(9):
            shop.finish("a/async")
        assert [want.ahead for want in shop.demand.next_wants()] == [False]
        shop.demand.record_reply([claim(lane) for lane in got])
        shop.demand.wake()
        assert [want.ahead for want in shop.demand.next_wants()] == [False, True]


@settings(deadline=None)
@given(st.integers(1, 70), st.integers(0, 10), st.integers(0, 256), st.integers(0, 1_000))
def test_weighted_queues_share_however_slots_become_free(aio: int, thread: int, ahead: int, seed: int) -> None:
    random = Random(seed)
    shop = Shop(backlog(), aio=Slots(aio, ahead), thread=Slots(thread), weights=WEIGHTS)
    while shop.got.total() < 1_500:
        shop.turn()
        running = list(shop.held.elements())
        for lane in random.sample(running, random.randint(1, len(running))):
            shop.finish(lane)
    assert all(abs(shop.shares()[queue] - 10 * weight) <= 1 for queue, weight in WEIGHTS.items()), shop.shares()


@settings(deadline=None)
@given(
    st.integers(1, 9), st.integers(0, 12), st.integers(0, 12), st.integers(0, 50), st.booleans(), st.integers(0, 1_000)
)
def test_a_worker_holds_no_more_jobs_than_its_concurrency_and_runs_all(
    most: int, aio: int, thread: int, ahead: int, weighted: bool, seed: int
) -> None:
    random = Random(seed)
    kinds = [kind for kind, slots in (("async", aio), ("thread", thread)) if slots]
    ready = {base_lane(queue, kind): random.randint(0, 30) for queue in WEIGHTS for kind in kinds}
    shop = Shop(
        ready, aio=Slots(aio, ahead), thread=Slots(thread, ahead), max_jobs=most, weights=WEIGHTS if weighted else None
    )
    for _ in range(5 * sum(ready.values())):  # a turn may ask an empty queue for its share
        shop.turn()
        assert shop.held.total() <= most
        if running := list(shop.held.elements()):
            shop.finish(random.choice(running))
            shop.demand.wake()
    assert shop.got.total() == sum(ready.values())


def test_a_partial_reply_favours_no_queue() -> None:
    """Replies are partial when payloads are large. Queues at the end of the wants come first in the next turn."""
    shop = Shop(backlog(), aio=Slots(60), thread=Slots(0), weights=WEIGHTS)
    while shop.got.total() < 2_000:
        for lane in shop.turn(most=7):
            shop.finish(lane)
    assert all(abs(shop.shares()[queue] - 10 * weight) <= 2 for queue, weight in WEIGHTS.items()), shop.shares()


@pytest.mark.parametrize("places", [1, 2, 7, 50])
def test_queues_share_a_limit_that_all_of_them_need(places: int) -> None:
    """The first queue of a turn must not take all the capacity that becomes free."""
    shop = Shop(backlog(), aio=Slots(60), thread=Slots(0), weights=WEIGHTS)
    while shop.got.total() < 2_000:
        for lane in shop.turn(places, gate=True):
            shop.finish(lane)
        shop.demand.wake()
    assert all(abs(shop.shares()[queue] - 10 * weight) <= 2 for queue, weight in WEIGHTS.items()), shop.shares()


def test_a_queue_that_met_a_full_limit_keeps_competing() -> None:
    """Queues that got all they asked for ask again before the limit has capacity. Without the deficit they would take
    all of it.
    """
    shop = Shop(backlog(), aio=Slots(20), thread=Slots(0), weights=WEIGHTS)
    for lane in shop.turn():
        shop.finish(lane)
    while shop.got.total() < 2_000:
        for lane in shop.turn(7, gate=True):
            shop.finish(lane)
        while not shop.demand.is_dry:  # whoever is not dry goes on, as a worker does
            for lane in shop.turn(3, gate=True):
                shop.finish(lane)
        assert not shop.demand.is_urgent, "nobody asks again and again while the limit has no room"
        shop.demand.wake()
    assert all(abs(share - 10 * WEIGHTS[queue]) <= 5 for queue, share in shop.shares().items()), shop.shares()


@settings(deadline=None)
@given(
    st.dictionaries(st.sampled_from([f"{q}/{k}" for q in WEIGHTS for k in ("async", "thread")]), st.integers(0, 40)),
    st.sampled_from([{}, {"gold": 3}, {"gold": 1, "bronze": 4}]),
)
def test_no_slot_is_idle_while_a_queue_has_a_job_for_it(ready: dict[str, int], caps: dict[str, int]) -> None:
    """Within a few turns that follow each other at once."""
    every = dict.fromkeys(backlog(), 0) | ready
    shop = Shop(every, aio=Slots(12), thread=Slots(5), caps=caps, weights=WEIGHTS)
    for _ in range(12):
        shop.turn()
    for kind in ("async", "thread"):
        pool = shop.pools[kind]
        for queue in WEIGHTS:
            capped = sum(n for lane, n in shop.held.items() if lane.startswith(queue + "/")) >= caps.get(queue, 1_000)
            assert pool.held == pool.slots or capped or not shop.ready[f"{queue}/{kind}"]
    assert all(
        sum(n for lane, n in shop.held.items() if lane.startswith(queue + "/")) <= n for queue, n in caps.items()
    )
    assert all(pool.held <= pool.slots for pool in shop.pools.values())


class Bus:
    """A line that takes up to ``size`` jobs for one slot."""

    kind = "async"
    kinds = ("async~*bus~",)

    def __init__(self, size: int) -> None:
        self.size = size

    def request(self, free: int, *, ahead: bool) -> LaneRequest:
        return LaneRequest(self.size, self.size, 1) if free else LaneRequest(0, 0, 0)


class TestLines:
    def test_separate_lanes_have_their_own_want_and_take_their_slots(self) -> None:
        ready = {"a/async": 100, "a/async~*bus~": 100}
        shop = Shop(ready, aio=Slots(4), thread=Slots(0), separate=(Bus(50),))
        sums = {base_of(want.lanes[0]): want.n for _ in range(2) for want in shop.demand.next_wants()}
        assert sums["a/async~*bus~"] == 50
        assert sums["a/async"] in (3, 4)

    def test_the_cap_of_a_queue_applies_to_separate_lanes(self) -> None:
        ready = {"a/async~*bus~": 100, "b/async~*bus~": 100}
        shop = Shop(ready, aio=Slots(8), thread=Slots(0), caps={"a": 5}, separate=(Bus(50),))
        wanted = Counter[str]()
        for _ in range(6):
            for want in shop.demand.next_wants():
                queues = {lane.partition("/")[0] for lane in want.lanes if "bus" in lane}
                assert len(queues) <= 1
                wanted.update(dict.fromkeys(queues, want.n))
        assert wanted["a"] % 5 == 0
        assert wanted["b"] % 50 == 0
        assert wanted["a"] > 0 < wanted["b"]

    def test_separate_lanes_without_jobs_are_left_out_until_a_wake_up(self) -> None:
        shop = Shop({"a/async": 0, "a/async~*bus~": 3}, aio=Slots(2), thread=Slots(0), separate=(Bus(50),))
        shop.turn()
        for lane in list(shop.held.elements()):
            shop.finish(lane)
        assert shop.demand.is_dry
        shop.demand.wake()
        assert not shop.demand.is_dry
