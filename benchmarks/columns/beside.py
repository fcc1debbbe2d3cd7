"""One producer enqueues one by one while one worker drains what it enqueues."""

from __future__ import annotations

from benchmarks import goals, rounds
from benchmarks.columns.drain import LONGEST
from benchmarks.frame import Config, Row, Samples
from benchmarks.processes import run_json, running, wait_for
from benchmarks.rounds import Bench

NAMES = (
    "dramatiq", "taskiq", "huey", "chancy", "oban", "procrastinate", "mainspring async", "mainspring thread",
    "mainspring async normal", "bullmq", "taskito",
)  # fmt: skip


def run(config: Config) -> list[Row]:
    rates = Samples()
    for number, name, rate in rounds.each(
        config, "enqueue beside a worker", rounds.with_trees(config, NAMES), measure, rates
    ):
        rates.add(name, number, rate)
    ratios = [
        rates.ratio(goal.column, goal.ours, goal.of, at_least=goal.at_least) for goal in goals.BESIDE[config.engine]
    ]
    return [*rates.rows("enqueue beside a worker", "jobs/s"), *ratios]


def measure(bench: Bench) -> float:
    """Jobs a second of the producer. The worker has drained the queue before the measurement ends."""
    system, n = bench.system, max(200, bench.config.n // 8)
    run_json(system.produce(system.task, "fill", 1), bench.env)  # makes the store, if need be
    with running(system.worker, bench.env, bench.folder) as worker:
        look = bench.place.look()
        try:
            wait_for(lambda: not look.ask(system.asked.left), worker, "the first job")
            took = run_json(system.produce(system.task, "one", n), bench.env)
            wait_for(lambda: not look.ask(system.asked.left), worker, "the rest", LONGEST, 0.01)
        finally:
            look.close()
    return float(n / took["seconds"])
