"""Schedules: what a scheduler takes beside 10,000 of them, and how soon 1,000 on one moment have their jobs."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import rounds
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC, HERD_SECONDS, SCHEDULER_CPU
from benchmarks.processes import run_json
from benchmarks.rounds import Bench

BESIDE = "10,000, one due each second"
HERD = "1,000 on one moment"


def run(config: Config) -> list[Row]:
    tick, cpu, server, herd = Samples(), Samples(), Samples(), Samples()
    for number, _, found in rounds.each(config, "10,000 schedules:", [ASYNC], measure, cpu):
        tick.add("nothing due of 10,000", number, found["tick"])
        cpu.add(BESIDE, number, found["cpu"])
        if config.engine != "sqlite":
            server.add(BESIDE, number, found["server"])
        herd.add(HERD, number, found["herd"])
    return [
        *tick.rows("look of a scheduler, CPU", "us"),
        cpu.row("scheduler, CPU", BESIDE, "%", at_most=SCHEDULER_CPU),
        *server.rows("scheduler and worker, server CPU", "%"),
        herd.row("until each has its job", HERD, "s", at_most=HERD_SECONDS),
    ]


def measure(bench: Bench) -> Any:
    address = bench.place.address
    url = address if "://" in address else "sqlite:///" + address
    pid = bench.place.pid()
    command = [sys.executable, "-m", "benchmarks.programs.schedules", url, str(bench.config.idle_seconds)]
    return run_json([*command, *([str(pid)] if pid else [])], bench.env, within=900)
