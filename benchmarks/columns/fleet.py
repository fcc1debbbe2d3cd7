"""Fleet: what a thousand idle workers cost their server. See ``benchmarks.idle_fleet``."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import goals, rounds
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC
from benchmarks.processes import run_json
from benchmarks.rounds import Bench

WORKERS = 1000
TITLES = {"all": f"{WORKERS:,} workers", "before": f"{WORKERS:,} workers that poll as often as one"}


def run(config: Config) -> list[Row]:
    served, asked = Samples(), Samples()
    for number, _, found in rounds.each(config, f"{WORKERS:,} idle workers:", [ASYNC], measure, served):
        for title, name in TITLES.items():
            served.add(name, number, found[title]["core"])
            asked.add(name, number, found[title]["calls"])
    wanted = {TITLES["all"]: goals.FLEET_CPU}
    return [
        *[served.row("idle fleet, server CPU", name, "%", at_most=wanted.get(name)) for name in served.systems()],
        *asked.rows("idle fleet, calls", "1/s"),
    ]


def measure(bench: Bench) -> Any:
    command = [
        sys.executable, "-m", "benchmarks.idle_fleet", "--store", bench.config.engine, "--json",
        "--workers", str(WORKERS), "--seconds", str(bench.config.idle_seconds), "--only", *TITLES,
    ]  # fmt: skip
    return run_json(command, bench.env)
