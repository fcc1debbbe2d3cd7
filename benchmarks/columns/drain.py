"""Drain: a full queue until the store shows every job done.

The clock runs from the first job that the store shows done to the last, so neither start-up nor a deferred
ack is paid. The processor time is the working process's own between the same two moments.
"""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from benchmarks import systems
from benchmarks.frame import DRAIN_FLOOR, Config, Failed, Row, Samples
from benchmarks.processes import Running, cpu, python, run_json, running, wait_for
from benchmarks.systems import System

NAME = "drain"
ABOUT = "jobs a second of a full queue, and what a job costs the worker"
LONGEST = 600.0


def run(config: Config) -> list[Row]:
    rates, costs, supervision = Samples(), Samples(), Samples()
    compared = [
        systems.floor(), systems.huey(), systems.mainspring("async"), systems.mainspring("thread"), systems.taskito()
    ]  # fmt: skip
    for number in range(config.rounds):
        for system in compared:
            n = max(200, int(config.n * system.share))
            config.say(f"drain {system.name}, {n:,} jobs, round {number + 1}")
            try:
                with config.scratch() as folder:
                    rate, cost, supervisor = measure(system, folder, n)
            except Failed as error:
                rates.fail(system.name, str(error))
                continue
            rates.add(system.name, number, rate)
            costs.add(system.name, number, cost)
            if system.mark:
                supervision.add(system.name, number, supervisor)
    return _rows(config, rates, costs, supervision)


def _rows(config: Config, rates: Samples, costs: Samples, supervision: Samples) -> list[Row]:
    short = "" if config.n >= DRAIN_FLOOR else f"N = {config.n:,} is too few to quote"
    limit = {"mainspring async": 80.0}
    return [
        *rates.rows("drain", "jobs/s"),
        rates.ratio("drain async", "mainspring async", "huey", at_least=6),
        rates.ratio("drain sync", "mainspring thread", "huey", at_least=2.5),
        rates.ratio("drain async", "mainspring async", "floor"),
        rates.ratio("drain async", "mainspring async", "taskito"),
        *[costs.row("worker CPU", name, "us/job", at_most=limit.get(name), note=short) for name in costs.systems()],
        *supervision.rows("supervisor CPU", "us/job"),
    ]


def measure(system: System, folder: Path, n: int) -> tuple[float, float, float]:
    """Jobs a second; microseconds of processor time a job, of the worker and of its supervisor."""
    fill(system, folder, n)
    with running(system.worker, system.env(folder), folder) as worker:
        store = system.look(folder)
        try:
            wait_for(lambda: store.execute(system.begun).fetchone()[0], worker, "first job", pause=0.002)
            began, busy = time.monotonic(), worker.find(system.mark)
            used, watched = cpu(busy), _supervisor(worker, system)
            ended = wait_for(lambda: not store.execute(system.left).fetchone()[0], worker, "drain", LONGEST, 0.01)
            cost, supervisor = cpu(busy) - used, _supervisor(worker, system) - watched
            _check(system, store.execute(system.count).fetchone()[0] if system.count else n, n)
        finally:
            store.close()
    return n / (ended - began), cost / n * 1e6, supervisor / n * 1e6


def fill(system: System, folder: Path, n: int, task: str | None = None) -> None:
    command = python("-m", "benchmarks.programs.produce", system.program, task or system.task, "fill", str(n))
    run_json(command, {**system.env(folder), "BENCH_FILL": "1"})


def _supervisor(worker: Running, system: System) -> float:
    main: psutil.Process = worker.main
    return cpu(main) if system.mark else 0.0


def _check(system: System, done: int, n: int) -> None:
    if done != n:
        raise Failed(f"{system.name}: {done:,} of {n:,} jobs succeeded")
