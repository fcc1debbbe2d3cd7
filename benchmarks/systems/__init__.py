"""The systems that are compared: how each is filled and started, and how its own store shows what is done.

One module for each engine has the table of its systems by name. A system is made when it is measured: a peer that
cannot be had here fails then, and only its own row.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from pathlib import Path

from benchmarks.frame import Engine, Failed, split_tree
from benchmarks.places import Place

PROGRAMS = "benchmarks.programs."


@dataclasses.dataclass(frozen=True)
class Questions:
    """What the store is asked, in its own language; an answer is one number."""

    left: str
    """Not 0 while a job is not done."""
    waiting: str
    """How many jobs are not done."""
    begun: str = ""
    """Not 0 once a job is done; where ``waiting`` is cheap it is asked instead."""
    count: str = ""
    """How many jobs succeeded; not asked where the store forgets them."""


@dataclasses.dataclass(frozen=True)
class System:
    """One way to run no-op jobs."""

    program: str
    """Module under ``benchmarks.programs`` that declares its tasks."""
    worker: tuple[str, ...]
    asked: Questions
    task: str = "noop"
    durability: str = "full"
    interpreter: str = sys.executable
    producer: tuple[str, ...] = ()
    """A producer that is not Python; takes the same arguments."""
    prepare: tuple[str, ...] = ()
    """A command that makes its tables, where neither producer nor worker does."""
    mark: str | None = None
    """What the command line of a working process shows, where that is a child and its parent only watches."""
    double: tuple[str, ...] = ()
    """Arguments that make two processes; without them the worker is started twice."""
    least: int = 200
    """The fewest jobs whose drain can be timed."""
    share: float = 1.0
    """Part of N that it is given: a slow system would take minutes, and a shorter queue is to its favour."""

    def produce(self, task: str, mode: str, count: int, size: int = 1000) -> list[str]:
        """The command of a producer."""
        base = self.producer or (self.interpreter, "-m", PROGRAMS + "produce", self.program)
        return [*base, task, mode, str(count), str(size)]

    def jobs(self, n: int) -> int:
        return max(self.least, int(n * self.share))


def find(engine: Engine, name: str) -> System:
    """The system of that name on that engine; one of another tree is started with other code."""
    made: System = importlib.import_module("benchmarks.systems." + engine).SYSTEMS[split_tree(name)[0]]()
    return made


def has(engine: Engine, name: str) -> bool:
    return split_tree(name)[0] in importlib.import_module("benchmarks.systems." + engine).SYSTEMS


def env(system: System, engine: Engine, place: Place, folder: Path) -> dict[str, str]:
    """What the programs of a system are told."""
    return {
        "BENCH_ENGINE": engine,
        "BENCH_STORE": place.address,
        "BENCH_OUT": str(folder / "out"),
        "BENCH_DURABILITY": system.durability,
        "TASKITO_LOG_LEVEL": "WARNING",  # by default it writes a line for each job
    }


def check(name: str, done: int, n: int) -> None:
    if done != n:
        raise Failed(f"{name}: {done:,} of {n:,} jobs succeeded")
