"""On PostgreSQL. Each peer at its best setting for no-op jobs, a hundred at once, with binary psycopg.

What the store shows done: every peer keeps a finished job in its table with its state.
"""

from __future__ import annotations

from functools import partial

from benchmarks import peers
from benchmarks.systems import PROGRAMS, System
from benchmarks.systems.ours import mainspring
from benchmarks.systems.sql import floor, questions
from benchmarks.systems.taskito import taskito

_OURS = questions("mainspring.jobs", "mainspring.finished where state = 'succeeded'")
_TASKITO = questions("taskito.jobs where status in (0, 1)", "taskito.archived_jobs where status = 2")


def peer(name: str, undone: str, done: str, *, share: float = 1.0, environment: str = "python") -> System:
    python = peers.python(environment)
    return System(
        program=f"{name}_app",
        worker=(python, "-m", f"{PROGRAMS}{name}_app"),
        interpreter=python,
        share=share,
        asked=questions(undone, done),
    )


SYSTEMS = {
    "floor": partial(floor, "postgres"),
    "floor normal": partial(floor, "postgres", "normal"),
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
    "taskito": partial(taskito, _TASKITO),
}
