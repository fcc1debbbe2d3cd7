"""The systems that are compared: how each is filled and started, and how its own store shows what is done.

Each at its best setting. huey: four threads, minimal log, its default durability (SQLite's: a sync for
each commit). taskito: polling each millisecond, eight workers, batches of a hundred. Mainspring: all defaults.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import sys
from pathlib import Path

from benchmarks.processes import python


@dataclasses.dataclass(frozen=True)
class System:
    """One way to run no-op jobs."""

    name: str
    program: str
    """Module under ``benchmarks.programs`` that declares its tasks."""
    worker: tuple[str, ...]
    begun: str
    """SQL that says 1 once a job is done."""
    left: str
    """SQL that says 1 while a job is not done."""
    count: str
    """SQL for the number of jobs that are done; empty where the store forgets them."""
    task: str = "noop"
    durability: str = "full"
    mark: str | None = None
    """What the command line of the working process shows, where that is a child."""
    share: float = 1.0
    """Part of N that it is given: a slow system would take minutes; its rate does not grow with N."""

    def env(self, folder: Path) -> dict[str, str]:
        return {
            "BENCH_STORE": str(self.store(folder)),
            "BENCH_OUT": str(folder / "out"),
            "BENCH_DURABILITY": self.durability,
        }

    def store(self, folder: Path) -> Path:
        return folder / "bench.db"

    def look(self, folder: Path) -> sqlite3.Connection:
        """For reading what the store shows; never in the process that writes."""
        return sqlite3.connect(f"file:{self.store(folder)}?mode=ro", uri=True, isolation_level=None, timeout=10)


_PROGRAMS = "benchmarks.programs."
_BIN = Path(sys.executable).parent


def floor(durability: str = "full") -> System:
    return System(
        name="floor" if durability == "full" else f"floor {durability}",
        program="floor",
        worker=tuple(python("-m", _PROGRAMS + "floor")),
        begun="select not exists (select 1 from job where id = 1)",
        left="select exists (select 1 from job)",
        count="",
        durability=durability,
    )


def huey(threads: int = 4) -> System:
    return System(
        name="huey",
        program="huey_app",
        worker=(str(_BIN / "huey_consumer"), _PROGRAMS + "huey_app.app", "-w", str(threads), "-q"),
        begun="select not exists (select 1 from task where id = 1)",
        left="select exists (select 1 from task)",
        count="",
    )


def taskito() -> System:
    return System(
        name="taskito",
        program="taskito_app",
        worker=(str(_BIN / "taskito"), "worker", "--app", _PROGRAMS + "taskito_app:app"),
        begun="select exists (select 1 from jobs where status = 2) or exists (select 1 from archived_jobs)",
        left="select exists (select 1 from jobs where status in (0, 1))",
        count="select (select count(*) from jobs where status = 2) + (select count(*) from archived_jobs)",
        share=0.1,
    )


def mainspring(kind: str = "async", durability: str = "full") -> System:
    return System(
        name=f"mainspring {kind}" if durability == "full" else f"mainspring {kind} {durability}",
        program="mainspring_app",
        worker=tuple(python("-m", "mainspring", "worker", _PROGRAMS + "mainspring_app:app")),
        begun="select exists (select 1 from mainspring_finished)",
        left="select exists (select 1 from mainspring_jobs)",
        count="select count(*) from mainspring_finished where state = 'succeeded'",
        task="noop" if kind == "async" else "noop_thread",
        durability=durability,
        mark="mainspring.boot",
    )
