"""Schedules for the process tests: ``python -m tests.processes.timetable URL FOLDER`` is one process with a worker.

Each run notes its START and END in a journal outside the store. ``FOLDER/at`` holds the moment at which seven parts are
due, ``FOLDER/skew`` what the clock of this process is ahead by.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from mainspring import AsyncContext, Mainspring
from tests.processes.playground import gate, note
from tests.timing import short_settings

PERIOD = 50_000
"""Microseconds between two occurrences of ``tick``."""
PARTS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7")


def timetable(url: str, folder: Path) -> Mainspring:
    """The app of every process."""
    app = Mainspring(url, **short_settings())

    @app.schedule("tick", every=PERIOD / 1e6, misfire="all", overlap="allow", history=10_000)
    @app.task(name="timetable.tick", queue="ticks")
    async def tick(ctx: AsyncContext) -> None:
        note("START", ctx)
        await asyncio.sleep(0.01)
        note("END", ctx)

    @app.schedule("long", mode="triggered")
    @app.task(name="timetable.long", queue="parts")
    async def long(ctx: AsyncContext) -> str:
        note("START", ctx)
        await gate(str(folder / "go_on"))
        note("END", ctx)
        return "done"

    @app.schedule("once", mode="triggered")
    @app.task(name="timetable.once", queue="parts", ack="early")
    async def once(ctx: AsyncContext) -> None:
        note("START", ctx)
        await gate(str(folder / "go_on"))

    if (folder / "at").exists():
        _parts(app, datetime.fromisoformat((folder / "at").read_text()), folder)
    return app


def _parts(app: Mainspring, at: datetime, folder: Path) -> None:
    """Seven due at once, of which two may run; the third waits for the first, and the fourth blocks the fifth."""
    app.schedules.group("all", max_concurrent=2)
    more: dict[str, Any] = {"p3": {"depends_on": "p1"}, "p4": {"blocks": "p5"}}
    for n, name in enumerate(PARTS):

        @app.schedule(name, at=at, group="all", priority=-n, **more.get(name, {}))
        @app.task(name=f"timetable.{name}", queue="parts", crashes=10)
        async def part(ctx: AsyncContext) -> None:
            note(f"START-{ctx.task.rpartition('.')[2]}", ctx)
            await gate(str(folder / "go_on"))
            await asyncio.sleep(0.15)
            note(f"END-{ctx.task.rpartition('.')[2]}", ctx)


def main(url: str, folder: str) -> None:
    app = timetable(url, Path(folder))
    with app.worker():
        print("up", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
