"""The arithmetic of weighted queues: parts by weight, lent when not used, owed only while competing."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.worker.loop.queue_shares import QueueShares, interleave
from mainspring.worker.records import Claim

WEIGHTS = st.dictionaries(
    st.sampled_from("abcdefgh"), st.one_of(st.integers(1, 100), st.floats(0.001, 1_000)), min_size=1
)
ROOMS = st.lists(st.integers(0, 40), max_size=60)


@settings(deadline=None)
@given(WEIGHTS, ROOMS)
def test_shares_follow_the_weights_while_all_queues_have_jobs(weights: dict[str, float], rooms: list[int]) -> None:
    """However slots become free, a queue is never further from its share than one job for each queue."""
    shares, got = QueueShares(weights), Counter[str]()
    for n in rooms:
        split = shares.split(n, dict.fromkeys(weights, n))
        shares.charge(split, ())
        got.update(split)
    for queue, weight in weights.items():
        part = sum(rooms) * weight / sum(weights.values())
        assert abs(got[queue] - part) <= len(weights)


@settings(deadline=None)
@given(WEIGHTS, st.data())
def test_all_slots_are_given_to_queues_that_can_use_them(weights: dict[str, float], data: st.DataObject) -> None:
    """After any history: no slot is idle, no queue gets more than it can use, and deficits stay small."""
    shares = QueueShares(weights)
    for _ in range(data.draw(st.integers(1, 30))):
        n = data.draw(st.integers(0, 40))
        most = {queue: data.draw(st.integers(0, 40)) for queue in weights if data.draw(st.booleans())}
        split = shares.split(n, most)
        assert sum(split.values()) == min(n, sum(most.values()))
        assert all(0 <= split[queue] <= most[queue] for queue in most)
        idle = {queue for queue in most if split[queue] == most[queue] or data.draw(st.booleans())}
        got = {queue: data.draw(st.integers(0, split[queue])) if queue in idle else split[queue] for queue in most}
        shares.charge(got, idle)
        competing = [shares.deficits[queue] for queue in most if queue not in idle]
        assert abs(sum(competing)) < 1e-6
        assert all(abs(deficit) <= 2 * len(weights) for deficit in shares.deficits.values())


@settings(deadline=None)
@given(WEIGHTS, st.sampled_from("abcdefgh"))
def test_every_queue_gets_jobs(weights: dict[str, float], unlucky: str) -> None:
    """With one free slot at a time the lightest queue gets its turn when the weights say so, at most one job early or
    late.
    """
    weights = {queue: max(1, weight) for queue, weight in weights.items()} | {unlucky: 1}
    shares, waited = QueueShares(weights), 0
    for _ in range(int(2 * sum(weights.values())) + 2 * len(weights)):
        split = shares.split(1, dict.fromkeys(weights, 1_000))
        shares.charge(split, ())
        if split[unlucky]:
            return
        waited += 1
    raise AssertionError(f"{unlucky} waited for {waited} claims")


def test_a_queue_that_was_idle_has_no_deficit_when_it_returns() -> None:
    shares = QueueShares({"a": 1, "b": 1})
    for _ in range(100):
        shares.charge(shares.split(10, {"a": 10, "b": 10}) | {"b": 0}, {"b"})
    assert shares.split(10, {"a": 10, "b": 10}) == {"a": 5, "b": 5}


def test_a_share_below_one_job_is_carried_over() -> None:
    shares, got = QueueShares({"a": 3, "b": 1}), Counter[str]()
    for _ in range(8):
        split = shares.split(1, {"a": 1_000, "b": 1_000})
        shares.charge(split, ())
        got.update(split)
    assert got == {"a": 6, "b": 2}


def _claim(queue: str, n: int) -> Claim:
    id = queue.encode() + b"%d" % n
    return Claim(
        id, n, "t", queue, f"{queue}/any", 0, 1, 1, 0, early=False, enqueued=0, expires=None, record=b"", turn=1
    )


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 60), min_size=1))
def test_a_claim_is_interleaved_evenly_and_each_queue_keeps_its_order(numbers: dict[str, int]) -> None:
    """In every beginning of the claim, each queue has its share, up to half a job for each queue."""
    claims = [_claim(queue, n) for queue, number in numbers.items() for n in range(number)]
    mixed = list(interleave(claims, {}))
    assert sorted(claim.id for claim in mixed) == sorted(claim.id for claim in claims)
    for queue, number in numbers.items():
        assert [claim.token for claim in mixed if claim.queue == queue] == list(range(number))
        for length in range(len(mixed) + 1):
            there = sum(claim.queue == queue for claim in mixed[:length])
            share = length * number / len(mixed) if mixed else 0
            assert abs(there - share) <= len(numbers) / 2


@settings(deadline=None)
@given(WEIGHTS, st.data())
def test_queues_with_fewer_jobs_than_asked_for_start_by_weight_until_they_are_empty(
    weights: dict[str, float], data: st.DataObject
) -> None:
    """While all queues have jobs left, each has its share of what has started, up to half a job for each queue."""
    asked = QueueShares(weights).split(100, dict.fromkeys(weights, 100))
    got = {queue: data.draw(st.integers(0, n)) for queue, n in asked.items()}
    mixed = list(interleave([_claim(queue, n) for queue, number in got.items() for n in range(number)], asked))
    there = Counter[str]()
    for length, claim in enumerate(mixed, 1):
        there[claim.queue] += 1
        if any(there[queue] == got[queue] for queue in asked if asked[queue]):
            break
        for queue, n in asked.items():
            assert abs(there[queue] - length * n / 100) <= len(weights) / 2


def test_equal_rests_of_weighted_queues_do_not_start_in_turns() -> None:
    claims = [_claim(queue, n) for queue in ("gold", "silver", "bronze") for n in range(30)]
    mixed = interleave(claims, {"gold": 250, "silver": 150, "bronze": 100})
    assert Counter(claim.queue for claim in mixed[:60]) == {"gold": 30, "silver": 18, "bronze": 12}
