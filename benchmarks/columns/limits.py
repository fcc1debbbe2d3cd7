"""Limits: what a drain pays for one that does not bind, for many keys, and how much of a rate that binds is used."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from functools import partial
from typing import Any

from benchmarks import goals, rounds
from benchmarks.columns import drain
from benchmarks.columns.drain import Drained
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC
from benchmarks.processes import run_json
from benchmarks.rounds import Bench

TASKS = {
    "no limit": "noop",
    "concurrency": "wide",
    "rate": "fast",
    "10,000 keys": "tenants",
    "every job a key": "apart",
}
PROCESSES = (1, 4)


def run(config: Config) -> list[Row]:
    rates, costs, servers, use = Samples(), Samples(), Samples(), Samples()
    once = dataclasses.replace(config, rounds=1)
    for number, (name, task), processes in itertools.product(range(config.rounds), TASKS.items(), PROCESSES):
        measure = partial(_drain, task=task, processes=processes)
        label = f"{name}, {processes}"
        for _, _, found in rounds.each(once, f"drain with {label}:", [ASYNC], measure, rates):
            rates.add(label, number, found.rate)
            costs.add(label, number, found.worker)
            if config.engine != "sqlite":
                servers.add(label, number, found.server)
    for number, _, said in rounds.each(config, "a rate of 1,000 a second:", [ASYNC], _rate, use):
        use.add("used", number, said["used"])
        use.add("most in a second", number, said["most"])
    return [
        *rates.rows("drain with limits, by 1 and 4 processes", "jobs/s"),
        *costs.rows("drain with limits, worker CPU", "us/job"),
        *servers.rows("drain with limits, server CPU", "us/job"),
        *[
            rates.ratio("limits", f"{name}, {n}", f"no limit, {n}", at_least=goals.LIMITS.get((name, n)))
            for n in PROCESSES for name in TASKS if name != "no limit"
        ],
        use.row("rate of 1,000/s", "used", "%", at_least=goals.RATE_USED),
        use.row("rate of 1,000/s", "most in a second", "starts", at_most=1000),
    ]  # fmt: skip


def _drain(bench: Bench, *, task: str, processes: int) -> Drained:
    bench.system = dataclasses.replace(bench.system, task=task, double=("--processes", str(processes)))
    return drain.measure(bench, processes)


def _rate(bench: Bench) -> Any:
    command = [sys.executable, "-m", "benchmarks.programs.rate", *bench.system.worker]
    return run_json(command, bench.env, within=300)
