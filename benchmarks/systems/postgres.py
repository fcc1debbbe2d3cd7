"""On PostgreSQL. Each peer at its best setting for no-op jobs, a hundred at once, with binary psycopg.

What the store shows done: every peer keeps a finished job in its table with its state.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks import peers
from benchmarks.systems import PROGRAMS, System
from benchmarks.systems.ours import mainspring
from benchmarks.systems.sql import questions

_OURS = questions("mainspring.jobs", "mainspring.finished where state = 'succeeded'")


def floor(durability: str = "full") -> System:
    return System(
        program="floor_postgres",
        worker=(sys.executable, "-m", PROGRAMS + "floor_postgres"),
        least=20_000,
        durability=durability,
        asked=questions("job", begun="select not exists (select 1 from job where id = 1)"),
    )


def peer(name: str, undone: str, done: str, *, share: float = 1.0, environment: str = "python") -> System:
    python = peers.python(environment)
    return System(
        program=f"{name}_app",
        worker=(python, "-m", f"{PROGRAMS}{name}_app"),
        interpreter=python,
        share=share,
        asked=questions(undone, done),
    )


def taskito() -> System:
    return System(
        program="taskito_app",
        worker=(peers.script("taskito"), "worker", "--app", PROGRAMS + "taskito_app:app"),
        interpreter=peers.python(),
        least=1000,
        share=0.1,
        asked=questions("taskito.jobs where status in (0, 1)", "taskito.archived_jobs where status = 2"),
    )


SYSTEMS = {
    "floor": floor,
    "floor normal": partial(floor, "normal"),
    "chancy": partial(
        peer,
        "chancy",
        "chancy_jobs where state not in ('succeeded', 'failed')",
        "chancy_jobs where state = 'succeeded'",
    ),
    "oban": partial(
        peer,
        "oban",
        "oban_jobs where state in ('available', 'executing', 'retryable', 'scheduled')",
        "oban_jobs where state = 'completed'",
        environment="oban",
    ),
    "procrastinate": partial(
        peer,
        "procrastinate",
        "procrastinate_jobs where status in ('todo', 'doing')",
        "procrastinate_jobs where status = 'succeeded'",
        share=0.1,
    ),
    "mainspring async": partial(mainspring, _OURS),
    "mainspring thread": partial(mainspring, _OURS, "thread"),
    "mainspring async normal": partial(mainspring, _OURS, durability="normal"),
    "taskito": taskito,
}
