"""Tasks of flow control for the load, and how each of their jobs ends, whatever held it back meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

from mainspring import AsyncContext, Concurrency, Key, Mainspring
from mainspring.jobs.call import Call
from mainspring.jobs.outcomes import Outcome
from mainspring.states import Reason, State
from tests.processes import mixed
from tests.processes.mixed import End, Mixed, again, good
from tests.processes.playground import note
from tests.soak.locked import TTL, Locked

DEPTH = 8
"""Most jobs that may wait in the small queues."""
KEEP = 3600.0
"""Seconds for which the key of a request is held."""
AT_ONCE = {"line": 2, "stack": 2}
"""Most jobs of these queues that a worker takes."""
HELD = "held"
"""The queue that is paused and disabled now and then."""
BREAKER = "payments"
LONGEST = "1500ms"
"""For how long it is opened by hand: longer than by itself, so that it never opens for less than it said before."""


async def tenant(ctx: AsyncContext, tenant: str) -> int:
    return await _noted(ctx, 0.05)


async def paid(ctx: AsyncContext, request: int, amount: int) -> int:
    return await _noted(ctx, 0.02)


async def latest(ctx: AsyncContext, page: int, word: int) -> int:
    return await _noted(ctx, 0.1)


async def _noted(ctx: AsyncContext, seconds: float) -> int:
    note("START", ctx)
    await asyncio.sleep(seconds)
    note("END", ctx)
    return ctx.token


_DONE = End(State.SUCCEEDED)
_AGAIN = End(State.SUCCEEDED, attempt=2, outcomes={Outcome.FAILED: (1, 1)})
ENDS = {
    **mixed.ENDS,
    **dict.fromkeys(("tenant", "paid", "debounced", "last", "lined", "stacked", "little", "held", "locked"), _DONE),
    **dict.fromkeys(("guarded", "weighed"), _AGAIN),
    "newest": End(State.SUCCEEDED, also=((State.CANCELLED, Reason.SUPERSEDED),)),
}
RETRIES = {"again": 1, "quitter": 5, "early": 5, "guarded": 1, "weighed": 1}


class Flow:
    """The tasks and queues, declared on ``app``."""

    def __init__(self, app: Mainspring) -> None:
        app.queue("small", max_depth=DEPTH)
        app.queue("newest", max_depth=DEPTH, on_full="drop_oldest")
        app.queue("stack", order="lifo")
        app.queue("fair", fair_by="tenant", fair_weights={"a": 3})
        payments = app.breaker(BREAKER, failures=3, open_for="1s")
        by_share = {"rate": 0.5, "minimum": 4, "over": "5s", "open_for": "500ms", "probes": 2}
        once = Key.arguments("request", keep=KEEP)
        debounce = Key.arguments("page", mode="debounce", window="200ms", max_wait="1s")
        task = app.task
        self.guarded = task(name="guarded", retries=1, backoff="50ms", breaker=payments, limit=Concurrency(4))(again)
        self.weighed = task(name="weighed", retries=1, backoff="50ms", breaker=by_share)(again)  # type: ignore[call-overload]
        self.paid = task(name="paid", retries=0, key=once)(paid)
        self.debounced = task(name="debounced", retries=0, key=debounce)(latest)
        self.last = task(name="last", retries=0, key=Key.arguments("page", mode="keep_last"))(latest)
        self.tenant = task(name="tenant", retries=0, queue="fair", limit=Concurrency(2, by="tenant"))(tenant)
        self.lined = task(name="lined", retries=0, queue="line")(good)
        self.stacked = task(name="stacked", retries=0, queue="stack")(good)
        self.little = task(name="little", retries=0, queue="small")(good)
        self.newest = task(name="newest", retries=0, queue="newest")(good)
        self.held = task(name="held", retries=0, queue=HELD)(good)
        self.locked = task(name="locked", retries=0)(Locked(app))

    def bursts(self, n: int) -> list[list[Call[Any]]]:
        """The batches of burst number ``n``; those of small queues may be refused."""
        return [
            [self.lined.s(0.05).options(priority=(0, 0, 0, 10)[each % 4]) for each in range(12)],
            [self.stacked.s(0.05) for _ in range(6)],
            [self.tenant.s(tenant) for tenant in "aaaaabbc"],
            [self.little.s(0.05) for _ in range(DEPTH - 2)],
            [self.newest.s(0.05) for _ in range(DEPTH - 2)],
            [self.weighed.s() for _ in range(4)] if n % 2 else [self.guarded.s() for _ in range(5)],
            [self.held.s() for _ in range(3)],
            [self.locked.s(name, 0.05 if each or n % 3 else 1.5 * TTL) for name in "ab" for each in range(3)],
            *([task.s(page, n)] for task in (self.debounced, self.last) for page in (1, 2)),
        ]


app = Mainspring()
tasks = Mixed(app), Flow(app)
