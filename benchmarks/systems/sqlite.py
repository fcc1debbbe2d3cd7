"""On SQLite. huey: four threads, minimal log, its default durability (SQLite's: a sync for each commit)."""

from __future__ import annotations

from functools import partial

from benchmarks import peers
from benchmarks.systems import PROGRAMS, Questions, System
from benchmarks.systems.ours import mainspring
from benchmarks.systems.sql import floor, questions
from benchmarks.systems.taskito import taskito

_OURS = questions("mainspring_jobs", "mainspring_finished where state = 'succeeded'")
_TASKITO = Questions(
    left="select exists (select 1 from jobs where status in (0, 1))",
    waiting="select count(*) from jobs where status in (0, 1)",
    begun="select exists (select 1 from jobs where status = 2) or exists (select 1 from archived_jobs)",
    count="select (select count(*) from jobs where status = 2) + (select count(*) from archived_jobs)",
)


def huey() -> System:
    return System(
        program="huey_app",
        worker=(peers.script("huey_consumer"), PROGRAMS + "huey_app.app", "-w", "4", "-q"),
        interpreter=peers.python(),
        asked=questions("task", begun="select not exists (select 1 from task where id = 1)"),
    )


SYSTEMS = {
    "floor": partial(floor, "sqlite"),
    "floor normal": partial(floor, "sqlite", "normal"),
    "huey": huey,
    "mainspring async": partial(mainspring, _OURS),
    "mainspring thread": partial(mainspring, _OURS, "thread"),
    "mainspring async normal": partial(mainspring, _OURS, durability="normal"),
    "taskito": partial(taskito, _TASKITO),
}
