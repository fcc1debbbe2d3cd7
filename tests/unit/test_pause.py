"""Pauses: jittered within their bounds, growing to their longest."""

from __future__ import annotations

from mainspring.common.pause import GrowingPause, jittered


def test_a_jittered_pause_stays_within_its_bounds_and_varies() -> None:
    pauses = [jittered(2.0) for _ in range(100)]
    assert all(1.0 <= each <= 2.0 for each in pauses)
    assert len(set(pauses)) > 1
    assert all(0.0 <= jittered(2.0, least=0.0) <= 2.0 for _ in range(100))
    assert jittered(2.0, least=1.0) == 2.0


def test_a_growing_pause_doubles_up_to_its_longest_and_begins_again() -> None:
    pause = GrowingPause(1.0, longest=5.0, least=1.0)
    assert [pause.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    pause.reset()
    assert pause.whole == pause.next() == 1.0
