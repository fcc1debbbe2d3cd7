"""Latency: from the call of enqueue in one process to the first line of the job in another, on an idle worker.

The enqueue's own commit is part of it. Jobs come now and then, so none waits for another. The floor on SQLite looks
each millisecond whether the file has changed, as nothing else wakes it.
"""

from __future__ import annotations

from benchmarks import goals, rounds
from benchmarks.frame import Config, Row, Samples, percentile
from benchmarks.goals import ASYNC
from benchmarks.processes import run_json, running, wait_for
from benchmarks.programs.stamps import read
from benchmarks.rounds import Bench

NAMES = (
    "floor", "huey", "taskito", "dramatiq", "taskiq", "chancy", "oban", "procrastinate", "mainspring async",
    "mainspring thread", "mainspring async normal", "bullmq",
)  # fmt: skip
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def run(config: Config) -> list[Row]:
    found = {name: Samples() for name, _ in QUANTILES}
    names = rounds.with_trees(config, NAMES)
    for number, name, waits in rounds.each(config, "latency", names, measure, found["p50"]):
        for quantile, share in QUANTILES:
            found[quantile].add(name, number, percentile(waits, share))
    return [
        *[row for quantile, samples in found.items() for row in samples.rows(f"pick-up {quantile}", "ms")],
        found["p50"].ratio("pick-up p50", ASYNC, "floor", at_most=goals.PICK_UP_OF_FLOOR),
    ]


def measure(bench: Bench) -> list[float]:
    """Milliseconds of each probe."""
    out, probes = bench.env["BENCH_OUT"], bench.config.probes
    task = bench.system.task.replace("noop", "stamp")

    def probe(count: int) -> None:
        run_json(bench.system.produce(task, "probe", count), bench.env)

    probe(1)  # makes the store; is there when the worker starts
    with running(bench.system.worker, bench.env, bench.folder) as worker:
        wait_for(lambda: read(out), worker, "first job")
        probe(10)
        probe(probes)
        wait_for(lambda: len(read(out)) >= probes + 11, worker, "the last probe")
    return [(began - sent) / 1e6 for sent, began in read(out)[11:]]
