"""Idle: what a worker costs that has nothing to do, itself and its server, and how much memory it holds.

After a thousand jobs. All processes of a system count.
"""

from __future__ import annotations

import time

import psutil

from benchmarks import goals, rounds
from benchmarks.columns.drain import fill
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC
from benchmarks.processes import cpu, running, wait_for
from benchmarks.rounds import Bench

NAMES = ("floor", "huey", "dramatiq", "taskiq", "chancy", "oban", "procrastinate", ASYNC, "bullmq", "taskito")
JOBS = 1000
SETTLE = 3.0


def run(config: Config) -> list[Row]:
    busy, resident, proportional, served, asked = Samples(), Samples(), Samples(), Samples(), Samples()
    for number, name, (used, rss, pss, server, operations, worker) in rounds.each(config, "idle", NAMES, measure, busy):
        for samples, value in ((busy, used), (resident, rss), (proportional, pss)):
            samples.add(name, number, value)
        if name == ASYNC:
            resident.add("mainspring worker", number, worker)
        if config.engine != "sqlite":
            served.add(name, number, server)
            asked.add(name, number, operations)
    goals_cpu, goals_rss = {ASYNC: goals.IDLE_CPU}, {"mainspring worker": goals.RSS_MB}
    return [
        *[busy.row("idle CPU", name, "%", at_most=goals_cpu.get(name)) for name in busy.systems()],
        *[resident.row("RSS", name, "MB", at_most=goals_rss.get(name)) for name in resident.systems()],
        *proportional.rows("PSS", "MB"),
        *served.rows("idle server CPU", "%"),
        *asked.rows("idle server operations", "1/s"),
    ]


def measure(bench: Bench) -> tuple[float, float, float, float, float, float]:
    """Per cent of one processor, RSS and PSS in MB; the server's per cent and operations a second; a worker's RSS."""
    fill(bench, JOBS)
    with running(bench.system.worker, bench.env, bench.folder) as worker:
        look = bench.place.look()
        wait_for(lambda: not look.ask(bench.system.asked.left), worker, "the first jobs")
        look.close()
        time.sleep(SETTLE)
        family = [worker.main, *worker.main.children(recursive=True)]
        counted = bench.place.operations()
        began, used, server = time.monotonic(), sum(map(cpu, family)), bench.place.cpu()
        time.sleep(bench.config.idle_seconds)
        took = time.monotonic() - began
        used, server = sum(map(cpu, family)) - used, bench.place.cpu() - server
        worker.check()
        counted = (bench.place.operations() - counted) / took
        memory = [_memory(process) for process in family]
        working = _memory(worker.find(bench.system.mark)[0])[0]
    rss, pss = (sum(values) for values in zip(*memory, strict=True))
    return used / took * 100, rss, pss, server / took * 100, counted, working


def _memory(process: psutil.Process) -> tuple[float, float]:
    full = process.memory_full_info()
    return full.rss / 2**20, getattr(full, "pss", full.uss) / 2**20
