"""Hooks are told that a breaker has opened, closed, or is tried again: by whoever did it, worker or not."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainspring import sync
from mainspring.clock import SystemClock
from mainspring.colours import is_async
from mainspring.events import BreakerEvent, breaker_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.hooks import Hook, Hooks
    from mainspring.records import BreakerRow

log = logging.getLogger("mainspring.hooks")


def announce(hooks: Hooks, row: BreakerRow, now: int | None = None) -> None:
    """Tell the hooks of a process that runs no worker, from the background; nobody waits for them."""
    event = breaker_event(row, SystemClock().now_us() if now is None else now)
    wanted = hooks.of(event.name, "")
    if wanted:
        sync.spawn(_tell(wanted, event))


async def _tell(hooks: Sequence[Hook], event: BreakerEvent) -> None:
    for hook in hooks:
        try:
            if is_async(hook.fn):
                await hook.fn(event)
            else:
                await asyncio.to_thread(hook.fn, event)
        except Exception:
            name = getattr(hook.fn, "__qualname__", repr(hook.fn))
            log.exception("hook %s failed on %r of breaker %s", name, event.name, event.breaker)
