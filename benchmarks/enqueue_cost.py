"""Processor time of one enqueue, in rounds: this tree, other trees of the project, the floor and huey.

``python -m benchmarks.enqueue_cost --store postgres --tree before=/path/to/other/tree [--floor] [--huey] [--size 500]``

Each system has one process and one store of its own for the whole run, and the systems take turns: N enqueues of one,
then N of the next. So a busy machine changes the figures of a round for all of them. The p10 of the rounds is what an
enqueue costs without its neighbours; rates are worth something on a quiet machine only.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from benchmarks import peers, places
from benchmarks.frame import ENGINES, Engine
from benchmarks.places import Place
from benchmarks.processes import ROOT, environment

WARM_UP = 200
OURS = "mainspring_app"


class Candidate(NamedTuple):
    """A system to measure."""

    name: str
    program: str
    tree: Path = ROOT
    interpreter: str = sys.executable


class Cost(NamedTuple):
    """Microseconds for one job."""

    client: float
    server: float
    elapsed: float


class Producer:
    """The process of one system, which enqueues when it is asked to."""

    def __init__(self, child: subprocess.Popen[str], place: Place) -> None:
        self._child = child
        self._place = place

    def enqueue(self, count: int, size: int) -> Cost:
        """Enqueue ``count`` jobs, ``size`` at a time."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        before = server_time(self._place)
        self._child.stdin.write(f"{count} {size}\n")
        self._child.stdin.flush()
        took = json.loads(self._child.stdout.readline())
        server = server_time(self._place) - before
        return Cost(took["cpu"] / count * 1e6, server / count * 1e6, took["seconds"] / count * 1e6)


def main(argv: Sequence[str]) -> None:
    given = _parser().parse_args(argv)
    candidates = [Candidate("this", OURS)]
    candidates += [Candidate(name, OURS, Path(path)) for name, _, path in (each.partition("=") for each in given.tree)]
    if given.floor:
        candidates.append(Candidate("floor", f"floor_{given.store}"))
    if given.huey:
        candidates.append(Candidate("huey", "huey_app", interpreter=peers.python()))
    costs: dict[str, list[Cost]] = {each.name: [] for each in candidates}
    with ExitStack() as stack:
        found = {
            each.name: stack.enter_context(_producing(each, given.store, given.durability, given.silent))
            for each in candidates
        }
        for producer in found.values():
            producer.enqueue(max(WARM_UP, given.size), given.size)
        for number in range(given.rounds):
            for name in list(found) if number % 2 else reversed(found):
                costs[name].append(found[name].enqueue(given.n, given.size))
    print(f"{given.store}, {given.size} at a time, {given.rounds} rounds of {given.n}; us/job: p10 (median)")
    for name, all_rounds in costs.items():
        columns = zip(*all_rounds, strict=True)
        shown = [f"{title} {_show(values)}" for title, values in zip(Cost._fields, columns, strict=True)]
        print(f"{name:12}", "   ".join(shown))


def server_time(place: Place) -> float:
    """Seconds of processor time of the server's processes, counted by the scheduler and not in ticks."""
    if place.pid() is None:
        return 0.0
    main = psutil.Process(place.pid())
    found = 0
    for process in (main, *main.children(recursive=True)):
        for thread in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
            with suppress(OSError):  # it ended
                found += int(thread.read_text().split()[0])
    return found / 1e9


@contextmanager
def _producing(each: Candidate, engine: Engine, durability: str, silent: bool) -> Iterator[Producer]:
    with tempfile.TemporaryDirectory() as folder, places.fresh(engine, Path(folder)) as place:
        settings = {"BENCH_STORE": place.address, "BENCH_ENGINE": engine, "BENCH_DURABILITY": durability}
        env = environment(settings)
        env["PYTHONPATH"] = env["PYTHONPATH"].replace(str(ROOT), str(each.tree))
        if each.program == OURS:
            prepare = (each.interpreter, "-m", "mainspring", "migrate", "--app", f"benchmarks.programs.{OURS}:app")
            subprocess.run(prepare, env=env, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        command = (each.interpreter, "-c", _SERVE.format(program=each.program, silent=silent and each.program == OURS))
        with subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as child:
            try:
                yield Producer(child, place)
            finally:
                assert child.stdin is not None
                child.stdin.close()


_SERVE = """
import importlib, json, sys, time
app = importlib.import_module("benchmarks.programs.{program}")
if {silent}:
    from mainspring.stores.postgres.driver import wakeups
    wakeups._QUIET = 3600.0
for line in sys.stdin:
    count, size = map(int, line.split())
    began, used = time.perf_counter(), time.process_time()
    if size == 1:
        for n in range(count):
            app.one("noop", n)
    else:
        for start in range(0, count, size):
            app.many("noop", range(start, min(start + size, count)))
    took = {{"seconds": time.perf_counter() - began, "cpu": time.process_time() - used}}
    print(json.dumps(took), flush=True)
"""


def _show(values: Sequence[float]) -> str:
    return f"{sorted(values)[len(values) // 10]:7.1f} ({statistics.median(values):7.1f})"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.enqueue_cost", description=__doc__)
    parser.add_argument("--store", choices=ENGINES, default="postgres")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=PATH", help="another tree of the project")
    parser.add_argument("--floor", action="store_true", help="the bare driver too")
    parser.add_argument("--huey", action="store_true", help="huey too (SQLite, Redis)")
    parser.add_argument("--durability", default="full")
    parser.add_argument(
        "--silent", action="store_true",
        help="PostgreSQL without notifications: a quiet machine sends one in about ten enqueues, a busy one in each",
    )  # fmt: skip
    parser.add_argument("--size", type=int, default=1, help="jobs of one call")
    parser.add_argument("--n", type=int, default=500, help="jobs of one round")
    parser.add_argument("--rounds", type=int, default=20)
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
