"""Scale: what a claim and its ack cost the engine beside a long queue, a long history and many dead rows."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import rounds
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC, FLAT
from benchmarks.processes import run_json
from benchmarks.rounds import Bench

EMPTY = "empty"


def run(config: Config) -> list[Row]:
    wall, cost, served, dead = Samples(), Samples(), Samples(), Samples()
    labels = {"empty": EMPTY, "queued": f"{config.scale:,} queued", "finished": f"{config.scale:,} finished"}
    if config.engine == "postgres":
        labels["dead"] = f"{2 * config.scale:,} dead rows"
    for number, _, found in rounds.each(config, f"scale to {config.scale:,} jobs: minutes:", [ASYNC], measure, wall):
        for key, name in labels.items():
            wall.add(name, number, found[key]["wall"])
            cost.add(name, number, found[key]["cpu"])
            if config.engine != "sqlite":
                served.add(name, number, found[key]["server"])
        if "dead" in found:
            dead.add("mainspring.jobs", number, found["dead"]["rows"])
    engine = cost if config.engine == "sqlite" else served
    return [
        *wall.rows("claim and ack, batch 64", "us/job"),
        *cost.rows("claim and ack, batch 64, CPU", "us/job"),
        *served.rows("claim and ack, batch 64, server CPU", "us/job"),
        *dead.rows("dead rows by the server's count", "rows"),
        *[
            engine.ratio("claim and ack, engine CPU", name, EMPTY, at_most=FLAT)
            for key, name in labels.items()
            if key != "empty"
        ],
    ]


def measure(bench: Bench) -> Any:
    address = bench.place.address
    url = address if "://" in address else "sqlite:///" + address
    pid = bench.place.pid()
    command = [sys.executable, "-m", "benchmarks.programs.scale", url, str(bench.config.scale)]
    return run_json([*command, *([str(pid)] if pid else [])], bench.env, within=3600)
