"""Drain: a full queue until the store shows every job done.

The clock runs from the first look at which the store shows a job done to the look at which it shows all of them done,
and only the jobs of that time count: neither start-up nor a deferred ack is paid. Processor time is that of the
working processes, and of all processes of the server, between the same two moments.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from benchmarks import goals, rounds, systems
from benchmarks.frame import DRAIN_FLOOR, Config, Failed, Row, Samples
from benchmarks.goals import ASYNC
from benchmarks.processes import Running, cpu, run_json, running, wait_for
from benchmarks.rounds import Bench

NAMES = (
    "floor", "dramatiq", "taskiq", "chancy", "oban", "huey", "mainspring async", "mainspring thread", "bullmq",
    "procrastinate", "taskito",
)  # fmt: skip
LONGEST = 600.0


@dataclasses.dataclass(frozen=True)
class Drained:
    """Jobs a second; microseconds of processor time a job."""

    rate: float
    worker: float
    server: float
    supervisor: float


def run(config: Config) -> list[Row]:
    rates, costs, servers, supervision = Samples(), Samples(), Samples(), Samples()
    for number, name, found in rounds.each(config, "drain", rounds.with_trees(config, NAMES), measure, rates):
        rates.add(name, number, found.rate)
        costs.add(name, number, found.worker)
        if config.engine != "sqlite":
            servers.add(name, number, found.server)
        if name.startswith("mainspring"):
            supervision.add(name, number, found.supervisor)
    short = "" if config.n >= DRAIN_FLOOR else f"N = {config.n:,} is too few to quote"
    worker, server = {ASYNC: goals.WORKER_CPU[config.engine]}, {ASYNC: goals.SERVER_CPU.get(config.engine)}
    return [
        *rates.rows("drain", "jobs/s"),
        *[rates.ratio(goal.column, goal.ours, goal.of, at_least=goal.at_least) for goal in goals.DRAIN[config.engine]],
        *[costs.row("worker CPU", name, "us/job", at_most=worker.get(name), note=short) for name in costs.systems()],
        *[servers.row("server CPU", name, "us/job", at_most=server.get(name)) for name in servers.systems()],
        *supervision.rows("supervisor CPU", "us/job"),
    ]


def measure(bench: Bench, processes: int = 1) -> Drained:
    system, n = bench.system, bench.system.jobs(bench.config.n)
    fill(bench, n)
    with ExitStack() as stack:
        look = bench.place.look()
        stack.callback(look.close)
        workers = [stack.enter_context(running(*start)) for start in _starts(bench, processes)]
        wait_for(lambda: _begun(bench, look.ask, n), workers[0], "first job", pause=0.002, rest=1)
        began, used, served, watched = time.monotonic(), _cpu(workers, bench), bench.place.cpu(), _watching(workers)
        before = n - look.ask(system.asked.waiting)
        ended = wait_for(lambda: not look.ask(system.asked.left), workers[0], "drain", LONGEST, 0.01)
        worker, server, watching = (
            _cpu(workers, bench) - used, bench.place.cpu() - served, _watching(workers) - watched
        )  # fmt: skip
        if system.asked.count:
            systems.check(bench.name, look.ask(system.asked.count), n)
    jobs = n - before
    if not jobs:
        raise Failed(f"all of {n:,} jobs were done before the first look: give it more")
    return Drained(jobs / (ended - began), *[spent / jobs * 1e6 for spent in (worker, server, watching)])


def _starts(bench: Bench, processes: int) -> list[tuple[tuple[str, ...], dict[str, str], Path, str]]:
    if processes > 1 and bench.system.double:
        return [((*bench.system.worker, *bench.system.double), bench.env, bench.folder, "worker")]
    return [(bench.system.worker, bench.env, bench.folder, f"worker{number}") for number in range(processes)]


def _begun(bench: Bench, ask: Callable[[str], int], n: int) -> bool:
    return bool(ask(bench.system.asked.begun)) if bench.system.asked.begun else ask(bench.system.asked.waiting) < n


def _cpu(workers: list[Running], bench: Bench) -> float:
    return sum(worker.cpu(bench.system.mark) for worker in workers)


def _watching(workers: list[Running]) -> float:
    return sum(cpu(worker.main) for worker in workers)


def fill(bench: Bench, n: int, task: str | None = None) -> None:
    run_json(bench.system.produce(task or bench.system.task, "fill", n), {**bench.env, "BENCH_FILL": "1"})
