"""Fair keys: what the others get beside one that floods its queue, and what sharing costs."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import rounds
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC, FAIR, FLAT
from benchmarks.processes import run_json
from benchmarks.rounds import Bench

CALM, FLOODED = "10,000 keys", "10,000 keys and a flood"
PLAIN, BESIDE, OWN = "no keys", "no keys, 20,000 jobs with keys beside", "a key for each job"


def run(config: Config) -> list[Row]:
    share, wait, cost, enqueue = Samples(), Samples(), Samples(), Samples()
    most = f"a key for each of {config.scale:,} jobs"
    for number, _, found in rounds.each(config, f"fair keys, {config.scale:,} at most:", [ASYNC], measure, cost):
        for name, key in ((CALM, "calm"), (FLOODED, "flooded")):
            share.add(name, number, found[key]["share"])
            wait.add(name, number, found[key]["p99"])
        for name, key in ((PLAIN, "plain"), (BESIDE, "beside"), (OWN, "keys"), (most, "most")):
            cost.add(name, number, found[key])
        enqueue.add(most, number, found["enqueue"])
    return [
        *share.rows("claims of others", "%"),
        *wait.rows("wait of others, p99", "claims"),
        wait.ratio("wait of others, p99", FLOODED, CALM, at_most=FAIR),
        *cost.rows("claim and ack, batch 64, CPU", "us/job"),
        cost.ratio("claim and ack, batch 64, CPU", BESIDE, PLAIN, at_most=FLAT),
        *enqueue.rows("enqueue, batch 1,000, CPU", "us/job"),
    ]


def measure(bench: Bench) -> Any:
    address = bench.place.address
    url = address if "://" in address else "sqlite:///" + address
    pid = bench.place.pid()
    command = [sys.executable, "-m", "benchmarks.programs.fair", url, str(bench.config.scale)]
    return run_json([*command, *([str(pid)] if pid else [])], bench.env, within=3600)
