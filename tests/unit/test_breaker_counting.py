"""The rules of breakers: what ends of work do to the row of a breaker, without a store."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.breakers.counting import (
    BreakerEnd,
    Counted,
    breaker_row,
    changed_rows,
    count_ends,
    declared,
    set_by_hand,
)
from mainspring.breakers.records import FOREVER, BreakerRow, StoredBreaker
from mainspring.limits.records import Limit

NAME = "api:breaker"
PER = 30
ROW = Limit(name=NAME, kind="breaker", size=1, per=PER, burst=3)
SHARE = Limit(name=NAME, kind="breaker", size=1, per=PER, burst=4, share=500_000, span=100)


def bad(started: int = 0, error: str = "x") -> BreakerEnd:
    return BreakerEnd("failure", started, error=error)


def good(started: int = 0, n: int = 1) -> BreakerEnd:
    return BreakerEnd("success", started, n)


def written(breaker: StoredBreaker, counted: Counted) -> StoredBreaker:
    """The row after the swap, as a store writes it at ``breaker.now``."""
    swap = counted.swap
    if swap is None:
        return breaker
    assert swap.expected == breaker.rev != swap.rev
    until, opened = breaker.until, breaker.opened
    if swap.open_for is not None:
        until = min(breaker.now + swap.open_for, FOREVER) if swap.open_for else 0
        opened = breaker.now if until else 0
    return replace(breaker, rev=swap.rev, until=until, opened=opened, doc=swap.doc)


def after(breaker: StoredBreaker, *ends: BreakerEnd, now: int | None = None) -> StoredBreaker:
    breaker = breaker if now is None else replace(breaker, now=now)
    return written(breaker, count_ends(breaker, ends))


def opened(limit: Limit = ROW, now: int = 10) -> StoredBreaker:
    """A breaker that opened at ``now`` and is half open from ``now + PER`` on."""
    return after(declared(limit, now), *[bad()] * limit.burst)


class TestInARow:
    def test_the_last_of_so_many_failures_opens(self) -> None:
        two = after(declared(ROW, 10), bad(), bad(error="y"))
        assert breaker_row(two) == BreakerRow(name=NAME, failures=2, error="y")
        three = after(two, bad(error="z"))
        assert breaker_row(three) == BreakerRow(
            name=NAME, state="open", failures=3, opened=10, until=10 + PER, error="z"
        )

    def test_a_success_between_forgets_failures(self) -> None:
        assert breaker_row(after(declared(ROW), bad(), bad(), good(), bad())).failures == 1

    def test_ends_behind_the_opening_do_not_count(self) -> None:
        assert after(declared(ROW, 10), *[bad()] * 3, good(), bad()).until == 10 + PER

    def test_a_success_without_failures_writes_nothing(self) -> None:
        assert count_ends(declared(ROW), [good(), good()]) == Counted(None, ())

    def test_a_start_of_a_closed_breaker_writes_nothing(self) -> None:
        assert count_ends(declared(ROW), [BreakerEnd("start", 5)]) == Counted(None, ())

    def test_fewer_failures_suffice_after_the_limit_was_lowered(self) -> None:
        two = after(declared(ROW), bad(), bad())
        assert after(replace(two, burst=1), bad()).until > 0


class TestShares:
    def test_opens_with_enough_calls_and_too_many_failures(self) -> None:
        row = after(declared(SHARE, 10), good(n=2), bad())
        assert (row.until, breaker_row(row).calls) == (0, 3)
        row = after(row, bad())
        assert (row.until, breaker_row(row).failures, breaker_row(row).calls) == (10 + PER, 2, 4)

    def test_a_success_opens_nothing(self) -> None:
        row = after(declared(SHARE), bad(), bad(), bad())
        assert after(row, good()).until == 0

    def test_pieces_far_ahead_are_forgotten(self) -> None:
        """The store's clock was set back."""
        breaker = after(declared(SHARE, 1000), bad(), bad(), bad())
        assert breaker_row(replace(breaker, now=950)).failures == 3
        assert breaker_row(replace(breaker, now=900)) == BreakerRow(name=NAME)
        assert after(breaker, bad(), now=900).until == 0

    def test_counts_of_a_window_are_no_failures_in_a_row(self) -> None:
        """The options were changed from ``rate=`` to ``failures=``."""
        breaker = after(declared(SHARE, 10), good(n=5), bad(), bad(), bad())
        breaker = replace(breaker, burst=ROW.burst, share=0, span=0)
        assert breaker_row(breaker) == BreakerRow(name=NAME)
        assert after(breaker, bad(), bad()).until == 0
        assert after(breaker, bad(), bad(), bad()).until == 10 + PER

    def test_pieces_of_the_window_are_joined_and_forgotten(self) -> None:
        row = after(after(declared(SHARE, 11), bad()), bad(), now=12)
        assert row.doc.count("[") == 2
        assert breaker_row(replace(row, now=109)).failures == 2
        assert breaker_row(replace(row, now=110)) == BreakerRow(name=NAME)


class TestProbes:
    def test_ends_of_work_from_before_do_not_count(self) -> None:
        half = replace(opened(), now=50)
        assert count_ends(half, [good(39), bad(39), BreakerEnd("start", 39)]) == Counted(None, ())

    @pytest.mark.parametrize("end", [good(99), bad(99), BreakerEnd("start", 99)])
    def test_nothing_is_a_probe_while_the_breaker_is_open(self, end: BreakerEnd) -> None:
        """A token is ahead of the store's time after the clock was set back."""
        breaker = replace(opened(), now=10 + PER - 1)
        assert count_ends(breaker, [end]) == Counted(None, ())

    def test_the_success_of_a_probe_closes(self) -> None:
        closed = after(opened(), good(40), now=50)
        assert breaker_row(closed) == BreakerRow(name=NAME)

    @pytest.mark.parametrize("limit", [ROW, SHARE])
    def test_the_failure_of_a_probe_opens_again(self, limit: Limit) -> None:
        again = breaker_row(after(opened(limit), bad(40, "y"), now=50))
        assert (again.state, again.opened, again.until, again.error) == ("open", 50, 80, "y")
        assert again.failures == limit.burst

    def test_the_first_probe_that_ends_decides(self) -> None:
        half = opened()
        assert after(half, bad(40), good(40), now=50).until == 80
        assert count_ends(replace(half, now=50), [good(40), *[bad(40)] * 3]).changes == ("closed", "open")

    def test_a_probe_begins_once(self) -> None:
        half = replace(opened(), now=40)
        counted = count_ends(half, [BreakerEnd("start", 40)])
        assert counted.changes == ("half_open",)
        probing = written(half, counted)
        assert (probing.until, probing.opened) == (half.until, half.opened)
        assert count_ends(probing, [BreakerEnd("start", 41)]) == Counted(None, ())
        assert count_ends(after(probing, bad(40)), [BreakerEnd("start", 41)]) == Counted(None, ())

    def test_events_show_the_state_after_each_change(self) -> None:
        half = replace(opened(), now=50)
        counted = count_ends(half, [BreakerEnd("start", 45), bad(45, "y")])
        first, second = changed_rows(half, written(half, counted), counted.changes)
        assert (first.state, first.until) == ("half_open", 40)
        assert (second.state, second.until, second.error) == ("open", 80, "y")


class TestByHand:
    @pytest.mark.parametrize(("span", "until"), [(5, 15), (None, None)])
    def test_a_trip_opens_whatever_was_before(self, span: int | None, until: int | None) -> None:
        for before in (declared(ROW, 10), opened(), after(declared(SHARE, 10), bad())):
            row = breaker_row(written(before, Counted(set_by_hand(before, span), ())))
            assert row == BreakerRow(name=NAME, state="open", opened=10, until=until, tripped=True)

    def test_a_reset_closes_and_forgets(self) -> None:
        for before in (declared(ROW), opened(), after(declared(ROW), bad())):
            assert breaker_row(written(before, Counted(set_by_hand(before, 0), ()))) == BreakerRow(name=NAME)

    def test_an_end_decides_after_a_trip(self) -> None:
        tripped = written(declared(ROW, 10), Counted(set_by_hand(declared(ROW, 10), 5), ()))
        assert breaker_row(after(tripped, bad(15), now=16)).tripped is False


KINDS: list[Literal["success", "failure"]] = ["success", "failure"]
ENDS = st.lists(st.builds(BreakerEnd, st.sampled_from([*KINDS, "start"]), st.integers(0, 60), st.integers(1, 3)))
LIMITS = st.sampled_from([ROW, SHARE, replace(ROW, burst=1), replace(SHARE, burst=1, share=1)])


class TestProperties:
    @given(LIMITS, ENDS, ENDS)
    def test_a_write_says_what_it_changes(self, limit: Limit, first: list[BreakerEnd], more: list[BreakerEnd]) -> None:
        row = after(declared(limit, 20), *first)
        counted = count_ends(replace(row, now=55), more)
        new = written(replace(row, now=55), counted)
        assert (counted.swap is None) <= (not counted.changes)
        assert ("open" in counted.changes or "closed" in counted.changes) == (
            (row.until, row.opened) != (new.until, new.opened) or counted.changes[-2:] == ("closed", "open")
        )
        states = ["open" if row.until else "closed", *(each for each in counted.changes if each != "half_open")]
        assert ("open" if new.until else "closed") == states[-1]

    @given(LIMITS, ENDS)
    def test_nothing_opens_without_a_failure(self, limit: Limit, ends: list[BreakerEnd]) -> None:
        assert after(declared(limit), *(end for end in ends if end.kind != "failure")).until == 0

    @given(LIMITS, ENDS)
    def test_an_open_breaker_ignores_older_ends(self, limit: Limit, ends: list[BreakerEnd]) -> None:
        row = opened(limit, now=100)
        assert count_ends(row, ends) == Counted(None, ())

    @given(ENDS, st.integers(0, 60), st.integers(1, 4))
    def test_failures_in_a_row_may_be_counted_in_any_parts(self, ends: list[BreakerEnd], at: int, burst: int) -> None:
        """The reason why many acks in one write, or a late write, count as the acks one by one."""
        row = declared(replace(ROW, burst=burst), 100)
        assert breaker_row(after(row, *ends)) == breaker_row(after(after(row, *ends[:at]), *ends[at:]))

    @given(ENDS)
    def test_failures_in_a_row_agree_with_a_simple_count(self, ends: list[BreakerEnd]) -> None:
        failures = 0
        for end in ends:
            if failures < ROW.burst and end.kind != "start":
                failures = 0 if end.kind == "success" else failures + 1
        row = breaker_row(after(declared(ROW, 100), *ends))
        assert (row.failures, row.state) == (failures, "open" if failures == ROW.burst else "closed")
