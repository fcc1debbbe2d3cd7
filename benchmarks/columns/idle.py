"""Idle: what a worker costs that has nothing to do, and how much memory it holds after a thousand jobs."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from benchmarks import systems
from benchmarks.columns.drain import fill
from benchmarks.frame import Config, Failed, Row, Samples
from benchmarks.processes import cpu, running, wait_for
from benchmarks.systems import System

NAME = "idle"
ABOUT = "processor time and memory of a worker that waits"
JOBS = 1000
SETTLE = 3.0


def run(config: Config) -> list[Row]:
    busy, resident, proportional = Samples(), Samples(), Samples()
    for number in range(config.rounds):
        for system in (systems.huey(), systems.mainspring(), systems.taskito()):
            config.say(f"idle {system.name}, {config.idle_seconds:g} s, round {number + 1}")
            try:
                with config.scratch() as folder:
                    found = measure(system, folder, config.idle_seconds)
                _add(system, number, found, busy, resident, proportional)
            except Failed as error:
                busy.fail(system.name, str(error))
    goals_cpu, goals_rss = {"mainspring, all": 0.5}, {"mainspring worker": 45.0}
    return [
        *[busy.row("idle CPU", name, "%", at_most=goals_cpu.get(name)) for name in busy.systems()],
        *[resident.row("RSS", name, "MB", at_most=goals_rss.get(name)) for name in resident.systems()],
        *proportional.rows("PSS", "MB"),
    ]


def _add(system: System, number: int, found: dict[str, tuple[float, float, float]], *into: Samples) -> None:
    for role, values in found.items():
        name = f"mainspring {role}" if system.mark else system.name
        for samples, value in zip(into, values, strict=True):
            samples.add(name, number, value)
    if system.mark:
        for samples, values in zip(into, zip(*found.values(), strict=True), strict=True):
            samples.add("mainspring, all", number, sum(values))


def measure(system: System, folder: Path, seconds: float) -> dict[str, tuple[float, float, float]]:
    """By role: per cent of one processor, RSS and PSS in MB."""
    fill(system, folder, JOBS)
    with running(system.worker, system.env(folder), folder) as worker:
        store = system.look(folder)
        wait_for(lambda: not store.execute(system.left).fetchone()[0], worker, "the first jobs")
        store.close()
        processes = {"worker": worker.find(system.mark)}
        if system.mark:
            processes["supervisor"] = worker.main
        time.sleep(SETTLE)
        before = {role: cpu(process) for role, process in processes.items()}
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        worker.check()
        return {
            role: ((cpu(process) - before[role]) / took * 100, *_memory(process)) for role, process in processes.items()
        }


def _memory(process: psutil.Process) -> tuple[float, float]:
    full = process.memory_full_info()
    return full.rss / 2**20, getattr(full, "pss", full.uss) / 2**20
