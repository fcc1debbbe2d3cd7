"""What is common to the stores that speak SQL: the floor, and questions to them."""

from __future__ import annotations

import sys

from benchmarks.frame import Engine
from benchmarks.systems import PROGRAMS, Questions, System


def questions(undone: str, done: str = "", *, begun: str = "") -> Questions:
    """``undone`` and ``done`` are tables with their conditions, such as ``job where state < 2``."""
    return Questions(
        left=f"select exists (select 1 from {undone})",  # noqa: S608
        waiting=f"select count(*) from {undone}",  # noqa: S608
        begun=begun or f"select exists (select 1 from {done})",  # noqa: S608
        count=f"select count(*) from {done}" if done else "",  # noqa: S608
    )


def floor(engine: Engine, durability: str = "full") -> System:
    """What the engine itself can do."""
    program = f"floor_{engine}"
    return System(
        program=program,
        worker=(sys.executable, "-m", PROGRAMS + program),
        least=20_000,
        durability=durability,
        asked=questions("job", begun="select not exists (select 1 from job where id = 1)"),
    )
