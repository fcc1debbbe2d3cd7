"""Recovery: seconds from SIGKILL to the second start of every job that was running. A report, held to the promises."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from functools import partial

import psutil

from benchmarks import rounds
from benchmarks.columns.drain import fill
from benchmarks.frame import Config, Row, Samples
from benchmarks.goals import ASYNC
from benchmarks.processes import Running, running, wait_for
from benchmarks.programs.stamps import read
from benchmarks.rounds import Bench

JOBS = 16
SUPERVISED, ALONE = "worker killed", "worker and supervisor killed"
WORKERS = {
    "sqlite": "select count(*) from mainspring_workers",
    "postgres": "select count(*) from mainspring.workers",
    "redis": "return redis.call('scard', '{ms:default}:workers')",
}


def run(config: Config) -> list[Row]:
    samples = Samples()
    for name in (SUPERVISED, ALONE):
        measured = partial(measure, supervised=name == SUPERVISED)
        for number, _, seconds in rounds.each(config, f"recovery, {name},", [ASYNC], measured, samples):
            samples.add(name, number, seconds)
    return [
        samples.row("recovery", SUPERVISED, "s", at_most=3),
        samples.row("recovery", ALONE, "s", at_most=21, note="another worker serves the queue, default lease"),
    ]


def measure(bench: Bench, *, supervised: bool) -> float:
    out = bench.env["BENCH_OUT"]
    fill(bench, JOBS, task="hold")
    with running(bench.system.worker, bench.env, bench.folder) as worker:
        wait_for(lambda: len(read(out)) == JOBS, worker, "the first starts")
        with _witness(bench, needed=not supervised) as other:
            killed = _kill(worker, [*worker.find(bench.system.mark), *([] if supervised else [worker.main])])
            wait_for(lambda: len(read(out)) >= 2 * JOBS, other or worker, "the second starts", 120)
    return (read(out)[2 * JOBS - 1][1] - killed) / 1e9


@contextlib.contextmanager
def _witness(bench: Bench, *, needed: bool) -> Iterator[Running | None]:
    """Another worker on the same store, ready to serve."""
    if not needed:
        yield None
        return
    with running(bench.system.worker, bench.env, bench.folder, "witness") as other:
        look = bench.place.look()
        wait_for(lambda: look.ask(WORKERS[bench.config.engine]) > 1, other, "a witness")
        look.close()
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
