"""The tasks of the demo. Failures, progress and the kill are real."""

from __future__ import annotations

import asyncio
import random
import time

from mainspring import AsyncContext, Backoff, Context, Mainspring

app = Mainspring()


class CarrierDown(ConnectionError):
    """The error of the flaky task."""


@app.task(queue="images", timeout="30s")
def resize(ctx: Context, name: str, pieces: int) -> str:
    """A sync task in a thread, with progress."""
    for _ in ctx.track(range(pieces), f"resizing {name}"):
        time.sleep(0.12)
    return f"{name}: {pieces} pieces"


@app.task(queue="mail", retries=6, retry_on=ConnectionError, backoff=Backoff.fixed("700ms", jitter="none"))
async def send(ctx: AsyncContext, to: str, failures: int) -> str:
    """An async task that fails a given number of times before it works."""
    await asyncio.sleep(random.uniform(0.1, 0.4))
    if ctx.attempt <= failures:
        raise CarrierDown(f"no route to {to} (attempt {ctx.attempt})")
    return f"{to} after {ctx.attempt} attempts"
