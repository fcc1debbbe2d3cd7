"""Flows: chains, chords, an open batch and a graph, and what a chord costs beyond its members as plain jobs.

One worker runs all shapes of a system, one after the other; the producer enqueues each while the worker runs. The clock
runs from the call of the enqueue to the start of the last job. Plain jobs are done when the store shows none of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import psutil

from benchmarks import goals, rounds
from benchmarks.frame import Config, Failed, Row, Samples
from benchmarks.goals import ASYNC
from benchmarks.places import Look, RedisLook
from benchmarks.processes import Running, run_json, running, wait_for
from benchmarks.programs.stamps import read
from benchmarks.rounds import Bench

NAMES = (ASYNC, "celery", "dramatiq flows", "taskito")
CHAIN = 1_000
SMALL, LARGE_OF_PEERS = 10_000, 10_000
CHORDS, OF = (100, 1_000), 100
"""How many chords, and the members of each. Peers run the first number only."""
DAG, DAGS = 1_000, 10
LONGEST = 900.0
REST = 1.0
"""Seconds in which a system ends what it still does for a flow whose last job has begun."""
_MB = 1_000_000


def run(config: Config) -> list[Row]:
    found: dict[str, Samples] = {}
    failures = Samples()
    for number, name, values in rounds.each(config, "flows", rounds.with_trees(config, NAMES), measure, failures):
        for column, value in values.items():
            found.setdefault(column, Samples()).add(name, number, value)
    rows = [row for column, samples in found.items() for row in _rows(config, column, samples)]
    return rows + [row for row in failures.rows("flows", "s") if row.value is None]


def _rows(config: Config, column: str, samples: Samples) -> list[Row]:
    unit = "MB" if "memory" in column else "ms" if column.endswith("ms") else "" if "round trips" in column else "s"
    most = _goals(config).get(column)
    rows = [samples.row(column, name, unit, at_most=most if name == ASYNC else None) for name in samples.systems()]
    if unit != "s" or "beyond" in column:
        return rows
    peers = [name for name in goals.FLOW_PEERS[config.engine] if name in samples.systems()]
    return rows + [samples.ratio(column, name, ASYNC) for name in peers if ASYNC in samples.systems()]


def _goals(config: Config) -> dict[str, float]:
    large = f"chord of {config.members:,}"
    return {
        f"{large}, beyond plain jobs": goals.CHORD_BEYOND[config.engine],
        f"{large}, memory of the worker": goals.CHORD_MEMORY_MB,
        f"enqueue a Dag of {DAG:,}, round trips": goals.DAG_ROUND_TRIPS,
    }


def measure(bench: Bench) -> dict[str, float]:
    ours = bench.name.startswith("mainspring")
    members = bench.config.members if ours else min(bench.config.members, LARGE_OF_PEERS)
    found: dict[str, float] = {}
    if ours:
        found |= _measure_dag(bench)
    with running(bench.system.worker, bench.env, bench.folder) as worker:
        flows = _Flows(bench, worker)
        try:
            flows.plain(100)
            try:
                found[f"chain of {CHAIN:,}"] = flows.shape("chain", CHAIN).seconds
            except Failed as error:
                bench.config.say(f"  chain of {CHAIN:,}: {error}")
            for n in sorted({min(SMALL, members), members}):
                found |= _measure_chord(flows, n)
            for times in CHORDS if ours else CHORDS[:1]:
                found[f"{times:,} chords of {OF:,}"] = flows.shape("chord", OF, times).seconds
            if ours:
                found[f"batch of {bench.config.batch:,}"] = flows.shape("batch", bench.config.batch).seconds
        finally:
            flows.look.close()
    return found


class Took(NamedTuple):
    """Seconds from the call of the enqueue to the last start; of the enqueue; the growth of the worker's memory."""

    seconds: float
    enqueue: float
    memory: float


class _Flows:
    """A worker that runs, and what is enqueued for it."""

    def __init__(self, bench: Bench, worker: Running) -> None:
        self.bench = bench
        self.worker = worker
        self.look: Look = bench.place.look()

    def plain(self, n: int) -> float:
        """Seconds for N plain jobs."""
        asked, before = self.bench.system.asked.waiting, self.look.ask(self.bench.system.asked.waiting)
        began = self._produce("plain", n, 1)["began"] / 1e9
        return self._wait(lambda: self.look.ask(asked) <= before, f"{n:,} plain jobs") - began

    def shape(self, shape: str, n: int, times: int = 1) -> Took:
        """Seconds for a flow, or for several of the same shape."""
        out, before = self.bench.env["BENCH_OUT"], len(read(self.bench.env["BENCH_OUT"]))
        base, most = self._memory(), [0.0]

        def is_done() -> bool:
            most[0] = max(most[0], self._memory())
            return len(read(out)) >= before + times

        told = self._produce(shape, n, times)
        self._wait(is_done, f"{shape} of {n:,}")
        last = read(out)[before + times - 1][1]
        time.sleep(REST)
        return Took((last - told["began"]) / 1e9, told["seconds"], most[0] - base)

    def _produce(self, shape: str, n: int, times: int) -> dict[str, float]:
        system = self.bench.system
        command = [system.interpreter, "-m", "benchmarks.programs.flow", system.program, shape, str(n), str(times)]
        told: dict[str, float] = run_json(command, self.bench.env, LONGEST)
        return told

    def _wait(self, condition: Callable[[], bool], what: str) -> float:
        return wait_for(condition, self.worker, what, LONGEST, pause=0.02, rest=5)

    def _memory(self) -> float:
        """Megabytes of the processes that do the work."""
        total = 0.0
        for process in self.worker.find(self.bench.system.mark):
            try:
                total += process.memory_info().rss / _MB
            except psutil.NoSuchProcess as error:
                raise Failed(f"a worker process ended: {error}") from None
        return total


def _measure_chord(flows: _Flows, n: int) -> dict[str, float]:
    plain, took = flows.plain(n), flows.shape("chord", n)
    return {
        f"{n:,} plain jobs": plain,
        f"chord of {n:,}": took.seconds,
        f"chord of {n:,}, beyond plain jobs": took.seconds - plain,
        f"chord of {n:,}, enqueue": took.enqueue,
        f"chord of {n:,}, memory of the worker": took.memory,
    }


def _measure_dag(bench: Bench) -> dict[str, float]:
    """What the enqueue of a graph takes. No worker runs."""
    look = bench.place.look()
    try:
        trips = []
        for times in (1, 1 + DAGS):
            time.sleep(bench.place.counts_late)
            before = _requests(bench, look)
            command = [bench.system.interpreter, "-m", "benchmarks.programs.flow", bench.system.program, "dag"]
            told = run_json([*command, str(DAG), str(times)], bench.env)
            time.sleep(bench.place.counts_late)
            trips.append(_requests(bench, look) - before)
    finally:
        look.close()
    found = {f"enqueue a Dag of {DAG:,}, ms": told["seconds"] / (1 + DAGS) * 1e3}
    if bench.config.engine != "sqlite":
        found[f"enqueue a Dag of {DAG:,}, round trips"] = round((trips[1] - trips[0]) / DAGS, 1)
    return found


def _requests(bench: Bench, look: Look) -> float:
    """Transactions, or scripts, so far. A large request is read in several pieces, so reads are not counted here."""
    if not isinstance(look, RedisLook):
        return bench.place.round_trips(look)
    return float(look.client.info("commandstats").get("cmdstat_evalsha", {}).get("calls", 0))
