"""Call the hooks of breakers and schedules in the process that changed them, which may run no worker."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from mainspring.client import blocking
from mainspring.common.callables import is_async
from mainspring.common.clock import SystemClock
from mainspring.tasks.events import BreakerEvent, ScheduleEvent, breaker_event, schedule_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mainspring.breakers.records import BreakerRow
    from mainspring.schedules.plan import ScheduleNews
    from mainspring.tasks.hooks import Hook, Hooks

log = logging.getLogger("mainspring.hooks")


def announce(hooks: Hooks, row: BreakerRow, now: int | None = None) -> None:
    """Call the hooks of a changed breaker in the background; the caller does not wait for them."""
    _spread(hooks, breaker_event(row, SystemClock().now_us() if now is None else now))


def announce_schedule(hooks: Hooks, schedule: str, news: ScheduleNews, now: int) -> None:
    """Call the hooks of a changed schedule in the background; the caller does not wait for them."""
    _spread(hooks, schedule_event(schedule, news, now))


def _spread(hooks: Hooks, event: BreakerEvent | ScheduleEvent) -> None:
    wanted = hooks.of(event.name, "")
    if wanted:
        blocking.spawn(tell(wanted, event))


async def tell(hooks: Sequence[Hook], event: BreakerEvent | ScheduleEvent) -> None:
    """Call these hooks, one after the other; their exceptions are logged."""
    for hook in hooks:
        try:
            if is_async(hook.fn):
                await hook.fn(event)
            else:
                await asyncio.to_thread(hook.fn, event)
        except Exception:
            name = getattr(hook.fn, "__qualname__", repr(hook.fn))
            what = event.breaker if isinstance(event, BreakerEvent) else event.schedule
            log.exception("hook %s failed on %r of %s", name, event.name, what)
