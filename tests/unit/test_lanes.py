"""The names of lanes: what can be read off them, and which of them lie beside which."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mainspring.jobs.lanes import (
    base_lane,
    base_of,
    fair_lane,
    is_fair,
    is_limited,
    limit_label,
    limited_lane,
    limits_in,
    on_terms,
    parked_lane,
    quoted,
    suspect_lane,
    terms_of,
    version_term,
    weight_of,
)  # fmt: skip
from mainspring.limits.records import Bucket
from mainspring.queues.records import FairKey

QUEUES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,5}", fullmatch=True)
LABELS = st.from_regex(r"[a-z0-9_-]{1,4}", fullmatch=True)
VERSIONS = st.text(min_size=1, max_size=6)
TERMS = st.lists(
    st.one_of(LABELS, VERSIONS.map(version_term), VERSIONS.map(lambda name: "*" + quoted(name))), max_size=3
)
BASES = st.builds(
    lambda queue, kind, terms: base_lane(queue, on_terms(kind, terms)),
    QUEUES, st.sampled_from(["async", "thread", "any"]), TERMS,
)  # fmt: skip


@settings(deadline=None)
@given(BASES, BASES)
def test_no_base_lane_is_in_the_range_of_another_base_lane(one: str, other: str) -> None:
    """A store finds the lanes beside a base lane in the range of names from the base lane to the base lane followed
    by @.
    """
    assume(one != other)
    assert not one.encode() <= other.encode() < one.encode() + b"@"


@settings(deadline=None)
@given(st.sampled_from(["async", "thread"]), TERMS, TERMS)
def test_no_terms_are_in_the_range_of_other_terms(kind: str, one: list[str], more: list[str]) -> None:
    """The same for one queue and terms with a common prefix, which random tests seldom produce."""
    first, second = base_lane("q", on_terms(kind, one)), base_lane("q", on_terms(kind, one + more))
    assume(first != second)
    for left, right in ((first, second), (second, first)):
        assert not left.encode() <= right.encode() < left.encode() + b"@"


@settings(deadline=None)
@given(BASES, st.text(min_size=1, max_size=6))
def test_every_lane_beside_a_base_lane_is_in_its_range_and_names_it(base: str, name: str) -> None:
    for lane in (
        suspect_lane(base), parked_lane(base, name), parked_lane(suspect_lane(base), name),
        limited_lane(base, [Bucket(name)]), limited_lane(base, [Bucket("gate"), Bucket("keyed", name)]),
    ):  # fmt: skip
        assert base.encode() <= lane.encode() < base.encode() + b"@"
        assert base_of(lane) == base


@settings(deadline=None)
@given(QUEUES, TERMS)
def test_terms_can_be_parsed_from_a_lane(queue: str, terms: list[str]) -> None:
    lane = suspect_lane(base_lane(queue, on_terms("async", terms)))
    assert terms_of(lane) == tuple(sorted(set(terms)))


@settings(deadline=None)
@given(st.text(max_size=200), st.text(max_size=200))
def test_texts_in_lane_names_stay_distinct_and_short(one: str, other: str) -> None:
    assert (quoted(one) == quoted(other)) is (one == other)
    assert len(quoted(one)) <= 100
    assert quoted(one).isascii()
    assert not set(quoted(one)) & set("/~,!#?")


@settings(deadline=None)
@given(BASES, st.text(max_size=8), st.floats(0.001, 1e6), st.sampled_from([[], [Bucket("gate")], [Bucket("a", "b")]]))
def test_a_fair_lane_names_its_weight_and_whether_it_is_limited(
    base: str, key: str, weight: float, buckets: list[Bucket]
) -> None:
    lane = fair_lane(base, buckets, FairKey(key, weight))
    for each in (lane, suspect_lane(lane), parked_lane(lane, "a=b#*=c")):
        assert base_of(each) == base
        assert is_fair(each)
        assert is_limited(each) is bool(buckets)
        assert abs(weight_of(each) / weight - 1) < 1e-5
        assert base.encode() <= each.encode() < base.encode() + b"@"
    assert (lane == fair_lane(base, buckets, FairKey("other", weight))) is (key == "other")


def test_other_lanes_are_not_fair() -> None:
    for lane in ("q/async~*shop.send~", "q/any", "q/any!", "q/any#*".replace("*", "a"), "q/any?a#*=b"):
        assert not is_fair(lane)
    assert is_limited(limited_lane("q/any", [Bucket("gate")]))
    assert not is_limited("q/any?a#b")


@settings(deadline=None)
@given(
    BASES,
    st.lists(st.builds(Bucket, st.text("ab:./-", min_size=1), st.text("a=,#!?~") | st.just("")), max_size=3),
    st.sampled_from(["", "!", "?shop#a,b=c", "!?shop.send"]),
)
def test_the_limits_can_be_parsed_from_a_lane(base: str, buckets: list[Bucket], marks: str) -> None:
    lane = (limited_lane(base, buckets) if buckets else base) + marks
    assert limits_in(lane) == {limit_label(bucket.limit) for bucket in buckets}
