"""Enqueue from a plain script, blocking: one by one, and in bulk."""

from __future__ import annotations

from benchmarks import systems
from benchmarks.frame import Config, Failed, Row, Samples
from benchmarks.processes import python, run_json
from benchmarks.systems import System

NAME = "enqueue"
ABOUT = "jobs a second into the store, one by one and in bulk"
BULK = 1000


def run(config: Config) -> list[Row]:
    ones = _measure(config, "one", max(200, config.n // 8), _compared())
    bulks = _measure(config, "many", config.n, [s for s in _compared() if s.name != "huey"])
    full, normal = "mainspring async", "mainspring async normal"
    return [
        *ones.rates.rows("enqueue one", "jobs/s"),
        *ones.costs.rows("enqueue one, CPU", "us/job"),
        ones.rates.ratio("enqueue one, full", full, "huey", at_least=1),
        ones.rates.ratio("enqueue one, normal", normal, "huey", at_least=5),
        *bulks.rates.rows(f"enqueue bulk of {BULK:,}", "jobs/s"),
        *bulks.costs.rows(f"enqueue bulk of {BULK:,}, CPU", "us/job"),
        bulks.rates.ratio("enqueue bulk, full", full, "floor", at_least=0.25),
        bulks.rates.ratio("enqueue bulk, normal", normal, "floor normal", at_least=0.25),
    ]


def _compared() -> list[System]:
    return [
        systems.floor(), systems.floor("normal"), systems.huey(), systems.mainspring(),
        systems.mainspring(durability="normal"), systems.taskito(),
    ]  # fmt: skip


class Measured:
    def __init__(self) -> None:
        self.rates = Samples()
        self.costs = Samples()


def _measure(config: Config, mode: str, n: int, compared: list[System]) -> Measured:
    measured = Measured()
    for number in range(config.rounds):
        for system in compared:
            config.say(f"enqueue {mode} {system.name}, {n:,} jobs, round {number + 1}")
            command = python(
                "-m", "benchmarks.programs.produce", system.program, system.task, mode, str(n), str(BULK)
            )  # fmt: skip
            try:
                with config.scratch() as folder:
                    took = run_json(command, system.env(folder))
            except Failed as error:
                measured.rates.fail(system.name, str(error))
                continue
            measured.rates.add(system.name, number, n / took["seconds"])
            measured.costs.add(system.name, number, took["cpu"] / n * 1e6)
    return measured
