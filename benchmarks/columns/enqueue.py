"""Enqueue from a plain script, one after the other: one by one, and in bulk."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks import goals, rounds
from benchmarks.frame import Config, Row, Samples
from benchmarks.processes import run_json
from benchmarks.rounds import Bench

NAMES = (
    "floor", "floor normal", "dramatiq", "taskiq", "huey", "chancy", "oban", "procrastinate", "mainspring async",
    "mainspring async normal", "bullmq", "taskito",
)  # fmt: skip
BULK = 500
WITHOUT_BULK = ("huey", "dramatiq")


def run(config: Config) -> list[Row]:
    ones = Enqueued(config, "one", max(200, config.n // 8), NAMES)
    bulks = Enqueued(config, "many", config.n, [name for name in NAMES if name not in WITHOUT_BULK])
    return [
        *ones.rows(
            "enqueue one",
            goals.ENQUEUE_ONE[config.engine],
            goals.ENQUEUE_ONE_RATE.get(config.engine),
            goals.ENQUEUE_ONE_CPU.get(config.engine),
        ),
        *bulks.rows(f"enqueue bulk of {BULK:,}", goals.ENQUEUE_BULK[config.engine]),
    ]


class Enqueued:
    """One mode, measured."""

    def __init__(self, config: Config, mode: str, n: int, names: Sequence[str]) -> None:
        self.rates, self.costs, self.served = Samples(), Samples(), Samples()

        def measure(bench: Bench) -> tuple[float, float, float]:
            system = bench.system
            run_json(system.produce(system.task, "fill", 1), bench.env)  # makes the store, if need be
            served = bench.place.cpu()
            took = run_json(system.produce(system.task, mode, n, BULK), bench.env)
            return n / took["seconds"], took["cpu"] / n * 1e6, (bench.place.cpu() - served) / n * 1e6

        names = rounds.with_trees(config, names)
        for number, name, (rate, cost, server) in rounds.each(config, f"enqueue {mode}", names, measure, self.rates):
            self.rates.add(name, number, rate)
            self.costs.add(name, number, cost)
            if config.engine != "sqlite":
                self.served.add(name, number, server)

    def rows(
        self, column: str, wanted: Sequence[goals.Ratio], rate: float | None = None, cost: float | None = None
    ) -> list[Row]:
        """All rows; ours is held to the ratios, and to ``rate`` and ``cost`` where they are given."""
        rates, costs = {goals.ASYNC: rate}, {goals.ASYNC: cost}
        return [
            *[self.rates.row(column, name, "jobs/s", at_least=rates.get(name)) for name in self.rates.systems()],
            *[
                self.costs.row(f"{column}, CPU", name, "us/job", at_most=costs.get(name))
                for name in self.costs.systems()
            ],
            *self.served.rows(f"{column}, server CPU", "us/job"),
            *[self.rates.ratio(goal.column, goal.ours, goal.of, at_least=goal.at_least) for goal in wanted],
        ]
