"""What the two changes of clocks do to a rule: by hand, and as the guide's table says."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from itertools import takewhile
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from mainspring.common.clock import from_datetime, to_datetime
from mainspring.schedules.rules import Cron, make_rule

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "time-rules.md"

NEW_YORK, BERLIN, LONDON = "America/New_York", "Europe/Berlin", "Europe/London"
BEIRUT, SAO_PAULO, LORD_HOWE = "Asia/Beirut", "America/Sao_Paulo", "Australia/Lord_Howe"
QUARTERS = "{0}:00 {0}:15 {0}:30 {0}:45"

CASES = [
    # New York, 8 March 2026: 02:00 becomes 03:00
    ("30 2 * * *", NEW_YORK, "2026-03-08", "03:00"),
    ("0 2 * * *", NEW_YORK, "2026-03-08", "03:00"),
    ("59 1 * * *", NEW_YORK, "2026-03-08", "01:59"),
    ("0 3 * * *", NEW_YORK, "2026-03-08", "03:00"),
    ("15,45 2 * * *", NEW_YORK, "2026-03-08", "03:00"),
    ("30 2,3 * * *", NEW_YORK, "2026-03-08", "03:00 03:30"),
    ("0 2,3 * * *", NEW_YORK, "2026-03-08", "03:00"),
    ("0 0-4 * * *", NEW_YORK, "2026-03-08", "00:00 01:00 03:00 04:00"),
    ("*/30 2 * * *", NEW_YORK, "2026-03-08", ""),
    ("*/30 1-3 * * *", NEW_YORK, "2026-03-08", "01:00 01:30 03:00 03:30"),
    ("0 */2 * * *", NEW_YORK, "2026-03-08", "00:00 04:00 06:00 08:00 10:00 12:00 14:00 16:00 18:00 20:00 22:00"),
    ("30 2 8 3 *", NEW_YORK, "2026-03-08", "03:00"),
    ("30 2 * * SUN", NEW_YORK, "2026-03-08", "03:00"),
    ("15 30 2 * * *", NEW_YORK, "2026-03-08", "03:00"),
    ("*/20 30 2 * * *", NEW_YORK, "2026-03-08", ""),
    # New York, 1 November 2026: 02:00 becomes 01:00
    ("30 1 * * *", NEW_YORK, "2026-11-01", "01:30"),
    ("0 1 * * *", NEW_YORK, "2026-11-01", "01:00"),
    ("0 2 * * *", NEW_YORK, "2026-11-01", "02:00"),
    ("0 0-3 * * *", NEW_YORK, "2026-11-01", "00:00 01:00 02:00 03:00"),
    ("*/30 1 * * *", NEW_YORK, "2026-11-01", "01:00 01:30 01:00' 01:30'"),
    ("*/30 0-2 * * *", NEW_YORK, "2026-11-01", "00:00 00:30 01:00 01:30 01:00' 01:30' 02:00 02:30"),
    ("0 30 1 * * *", NEW_YORK, "2026-11-01", "01:30"),
    ("*/30 30 1 * * *", NEW_YORK, "2026-11-01", "01:30 01:30:30 01:30' 01:30:30'"),
    # Berlin, 29 March and 25 October 2026: between 02:00 and 03:00
    ("0 2 * * *", BERLIN, "2026-03-29", "03:00"),
    ("30 2 29 * *", BERLIN, "2026-03-29", "03:00"),
    ("*/15 2,4 * * *", BERLIN, "2026-03-29", QUARTERS.format("04")),
    ("30 2 * * *", BERLIN, "2026-10-25", "02:30"),
    ("15,45 2 * * *", BERLIN, "2026-10-25", "02:15 02:45"),
    ("0 3 * * *", BERLIN, "2026-10-25", "03:00"),
    ("*/15 2 * * *", BERLIN, "2026-10-25", f"{QUARTERS.format('02')} 02:00' 02:15' 02:30' 02:45'"),
    # London, 29 March and 25 October 2026: between 01:00 and 02:00
    ("30 1 * * *", LONDON, "2026-03-29", "02:00"),
    ("*/30 0-2 * * *", LONDON, "2026-03-29", "00:00 00:30 02:00 02:30"),
    ("15,45 1 * * *", LONDON, "2026-10-25", "01:15 01:45"),
    ("*/30 1 * * *", LONDON, "2026-10-25", "01:00 01:30 01:00' 01:30'"),
    # Beirut, 29 March 2026: midnight becomes 01:00; 25 October: midnight becomes 23:00 of the day before
    ("0 0 * * *", BEIRUT, "2026-03-29", "01:00"),
    ("0 0 29 * *", BEIRUT, "2026-03-29", "01:00"),
    ("30 0 * * SUN", BEIRUT, "2026-03-29", "01:00"),
    ("*/20 0 * * SUN", BEIRUT, "2026-03-29", ""),
    ("0 */6 * * *", BEIRUT, "2026-03-29", "06:00 12:00 18:00"),
    ("30 23 * * *", BEIRUT, "2026-10-24", "23:30"),
    ("*/30 23 * * *", BEIRUT, "2026-10-24", "23:00 23:30 23:00' 23:30'"),
    ("0 0 * * *", BEIRUT, "2026-10-25", "00:00"),
    # Sao Paulo, 4 November 2018: midnight becomes 01:00; 18 February: midnight becomes 23:00 of the day before
    ("0 0 * * *", SAO_PAULO, "2018-11-04", "01:00"),
    ("30 0 4 11 *", SAO_PAULO, "2018-11-04", "01:00"),
    ("*/30 0 * * *", SAO_PAULO, "2018-11-04", ""),
    ("30 23 * * *", SAO_PAULO, "2018-02-17", "23:30"),
    ("*/30 23 * * SAT", SAO_PAULO, "2018-02-17", "23:00 23:30 23:00' 23:30'"),
    ("0 0 * * *", SAO_PAULO, "2018-02-18", "00:00"),
    # Lord Howe, 4 October 2026: 02:00 becomes 02:30; 5 April: 02:00 becomes 01:30
    ("0 2 * * *", LORD_HOWE, "2026-10-04", "02:30"),
    ("15 2 * * *", LORD_HOWE, "2026-10-04", "02:30"),
    ("45 2 * * *", LORD_HOWE, "2026-10-04", "02:45"),
    ("*/15 2 * * *", LORD_HOWE, "2026-10-04", "02:30 02:45"),
    ("*/15 3 * * *", LORD_HOWE, "2026-10-04", QUARTERS.format("03")),
    ("0 * 1-3 10 *", LORD_HOWE, "2026-10-03", " ".join(f"{hour:02}:00" for hour in range(24))),
    ("45 1 * * *", LORD_HOWE, "2026-04-05", "01:45"),
    ("*/15 1 * * *", LORD_HOWE, "2026-04-05", "01:00 01:15 01:30 01:45 01:30' 01:45'"),
    ("*/15 2 * * *", LORD_HOWE, "2026-04-05", QUARTERS.format("02")),
    # Apia had no 30 December 2011
    ("0 9 * * *", "Pacific/Apia", "2011-12-30", ""),
    ("0 9 * * *", "Pacific/Apia", "2011-12-31", "00:00 09:00"),
    ("0 0 * * *", "Pacific/Apia", "2011-12-31", "00:00"),
]


def on_the_day(expression: str, zone: str, day: str) -> list[str]:
    """The occurrences of a local day as wall-clock times; ' marks a time that the clock shows for the second time."""
    start = from_datetime(datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC) - timedelta(days=2))
    walk = Cron.of(expression, tz=zone).walk(start)
    found = takewhile(lambda moment: moment < start + 5 * 86_400_000_000, walk)
    local = [to_datetime(moment).astimezone(ZoneInfo(zone)) for moment in found]
    return [shown(moment) for moment in local if str(moment.date()) == day]


def shown(moment: datetime) -> str:
    return f"{moment:%H:%M:%S}".removesuffix(":00") + "'" * moment.fold


@pytest.mark.row("S4")
@pytest.mark.parametrize(("expression", "zone", "day", "runs"), CASES)
def test_a_change_of_clocks(expression: str, zone: str, day: str, runs: str) -> None:
    """A fixed time comes once a day: right after a gap, and at the first of two equal times. Repeated times come
    whenever the wall clock shows them.
    """
    assert on_the_day(expression, zone, day) == runs.split()


ROWS = re.findall(r"^\| `([^`]+)` \| (\S+/\S+) \| (\d{4}-\d\d-\d\d) \| ([^|]+) \|$", GUIDE.read_text(), re.MULTILINE)


@pytest.mark.row("S4")
@pytest.mark.parametrize(("expression", "zone", "day", "runs"), ROWS)
def test_the_table_of_the_guide_is_true(expression: str, zone: str, day: str, runs: str) -> None:
    wanted = [] if runs == "never" else [each.replace(" again", "'") for each in runs.split(", ")]
    assert on_the_day(expression, zone, day) == wanted


def test_the_guide_has_the_table() -> None:
    """Both changes of clocks in each of the zones."""
    zones = [NEW_YORK, BERLIN, LONDON, BEIRUT, SAO_PAULO, LORD_HOWE]
    assert all(sum(row[1] == zone for row in ROWS) >= 2 for zone in zones)


@pytest.mark.row("S4")
def test_a_rule_started_in_the_second_pass_of_a_fold() -> None:
    """The first pass had the occurrence. cronsim itself would return a moment in the past."""
    nightly = make_rule(cron="30 1 * * *", tz=NEW_YORK)
    second_pass = from_datetime(datetime(2026, 11, 1, 6, 10, tzinfo=UTC))  # 01:10 for the second time
    assert to_datetime(nightly.next(second_pass) or 0) == datetime(2026, 11, 2, 6, 30, tzinfo=UTC)


@pytest.mark.row("S4")
@pytest.mark.parametrize("zone", [NEW_YORK, BERLIN, LONDON, BEIRUT, LORD_HOWE, "Europe/Dublin", "America/Havana"])
@pytest.mark.parametrize("expression", ["0 0 * * *", "30 1 * * *", "15 2 * * *", "59 23 * * *", "0 30 2 * * *"])
def test_a_daily_rule_occurs_once_each_day(expression: str, zone: str) -> None:
    """366 local dates, each once."""
    start = from_datetime(datetime(2026, 1, 1, 12, tzinfo=UTC))
    walk = Cron.of(expression, tz=zone).walk(start)
    days = [to_datetime(next(walk)).astimezone(ZoneInfo(zone)).date() for _ in range(366)]
    assert days == [days[0] + timedelta(days=n) for n in range(366)]
