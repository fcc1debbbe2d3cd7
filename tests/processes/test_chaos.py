"""A quarter of a minute of random faults on each store; ``./dev soak`` runs hours of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring.testing.history import check
from tests.soak.arena import arena
from tests.soak.campaign import SHORT, Campaign
from tests.timing import patience

SECONDS = 12.0


@pytest.mark.row("E3", "W3", "W4", "X5")
@pytest.mark.parametrize("seed", [22])
def test_random_faults_under_load_neither_lose_nor_repeat_jobs(store_name: str, tmp_path: Path, seed: int) -> None:
    with arena(store_name, tmp_path) as store:
        campaign = Campaign(store, tmp_path, seed, replace(SHORT, lease=patience(SHORT.lease)))
        verdict = campaign.run(SECONDS)
    assert verdict.problems == []
    assert (verdict.lost, verdict.stale_writes, verdict.live_rescued, verdict.duplicates) == (0, 0, 0, 0)
    assert sum(verdict.faults.values()) > 3, "there was something to survive"
    busy = ("opened", "pauses", "repeated", "refused", "held")
    assert min(verdict.flow[name] for name in busy) > 0, "flow control had work"
    condemned = [v for v in check(replace(campaign.history, troubles=())) if v.invariant == "I12"]
    assert len(condemned) == verdict.taken["lost"] + verdict.taken["crashed"], "the check knows who did it"
