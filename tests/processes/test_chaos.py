"""Twenty seconds of random faults; ``./dev soak`` runs hours of them."""

from __future__ import annotations

import pytest

from tests.processes.chaos import Chaos
from tests.processes.fleet import Fleet


@pytest.mark.row("E3", "W3", "W4", "X5")
@pytest.mark.parametrize("seed", [22])
def test_random_faults_under_load_lose_and_double_nothing(fleet: Fleet, seed: int) -> None:
    chaos = Chaos(fleet, seed)
    verdict = chaos.run(seconds=20)
    chaos.close()
    assert verdict.problems == []
    assert verdict.lost == 0
    assert sum(verdict.faults.values()) > 3, "there was something to survive"
