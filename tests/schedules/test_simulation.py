"""Ten thousand hours of schedules: schedulers race, die and lose replies, and the clock goes back and forth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mainspring.schedules.plan import Definition
from mainspring.schedules.rules import Cron, Every, Once, make_window
from tests.schedules.simulation import Simulation
from tests.unit.schedule_samples import HOUR, MINUTE, T0, definition

EVER = 1_000_000
SEEDS = range(1, 101) if os.environ.get("MAINSPRING_SOAK") else (1, 2, 3, 4)
HOURS = 2_500
"""Of each of them, for all schedules together."""


def crowd() -> dict[str, Definition]:
    """Every mode, misfire and overlap."""
    made = {
        f"{misfire} {overlap} {minutes}": definition(
            misfire=misfire, overlap=overlap, every=minutes * MINUTE, history=EVER
        )
        for misfire in ("skip", "once", "all")
        for overlap in ("skip", "queue", "allow", "cancel_previous")
        for minutes in (47, 95)
    }
    for name, zone in (("kyiv", "Europe/Kyiv"), ("new york", "America/New_York")):
        rule = make_window(Cron.of("30 * * * *", tz=zone))
        made[name] = definition(rule=rule, misfire="all", overlap="queue", history=EVER)
    made["daily"] = definition(cron="15 3 * * *", tz="Europe/Berlin", jitter=10 * MINUTE, history=EVER)
    made["window"] = definition(rule=make_window(Every(HOUR), start=T0 + 20 * HOUR, end=T0 + 200 * HOUR), history=EVER)
    made["once"] = definition(rule=make_window(Once(delay=5 * HOUR)), history=EVER)
    made["by hand"] = definition(mode="triggered", history=EVER)
    for pause in (0, 20):
        made[f"continuous {pause}"] = definition(mode="continuous", min_pause=pause * MINUTE, history=EVER)
    return made


@pytest.mark.row("S5")
@pytest.mark.timeout(900)  # thousands of steps, each with a hand-over between threads: slow on a loaded machine
@pytest.mark.parametrize("seed", SEEDS)
async def test_ten_thousand_hours_break_no_rule(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge finds no violation, and every kind of event has happened."""
    definitions = crowd()
    simulation = Simulation(tmp_path, seed, definitions)
    monkeypatch.setattr("mainspring.schedules.store_time.boottime", simulation.own_time)
    await simulation.run(hours=HOURS / len(definitions))
    told, counts = simulation.judge.told, simulation.counts
    assert all(told[word] for word in ("fired", "skipped", "missed")), told
    assert all(counts[word] for word in ("lost", "unheard", "died", "trigger")), counts
