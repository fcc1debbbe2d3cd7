"""Tasks with follow-ups, for this process and for workers of their own: ``python -m tests.rows.followed``.

The module's own ``app`` takes its URL from the environment, as a worker process does.
"""

from __future__ import annotations

import os
import signal
import sys
from uuid import UUID

from mainspring import Cancel, Context, Discard, Mainspring
from tests.timing import short_settings


class Followed:
    """One task that ends as its argument says, and one follow-up for each kind of end."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app

        @app.task(name="follow.succeeded", queue="follow")
        async def succeeded(job: UUID) -> str:
            return f"succeeded {job}"

        @app.task(name="follow.dead", queue="follow")
        def dead(job: UUID) -> str:
            return f"dead {job}"

        @app.task(name="follow.cancelled", queue="follow")
        def cancelled(job: UUID) -> str:
            return f"cancelled {job}"

        @app.task(
            name="work", queue="work", retries=1, backoff="10ms", crashes=1,
            on_success=succeeded, on_dead=dead, on_cancel="follow.cancelled",
        )  # fmt: skip
        def work(ctx: Context, how: str) -> str:
            match how:
                case "fail":
                    raise ValueError(f"attempt {ctx.attempt}")
                case "fail once" if ctx.attempt == 1:
                    raise ValueError("once")
                case "discard":
                    raise Discard("worthless")
                case "cancel":
                    raise Cancel("not wanted")
                case "crash":
                    os.kill(os.getpid(), signal.SIGKILL)
            return how

        self.work = work


app = Mainspring(**short_settings())
Followed(app)

if __name__ == "__main__":
    sys.exit(app.run())
