"""Recovery: seconds from SIGKILL to the second start of every job that was running. A report, held to the promises."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from benchmarks import systems
from benchmarks.columns.drain import fill
from benchmarks.frame import Config, Failed, Row, Samples
from benchmarks.processes import Running, running, wait_for
from benchmarks.programs.stamps import read

NAME = "recovery"
ABOUT = "seconds until the jobs of a killed worker run again"
JOBS = 16
SUPERVISED, ALONE = "worker killed", "worker and supervisor killed"


def run(config: Config) -> list[Row]:
    samples = Samples()
    for number in range(config.rounds):
        for name in (SUPERVISED, ALONE):
            config.say(f"recovery, {name}, round {number + 1}")
            try:
                with config.scratch() as folder:
                    samples.add(name, number, measure(folder, supervised=name == SUPERVISED))
            except Failed as error:
                samples.fail(name, str(error))
    return [
        samples.row("recovery", SUPERVISED, "s", at_most=3),
        samples.row("recovery", ALONE, "s", at_most=21, note="another worker serves the queue, default lease"),
    ]


def measure(folder: Path, *, supervised: bool) -> float:
    system, out = systems.mainspring(), str(folder / "out")
    fill(system, folder, JOBS, task="hold")
    with running(system.worker, system.env(folder), folder) as worker:
        wait_for(lambda: len(read(out)) == JOBS, worker, "the first starts")
        with _witness(folder, needed=not supervised) as other:
            killed = _kill(worker, [worker.find(system.mark), *([] if supervised else [worker.main])])
            wait_for(lambda: len(read(out)) >= 2 * JOBS, other or worker, "the second starts", 120)
    return (read(out)[2 * JOBS - 1][1] - killed) / 1e9


@contextlib.contextmanager
def _witness(folder: Path, *, needed: bool) -> Iterator[Running | None]:
    """Another worker on the same store, ready to serve."""
    if not needed:
        yield None
        return
    system = systems.mainspring()
    with running(system.worker, system.env(folder), folder, "witness") as other:
        store = system.look(folder)
        wait_for(lambda: store.execute("select count(*) from mainspring_workers").fetchone()[0] > 1, other, "a witness")
        store.close()
        yield other


def _kill(worker: Running, processes: list[psutil.Process]) -> int:
    """All at one moment: a supervisor that lives a little longer would still recover."""
    for process in reversed(processes):
        process.send_signal(signal.SIGSTOP)
    killed = time.monotonic_ns()
    for process in reversed(processes):
        process.kill()
    if worker.main in processes:
        worker.child.wait()
    return killed
