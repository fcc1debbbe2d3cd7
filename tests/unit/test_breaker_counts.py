"""What a worker has to count for breakers, turn by turn, against a row that others write too."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from mainspring.breakers.counting import BreakerEnd, breaker_row, count_ends, declared
from mainspring.breakers.records import BreakerRow, BreakerSwap, StoredBreaker
from mainspring.limits.records import Limit
from mainspring.worker.events.breaker_counts import EVERY, BreakerCounts

NAME = "api:breaker"
LANE = f"q/any#{NAME}"
ROW = Limit(name=NAME, kind="breaker", size=1, per=30, burst=3)
SHARE = Limit(name=NAME, kind="breaker", size=1, per=30, burst=4, share=500_000, span=100)
BAD = BreakerEnd("failure", 0, error="x")
GOOD = BreakerEnd("success", 0)


class Row:
    """The row of one breaker, as a store keeps it."""

    def __init__(self, limit: Limit | None) -> None:
        self.stored = None if limit is None else declared(limit, 10)

    def swap(self, swaps: Sequence[BreakerSwap]) -> list[StoredBreaker]:
        if self.stored is None:
            return []
        for swap in swaps:
            if swap.rev and swap.expected == self.stored.rev:
                self.stored = replace(self.stored, rev=swap.rev, doc=swap.doc)
                if swap.open_for is not None:
                    until = self.stored.now + swap.open_for if swap.open_for else 0
                    self.stored = replace(self.stored, until=until, opened=self.stored.now if until else 0)
        return [self.stored] if swaps else []

    def count(self, *ends: BreakerEnd) -> None:
        """Another worker counts."""
        assert self.stored is not None
        swap = count_ends(self.stored, ends).swap
        assert swap is not None
        self.swap([swap])

    def set_time(self, now: int) -> None:
        assert self.stored is not None
        self.stored = replace(self.stored, now=now)

    @property
    def failures(self) -> int:
        assert self.stored is not None
        return breaker_row(self.stored).failures


def turn(counts: BreakerCounts, row: Row, now: float = 0) -> list[BreakerRow]:
    swaps = counts.next_swaps(now, 10 if row.stored is None else row.stored.now)
    return counts.apply(swaps, row.swap(swaps))


def test_ends_travel_in_the_turn_of_their_acks() -> None:
    counts, row = BreakerCounts(), Row(ROW)
    counts.add(BAD, LANE, ROW)
    assert turn(counts, row) == []
    assert (row.failures, counts.has_late, counts.next_swaps(0, 10)) == (1, False, ())


def test_the_writer_that_opens_reports_it() -> None:
    counts, row = BreakerCounts(), Row(ROW)
    row.count(BAD)
    for _ in range(2):
        counts.add(BAD, LANE, ROW)
    assert turn(counts, row) == []
    assert counts.has_late
    (opened,) = turn(counts, row)
    assert (opened.state, opened.failures, counts.has_late) == ("open", 3, False)


def test_a_success_forgets_the_failures_of_others_one_turn_later() -> None:
    counts, row = BreakerCounts(), Row(ROW)
    row.count(BAD, BAD)
    counts.add(GOOD, LANE, ROW)
    turn(counts, row)
    assert (row.failures, counts.has_late) == (2, True)
    turn(counts, row)
    assert (row.failures, counts.has_late) == (0, False)


def test_a_repeated_turn_is_recognised_by_its_number() -> None:
    """The first try arrived, and its reply was lost."""
    counts, row = BreakerCounts(), Row(ROW)
    counts.add(BAD, LANE, ROW)
    swaps = counts.next_swaps(0, 10)
    row.swap(swaps)
    counts.apply(swaps, row.swap(swaps))
    assert (row.failures, counts.has_late) == (1, False)


def test_ends_that_come_during_a_turn_count_with_the_next() -> None:
    counts, row = BreakerCounts(), Row(SHARE)
    counts.add(GOOD, LANE, SHARE)
    swaps = counts.next_swaps(0, 10)
    counts.add(GOOD, LANE, SHARE)
    counts.apply(swaps, row.swap(swaps))
    counts.add(BAD, LANE, SHARE)
    turn(counts, row)
    assert row.stored is not None
    assert (breaker_row(row.stored).calls, breaker_row(row.stored).failures) == (3, 1)


def test_successes_alone_wait_for_a_second() -> None:
    counts, row = BreakerCounts(), Row(SHARE)
    counts.add(GOOD, LANE, SHARE)
    turn(counts, row, 5)
    counts.add(GOOD, LANE, SHARE)
    assert counts.next_swaps(5.5, 10) == ()
    turn(counts, row, 5 + EVERY)
    assert row.stored is not None
    assert breaker_row(row.stored).calls == 2


def test_successes_that_lost_the_row_do_not_wait_again() -> None:
    """Until they are counted, a worker that ends makes one turn after the other."""
    counts, row = BreakerCounts(), Row(SHARE)
    row.count(GOOD)
    counts.add(GOOD, LANE, SHARE)
    turn(counts, row, 5)
    assert counts.has_late
    turn(counts, row, 5)
    assert (counts.has_late, counts.next_swaps(5, 10)) == (False, ())
    assert row.stored is not None
    assert breaker_row(row.stored).calls == 2


def test_a_breaker_that_only_the_job_names_is_read_first() -> None:
    counts, row = BreakerCounts(), Row(ROW)
    counts.add(BAD, LANE)
    turn(counts, row)
    assert (row.failures, counts.has_late) == (0, True)
    turn(counts, row)
    assert row.failures == 1


def test_a_job_may_name_a_second_breaker() -> None:
    counts = BreakerCounts()
    counts.add(BAD, f"q/any#old:breaker,{NAME}", ROW)
    assert {swap.name for swap in counts.next_swaps(0, 10)} == {NAME, "old:breaker"}


def test_an_unknown_breaker_counts_nothing() -> None:
    counts, row = BreakerCounts(), Row(None)
    counts.add(BAD, LANE, ROW)
    assert turn(counts, row) == []
    assert (counts.has_late, counts.next_swaps(9, 10)) == (False, ())


def test_a_first_probe_is_reported_once() -> None:
    counts, other, row = BreakerCounts(), BreakerCounts(), Row(ROW)
    row.count(BAD, BAD, BAD)
    row.set_time(40)
    for each in (counts, other):
        each.add(BreakerEnd("start", 40), LANE, ROW)
        turn(each, row)
    assert (counts.has_late, other.has_late) == (True, True)
    assert [each.state for each in turn(counts, row)] == ["half_open"]
    assert turn(other, row) == []
    assert (other.has_late, other.next_swaps(9, 10)) == (False, ())
    counts.add(BreakerEnd("success", 40), LANE, ROW)
    assert [each.state for each in turn(counts, row)] == ["closed"]


def test_a_probe_of_a_share_is_reported_at_once() -> None:
    """Although successes alone wait, and the worker took the breaker for closed."""
    counts, row = BreakerCounts(), Row(SHARE)
    counts.add(GOOD, LANE, SHARE)
    turn(counts, row)
    row.count(BAD, BAD, BAD, BAD)
    row.set_time(40)
    counts.add(BreakerEnd("start", 40), LANE, SHARE)
    counts.add(BreakerEnd("success", 40), LANE, SHARE)
    states = [each.state for _ in range(2) for each in turn(counts, row)]
    assert states == ["half_open", "closed"]


def test_a_lost_worker_forgets_its_ends() -> None:
    counts = BreakerCounts()
    counts.add(BAD, LANE, ROW)
    counts.next_swaps(0, 10)
    counts.forget()
    assert counts.next_swaps(0, 10) == ()
