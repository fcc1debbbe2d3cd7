"""Schedules: a backfill of a time without occurrences, and a put for a time that has passed, say why."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption

START = datetime(2030, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_backfill_of_the_future_is_refused(app: Mainspring, store_url: str) -> None:
    app.schedule("hourly", every="1h")(_work)
    with app.test(url=store_url, start=START) as t:
        app.schedules.declare()
        t.clock.advance("3h")
        with pytest.raises(InvalidOption, match=r"start='2030-01-31 16:00:00\+00:00': is in the future"):
            app.schedules.backfill("hourly", START + 4 * HOUR, START + 5 * HOUR)


def test_a_backfill_before_the_first_occurrence_is_refused(app: Mainspring, store_url: str) -> None:
    app.schedule("hourly", every="1h")(_work)
    with app.test(url=store_url, start=START) as t:
        app.schedules.declare()
        t.clock.advance("3h")
        with pytest.raises(
            InvalidOption, match=r"end=.*is before the first occurrence of the schedule, 2030-01-31 13:00:00\+00:00"
        ):
            app.schedules.backfill("hourly", START - 4 * HOUR, START - HOUR)
        assert len(app.schedules.backfill("hourly", START - 4 * HOUR, START + 2 * HOUR)) == 1
        assert app.schedules.backfill("hourly", START - 4 * HOUR, START + 2 * HOUR) == [], (
            "every occurrence has its job"
        )


def test_another_call_for_a_time_that_has_run_is_refused(app: Mainspring, store_url: str) -> None:
    one, two = app.task(name="one")(_work), app.task(name="two")(_work)
    with app.test(url=store_url, start=START) as t:
        app.schedules.put("once", one, at=START + HOUR)
        app.schedules.put("once", two, at=START + HOUR)
        t.advance("2h")
        with pytest.raises(InvalidOption, match=r"at='2030-01-31 13:00:00\+00:00': is in the past"):
            app.schedules.put("once", one, at=START + HOUR)
        assert app.schedules.put("once", two, at=START + HOUR).next is None, "a repeat changes nothing"


def _work() -> None: ...
