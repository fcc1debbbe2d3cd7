"""An app in test mode on the store under test, for rows of schedules: its clock is moved, its jobs are drained."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from mainspring import Mainspring
from mainspring.testing.app import TestApp

MONDAY = datetime(2030, 1, 7, 12, tzinfo=UTC)


@contextmanager
def staged(url: str, start: datetime = MONDAY, **o: Any) -> Iterator[TestApp]:
    """A new app, whose test begins on a Monday at noon."""
    app = Mainspring("sqlite://", **o)
    with app.test(url=url, start=start) as t:
        yield t


def whats(t: TestApp, name: str) -> list[str]:
    """The results of the occurrences of a schedule, the oldest first."""
    return [run.what for run in reversed(t.schedules.history(name))]


def minutes(t: TestApp, name: str) -> list[int]:
    """When its runs were, in minutes since the test began, the oldest first."""
    runs = reversed(t.schedules.history(name, 1_000))
    return [round((run.at - MONDAY).total_seconds() / 60) for run in runs if run.job is not None]
