"""Start: from the start of the command to the first line of a job that waits, and the processor time until then.

``import asyncio`` in a fresh interpreter is measured in turn: on a shared machine, seconds alone mean little.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks import goals, rounds
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC
from benchmarks.processes import environment, run_json, running, tree_cpu, wait_for
from benchmarks.programs.stamps import read
from benchmarks.rounds import Bench

NAMES = (ASYNC, "huey", "dramatiq", "taskiq", "chancy", "oban", "procrastinate", "bullmq", "taskito")
TRIES = 5
ASYNCIO = "import asyncio"


def run(config: Config) -> list[Row]:
    began, used = Samples(), Samples()
    names = rounds.with_trees(config, NAMES)
    for number, name, (seconds, cpu, floor, floor_cpu) in rounds.each(config, "start", names, measure, began):
        for samples, ours, beside in ((began, seconds, floor), (used, cpu, floor_cpu)):
            samples.add(name, number, ours * 1000)
            samples.add(f"{ASYNCIO} beside {name}", number, beside * 1000)
    limit = {ASYNC: goals.START_MS.get(config.engine)}
    ratio = {ASYNC: goals.START_OF_ASYNCIO.get(config.engine)}
    measured = [name for name in names if began.of(name)]
    return [
        *[began.row("start", name, "ms", at_most=limit.get(name)) for name in began.systems()],
        *used.rows("start CPU", "ms"),
        *[began.ratio("start", name, f"{ASYNCIO} beside {name}", at_most=ratio.get(name)) for name in measured],
        *[used.ratio("start CPU", name, f"{ASYNCIO} beside {name}") for name in measured],
    ]


def measure(bench: Bench) -> tuple[float, float, float, float]:
    """Seconds to the first job and of processor time, then the same of ``import asyncio``; the least of the tries."""
    tries = [(*_start(bench, number), *_import_asyncio()) for number in range(TRIES)]
    seconds, cpu, floor, floor_cpu = (min(values) for values in zip(*tries, strict=True))
    return seconds, cpu, floor, floor_cpu


def _start(bench: Bench, number: int) -> tuple[float, float]:
    run_json(bench.system.produce(bench.system.task.replace("noop", "stamp"), "probe", 1), bench.env)
    began = time.monotonic()
    with running(bench.system.worker, bench.env, bench.folder) as worker:
        wait_for(lambda: len(read(bench.env["BENCH_OUT"])) > number, worker, "the first job", pause=0.001)
        cpu = tree_cpu(worker.main)
    return read(bench.env["BENCH_OUT"])[number][1] / 1e9 - began, cpu


def _import_asyncio() -> tuple[float, float]:
    before, began = os.times(), time.monotonic()
    subprocess.run([sys.executable, "-c", ASYNCIO], env=environment({}), check=True)
    took, after = time.monotonic() - began, os.times()
    return took, after.children_user + after.children_system - before.children_user - before.children_system
