"""Bulk tasks for the process tests. Each item notes its START and END as the jobs of the playground do."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence

from mainspring import AsyncContext, Context, Mainspring
from tests.processes.playground import is_first, note
from tests.timing import milliseconds


def poisoned(ctx: Context, items: Sequence[str]) -> list[int]:
    """Kills its process if one of the items says so; returns how many shared the call."""
    for each in ctx.jobs:
        note("START", each)
    if "poison" in items:
        os.kill(os.getpid(), signal.SIGKILL)
    for each in ctx.jobs:
        note("END", each)
    return [len(items) for _ in items]


async def awaited(ctx: AsyncContext, items: Sequence[str]) -> list[int]:
    """The first call, by the path that is its item, waits to be killed."""
    for each in ctx.jobs:
        note("START", each)
    if is_first(items[0]):
        await asyncio.sleep(600)
    for each in ctx.jobs:
        note("END", each)
    return [len(items) for _ in items]


def stuck(ctx: Context, items: Sequence[str]) -> list[str]:
    """The first call never ends, whatever is raised in it; the second does."""
    for each in ctx.jobs:
        note("START", each)
    first = is_first(items[0])
    while first:
        try:
            time.sleep(600)
        except BaseException:  # noqa: BLE001 - it will not be talked to
            continue
    return ["second" for _ in items]


class Bulking:
    """The tasks, declared on ``app``."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.poisoned = app.bulk_task(name="bulk.poisoned", size=20, wait="200ms", crashes=2, retries=0)(poisoned)
        self.awaited = app.bulk_task(name="bulk.awaited", size=20, wait="200ms", retries=0)(awaited)
        limit = milliseconds(0.5)  # the second attempt must end within it
        self.stuck = app.bulk_task(name="bulk.stuck", size=5, wait="200ms", retries=1, timeout=limit, backoff="100ms")(
            stuck
        )


app = Mainspring()
tasks = Bulking(app)
