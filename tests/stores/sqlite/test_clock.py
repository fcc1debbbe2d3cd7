"""The time of the store goes on when the clock of the machine is set back."""

from __future__ import annotations

from mainspring.stores.sqlite.driver.clock import WallClock


def test_time_goes_on_when_the_clock_is_set_back() -> None:
    wall, flow = [1_000_000_000], [50.0]
    clock = WallClock(lambda: wall[0], lambda: flow[0])
    assert clock() == 1_000_000_000
    wall[0] -= 3_600_000_000
    assert clock() == 1_000_000_000
    flow[0] += 2.5
    assert clock() == 1_002_500_000
    flow[0] += 1
    wall[0] = 1_003_600_000  # it has caught up
    assert clock() == 1_003_600_000


def test_a_clock_set_forward_is_followed() -> None:
    wall, flow = [1_000_000_000], [50.0]
    clock = WallClock(lambda: wall[0], lambda: flow[0])
    clock()
    wall[0] += 3_600_000_000
    assert clock() == wall[0]
