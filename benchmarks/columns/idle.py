"""Idle: what a worker costs that has nothing to do, itself and its server, and how much memory it holds.

From two seconds after the last of a thousand jobs. All processes of a system count. Operations are the server's own
count: transactions of all databases, or commands, those inside scripts too. Round trips are transactions of the store's
database, or the requests that the server read.
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
SETTLE = 2.0


def run(config: Config) -> list[Row]:
    busy, resident, proportional = Samples(), Samples(), Samples()
    served, asked, trips = Samples(), Samples(), Samples()
    for number, name, (used, rss, pss, server, operations, requests, worker) in rounds.each(
        config, "idle", rounds.with_trees(config, NAMES), measure, busy
    ):
        for samples, value in ((busy, used), (resident, rss), (proportional, pss)):
            samples.add(name, number, value)
        if name == ASYNC:
            resident.add("mainspring worker", number, worker)
        if config.engine != "sqlite":
            served.add(name, number, server)
            asked.add(name, number, operations)
            trips.add(name, number, requests)
    goals_cpu, goals_rss = {ASYNC: goals.IDLE_CPU}, {"mainspring worker": goals.RSS_MB}
    goals_trips = {ASYNC: goals.IDLE_ROUND_TRIPS}
    return [
        *[busy.row("idle CPU", name, "%", at_most=goals_cpu.get(name)) for name in busy.systems()],
        *[resident.row("RSS", name, "MB", at_most=goals_rss.get(name)) for name in resident.systems()],
        *proportional.rows("PSS", "MB"),
        *served.rows("idle server CPU", "%"),
        *asked.rows("idle server operations", "1/s"),
        *[trips.row("idle round trips", name, "1/s", at_most=goals_trips.get(name)) for name in trips.systems()],
    ]


def measure(bench: Bench) -> tuple[float, float, float, float, float, float, float]:
    """Per cent of one processor, RSS and PSS in MB; the server's per cent, operations and round trips a second; a
    worker's RSS.
    """
    fill(bench, JOBS)
    with running(bench.system.worker, bench.env, bench.folder) as worker:
        look = bench.place.look()
        wait_for(lambda: not look.ask(bench.system.asked.left), worker, "the first jobs")
        bench.place.stop_maintenance(look)
        time.sleep(SETTLE + bench.place.counts_late)
        family = [worker.main, *worker.main.children(recursive=True)]
        counted, requests = bench.place.operations(look), bench.place.round_trips(look)
        began, used, server = time.monotonic(), sum(map(cpu, family)), bench.place.cpu()
        time.sleep(bench.config.idle_seconds)
        took = time.monotonic() - began
        used, server = sum(map(cpu, family)) - used, bench.place.cpu() - server
        worker.check()
        counted, requests = [
            (now - before) / took
            for now, before in (
                (bench.place.operations(look), counted),
                (bench.place.round_trips(look) - 2, requests),  # our own two questions
            )
        ]
        look.close()
        memory = [_memory(process) for process in family]
        working = _memory(worker.find(bench.system.mark)[0])[0]
    rss, pss = (sum(values) for values in zip(*memory, strict=True))
    return used / took * 100, rss, pss, server / took * 100, counted, requests, working


def _memory(process: psutil.Process) -> tuple[float, float]:
    full = process.memory_full_info()
    return full.rss / 2**20, getattr(full, "pss", full.uss) / 2**20
