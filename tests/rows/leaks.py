"""Looks for what an iterator that was given up might leave behind."""

from __future__ import annotations

import asyncio
import gc
from types import AsyncGeneratorType

from mainspring.client import blocking
from tests.rows.crew import until


def nothing_is_left(generator: str) -> None:
    """Until no async generator of that name is alive, and no task stays on the loop of the blocking verbs."""

    def alive() -> list[object]:
        return [
            each
            for each in gc.get_objects()
            if isinstance(each, AsyncGeneratorType) and each.__name__ == generator and each.ag_frame is not None
        ]

    async def others() -> int:
        return len(asyncio.all_tasks() - {asyncio.current_task()})

    if not blocking.in_loop():
        until(lambda: blocking.run("others", others()) == 0, "no task is left")
    until(lambda: not alive(), f"no {generator} is alive")
