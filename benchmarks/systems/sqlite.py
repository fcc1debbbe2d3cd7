"""On SQLite. huey: four threads, minimal log, its default durability (SQLite's: a sync for each commit).
taskito: polling each millisecond, eight workers, batches of a hundred."""

from __future__ import annotations

import sys
from functools import partial

from benchmarks import peers
from benchmarks.systems import PROGRAMS, Questions, System
from benchmarks.systems.ours import mainspring
from benchmarks.systems.sql import questions

_OURS = questions("mainspring_jobs", "mainspring_finished where state = 'succeeded'")


def floor(durability: str = "full") -> System:
    return System(
        program="floor_sqlite",
        worker=(sys.executable, "-m", PROGRAMS + "floor_sqlite"),
        least=20_000,
        durability=durability,
        asked=questions("job", begun="select not exists (select 1 from job where id = 1)"),
    )


def huey() -> System:
    return System(
        program="huey_app",
        worker=(peers.script("huey_consumer"), PROGRAMS + "huey_app.app", "-w", "4", "-q"),
        interpreter=peers.python(),
        asked=questions("task", begun="select not exists (select 1 from task where id = 1)"),
    )


def taskito() -> System:
    return System(
        program="taskito_app",
        worker=(peers.script("taskito"), "worker", "--app", PROGRAMS + "taskito_app:app"),
        interpreter=peers.python(),
        least=1000,
        share=0.1,
        asked=Questions(
            left="select exists (select 1 from jobs where status in (0, 1))",
            waiting="select count(*) from jobs where status in (0, 1)",
            begun="select exists (select 1 from jobs where status = 2) or exists (select 1 from archived_jobs)",
            count="select (select count(*) from jobs where status = 2) + (select count(*) from archived_jobs)",
        ),
    )


SYSTEMS = {
    "floor": floor,
    "floor normal": partial(floor, "normal"),
    "huey": huey,
    "mainspring async": partial(mainspring, _OURS),
    "mainspring thread": partial(mainspring, _OURS, "thread"),
    "mainspring async normal": partial(mainspring, _OURS, durability="normal"),
    "taskito": taskito,
}
