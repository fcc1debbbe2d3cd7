"""Fires the schedules of a test with the real scheduler, when the test drains."""

from __future__ import annotations

from mainspring.schedules import plan as planning
from mainspring.schedules.plan import ScheduleNews
from mainspring.schedules.service import Scheduler
from mainspring.stores.base import Store
from mainspring.tasks.events import schedule_event
from mainspring.tasks.hooks import Hooks
from mainspring.tasks.notify import tell


class Timekeeper:
    """The scheduler of one drain."""

    def __init__(self, store: Store, hooks: Hooks) -> None:
        self._store = store
        self._hooks = hooks
        self._news: list[tuple[str, ScheduleNews, int]] = []
        self._scheduler = Scheduler(store, on_news=lambda *news: self._news.append(news))

    async def fire(self) -> None:
        """Settle ended runs and make jobs of due occurrences; the hooks have run when this returns."""
        rows = await self._store.schedules()
        if not rows:
            return
        plans = {row.name: planning.decode(row.doc) for row in rows}
        self._scheduler.on_runs_ended(
            name for name, plan in plans.items() if plan.open or plan.definition.mode == "continuous"
        )  # a clock that was set back must not delay these
        while await self._scheduler.tick() == 0:
            pass  # more schedules are due than one read returns
        pending, self._news = self._news, []
        for name, news, now in pending:
            event = schedule_event(name, news, now)
            await tell(self._hooks.of(event.name, ""), event)

    async def next(self) -> int | None:
        """When the next schedule is due or is enabled again, or a waiting occurrence expires."""
        plans = [planning.decode(row.doc) for row in await self._store.schedules()]
        due = [plan.due for plan in plans if plan.enabled and plan.due is not None]
        due += [plan.back_at for plan in plans if plan.back_at is not None]
        due += [expiry for plan in plans if (expiry := planning.expiry_of_waiting(plan)) is not None]
        return min(due, default=None)
