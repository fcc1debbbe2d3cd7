"""Latency: from the call of enqueue in one process to the first line of the job in another, on an idle worker.

The enqueue's own commit is part of it. Jobs come now and then, so none waits for another.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from benchmarks import systems
from benchmarks.frame import Config, Failed, Row, Samples, percentile
from benchmarks.processes import python, run_json, running, wait_for
from benchmarks.programs.stamps import read
from benchmarks.systems import System

NAME = "latency"
ABOUT = "pick-up of a job from another process"
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def run(config: Config) -> list[Row]:
    found = {name: Samples() for name, _ in QUANTILES}
    for number in range(config.rounds):
        for system in _compared():
            config.say(f"latency {system.name}, {config.probes} probes, round {number + 1}")
            try:
                with config.scratch() as folder:
                    waits = measure(system, folder, config.probes)
            except Failed as error:
                found["p50"].fail(system.name, str(error))
                continue
            for name, share in QUANTILES:
                found[name].add(system.name, number, percentile(waits, share))
    goals = {("p50", "mainspring async"): 3.0, ("p50", "mainspring thread"): 3.0}
    return [
        samples.row(f"pick-up {name}", system, "ms", at_most=goals.get((name, system)))
        for name, samples in found.items()
        for system in samples.systems()
    ]


def _compared() -> list[System]:
    ours = [systems.mainspring("async"), systems.mainspring("thread"), systems.mainspring("async", "normal")]
    return [systems.huey(), systems.taskito(), *[_stamped(system) for system in ours]]


def _stamped(system: System) -> System:
    return dataclasses.replace(system, task=system.task.replace("noop", "stamp"))


def measure(system: System, folder: Path, probes: int) -> list[float]:
    """Milliseconds of each probe."""
    env, out = system.env(folder), str(folder / "out")
    task = system.task.replace("noop", "stamp")
    command = python("-m", "benchmarks.programs.produce", system.program, task, "probe")
    run_json([*command, "1"], env)  # makes the store; is there when the worker starts
    with running(system.worker, env, folder) as worker:
        wait_for(lambda: read(out), worker, "first job")
        run_json([*command, "10"], env)
        run_json([*command, str(probes)], env)
        wait_for(lambda: len(read(out)) >= probes + 11, worker, "the last probe")
    return [(began - sent) / 1e6 for sent, began in read(out)[11:]]
