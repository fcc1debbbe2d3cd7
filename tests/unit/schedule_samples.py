"""Short words for the tests of schedules: definitions, rows, runs that ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from mainspring.common.clock import from_datetime
from mainspring.jobs.records import NewJob
from mainspring.schedules.plan import (
    TEMPLATE,
    Definition,
    OccurrenceRecord,
    OpenRun,
    SchedulePlan,
    ScheduleStep,
    SeenRun,
    decode_run,
    new_plan,
    step,
)
from mainspring.schedules.records import ScheduleRun
from mainspring.schedules.rules import Cron, Every, Once, make_window
from mainspring.states import State

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
T0 = from_datetime(datetime(2030, 1, 1, 12, tzinfo=UTC))
"""When the schedules of these tests are stored."""
JOB = NewJob(id=TEMPLATE.bytes, task="shop.report", queue="q")
NAME = "report"

FAILED = SeenRun(state=State.DEAD, ended=T0, error="ValueError: no")
DONE = SeenRun(state=State.SUCCEEDED, ended=T0)
CANCELLED = SeenRun(state=State.CANCELLED, ended=T0)
RUNS = SeenRun(state=State.RUNNING, started=T0)
WAITS = SeenRun(state=State.READY, attempt=0)


def ids() -> Callable[[], bytes]:
    """New ids, in order, the same in each test."""
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16)


def definition(**options: Any) -> Definition:
    """Each minute, unless another rule or mode is said."""
    every = options.pop("every", None if options.get("mode", "scheduled") != "scheduled" else MINUTE)
    if cron := options.pop("cron", None):
        options["rule"] = make_window(Cron.of(cron, tz=options.pop("tz", "UTC")))
    elif (at := options.pop("at", None)) is not None:
        options["rule"] = make_window(Once(at))
    elif every is not None:
        options.setdefault("rule", make_window(Every(every)))
    return Definition(**{"job": JOB, **options})


def plan(now: int = T0, **options: Any) -> SchedulePlan:
    """A row as it is first stored."""
    return new_plan(definition(**options), now)


def opened(plan: SchedulePlan, *runs: OpenRun) -> SchedulePlan:
    return replace(plan, open=runs)


def run(n: int, at: int = T0, made: int | None = None, what: Any = "fired") -> OpenRun:
    """An open run with the job of this number."""
    return OpenRun(at, b"run%013d" % n, at if made is None else made, what)


def look(plan: SchedulePlan, now: int, seen: SeenRun | str | None = "", **others: Any) -> ScheduleStep:
    """One look; all open runs are seen in this way, which is running unless said."""
    found = RUNS if isinstance(seen, str) else seen
    return step(NAME, plan, now, dict.fromkeys((each.job for each in plan.open), found), others.get("new_id") or ids())


def told(runs: Iterable[ScheduleRun]) -> list[tuple[int, OccurrenceRecord]]:
    """What the records say, by occurrence."""
    return [(each.at, decode_run(each)) for each in sorted(runs, key=lambda each: each.at)]


def words(runs: Iterable[ScheduleRun]) -> list[str]:
    return [record.what for _, record in told(runs)]


def ended(plan: SchedulePlan, *ends: SeenRun | None, now: int = T0) -> SchedulePlan:
    """The row after this many runs in a row with this end."""
    for n, end in enumerate(ends):
        plan = step(NAME, replace(plan, open=(run(n, now),)), now, {run(n).job: end}, ids()).plan
    return plan
