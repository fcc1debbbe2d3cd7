"""Short words for the tests of schedules: definitions, rows, runs that ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from itertools import count
from typing import Any

from msgspec.structs import replace

from mainspring.clock import from_datetime
from mainspring.records import NewJob
from mainspring.rules import Cron, Every, Once, window
from mainspring.schedule_rows import Run
from mainspring.scheduling import TEMPLATE, Definition, Open, Plan, Record, Seen, Step, first, record_of, step
from mainspring.states import State

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
T0 = from_datetime(datetime(2030, 1, 1, 12, tzinfo=UTC))
"""When the schedules of these tests are stored."""
JOB = NewJob(id=TEMPLATE.bytes, task="shop.report", queue="q")
NAME = "report"

FAILED = Seen(state=State.DEAD, ended=T0, error="ValueError: no")
DONE = Seen(state=State.SUCCEEDED, ended=T0)
CANCELLED = Seen(state=State.CANCELLED, ended=T0)
RUNS = Seen(state=State.RUNNING, started=T0)
WAITS = Seen(state=State.BLOCKED)


def ids() -> Callable[[], bytes]:
    """New ids, in order, the same in each test."""
    numbers = count(1)
    return lambda: next(numbers).to_bytes(16)


def definition(**options: Any) -> Definition:
    """Each minute, unless another rule or mode is said."""
    every = options.pop("every", None if options.get("mode", "scheduled") != "scheduled" else MINUTE)
    if cron := options.pop("cron", None):
        options["rule"] = window(Cron.of(cron, tz=options.pop("tz", "UTC")))
    elif (at := options.pop("at", None)) is not None:
        options["rule"] = window(Once(at))
    elif every is not None:
        options.setdefault("rule", window(Every(every)))
    return Definition(**{"job": JOB, **options})


def plan(now: int = T0, **options: Any) -> Plan:
    """A row as it is first stored."""
    return first(definition(**options), now)


def opened(plan: Plan, *runs: Open) -> Plan:
    return replace(plan, open=runs)


def run(n: int, at: int = T0, made: int | None = None, what: Any = "fired") -> Open:
    """An open run with the job of this number."""
    return Open(at, b"run%013d" % n, at if made is None else made, what)


def look(plan: Plan, now: int, seen: Seen | str | None = "", **others: Any) -> Step:
    """One look; all open runs are seen in this way, which is running unless said."""
    found = RUNS if isinstance(seen, str) else seen
    return step(NAME, plan, now, dict.fromkeys((each.job for each in plan.open), found), others.get("new_id") or ids())


def told(runs: Iterable[Run]) -> list[tuple[int, Record]]:
    """What the records say, by occurrence."""
    return [(each.at, record_of(each)) for each in sorted(runs, key=lambda each: each.at)]


def words(runs: Iterable[Run]) -> list[str]:
    return [record.what for _, record in told(runs)]


def ended(plan: Plan, *ends: Seen | None, now: int = T0) -> Plan:
    """The row after so many runs one after the other, each of which ended like this."""
    for n, end in enumerate(ends):
        plan = step(NAME, replace(plan, open=(run(n, now),)), now, {run(n).job: end}, ids()).plan
    return plan
