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
from benchmarks.frame import Config, Row, Samples, of_tree, split_tree
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
    wanted = _wanted(config)
    for number, (name, processes) in itertools.product(range(config.rounds), wanted):
        measure = partial(_drain, task=TASKS[name], processes=processes)
        names = rounds.with_trees(config, [ASYNC])
        for _, system, found in rounds.each(once, f"drain with {name}, {processes}:", names, measure, rates):
            label = of_tree(f"{name}, {processes}", split_tree(system)[1])
            rates.add(label, number, found.rate)
            costs.add(label, number, found.worker)
            if config.engine != "sqlite":
                servers.add(label, number, found.server)
    rated = [] if config.limits else [ASYNC]
    for number, _, said in rounds.each(config, "a rate of 1,000 a second:", rated, _rate, use):
        use.add("used", number, said["used"])
        use.add("most in a second", number, said["most"])
    return [
        *rates.rows("drain with limits, by 1 and 4 processes", "jobs/s"),
        *costs.rows("drain with limits, worker CPU", "us/job"),
        *servers.rows("drain with limits, server CPU", "us/job"),
        *[
            rates.ratio(
                "limits", of_tree(f"{name}, {n}", tree), of_tree(f"no limit, {n}", tree),
                at_least=None if tree else goals.LIMITS.get((name, n)),
            )
            for name, n in wanted for tree in ("", *config.trees) if name != "no limit"
        ],
        *([
            use.row("rate of 1,000/s", "used", "%", at_least=goals.RATE_USED),
            use.row("rate of 1,000/s", "most in a second", "starts", at_most=1000),
        ] if rated else []),
    ]  # fmt: skip


def _wanted(config: Config) -> list[tuple[str, int]]:
    """The names of tasks and numbers of processes: without a limit, and then with those that were asked for."""
    every = [(name, n) for n in PROCESSES for name in TASKS]
    chosen = [(name, n) for name, n in every if not config.limits or f"{name}, {n}" in config.limits]
    return [each for each in every if each in chosen or (each[0] == "no limit" and each[1] in {n for _, n in chosen})]


def _drain(bench: Bench, *, task: str, processes: int) -> Drained:
    bench.system = dataclasses.replace(bench.system, task=task, double=("--processes", str(processes)))
    return drain.measure(bench, processes)


def _rate(bench: Bench) -> Any:
    command = [sys.executable, "-m", "benchmarks.programs.rate", *bench.system.worker]
    return run_json(command, bench.env, within=300)
