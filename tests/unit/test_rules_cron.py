"""What cron expressions may say, what they are stored as, and what is refused with the fix."""

from __future__ import annotations

import contextlib
import zoneinfo
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.common.clock import from_datetime, to_datetime
from mainspring.errors import InvalidOption
from mainspring.schedules import rules
from mainspring.schedules.rules import Cron, make_rule, zones
from mainspring.schedules.rules.constants import MACROS
from tests.unit.cron_reference import ticks

NOON = from_datetime(datetime(2026, 6, 10, 12, tzinfo=UTC))  # a Wednesday


def after_noon(expression: str, **options: Any) -> str:
    moment = make_rule(cron=expression, **options).next(NOON)
    assert moment is not None
    return f"{to_datetime(moment):%Y-%m-%d %H:%M:%S}".removesuffix(":00")


@pytest.mark.row("S1")
@pytest.mark.parametrize(
    ("expression", "first"),
    [
        ("* * * * *", "2026-06-10 12:01"),
        ("*/5 * * * *", "2026-06-10 12:05"),
        ("0 3 * * *", "2026-06-11 03:00"),
        ("30 9 * * MON-FRI", "2026-06-11 09:30"),
        ("30 9 * * sun", "2026-06-14 09:30"),
        ("0 0 * * 7", "2026-06-14 00:00"),
        ("0 0 * * 0", "2026-06-14 00:00"),
        ("0 0 1 * *", "2026-07-01 00:00"),
        ("0 0 1 JAN,jul *", "2026-07-01 00:00"),
        ("0 0 29 2 *", "2028-02-29 00:00"),
        ("0 0 L * *", "2026-06-30 00:00"),
        ("0 0 L 2 *", "2027-02-28 00:00"),
        ("0 0 LW 5 *", "2027-05-31 00:00"),
        ("0 0 * * FRI#2", "2026-06-12 00:00"),
        ("0 0 * * 5L", "2026-06-26 00:00"),
        ("0 0 * * FRIL", "2026-06-26 00:00"),
        ("0 0 13 * FRI", "2026-06-12 00:00"),
        ("0 0 */2 * FRI", "2026-06-19 00:00"),
        ("0 0 * * 5-7", "2026-06-12 00:00"),
        ("10/20 * * * *", "2026-06-10 12:10"),
        ("*/10 * * * * *", "2026-06-10 12:00:10"),
        ("30 0 3 * * *", "2026-06-11 03:00:30"),
        ("  0   3 * *  * ", "2026-06-11 03:00"),
        ("@hourly", "2026-06-10 13:00"),
        ("@daily", "2026-06-11 00:00"),
        ("@midnight", "2026-06-11 00:00"),
        ("@weekly", "2026-06-14 00:00"),
        ("@monthly", "2026-07-01 00:00"),
        ("@yearly", "2027-01-01 00:00"),
        ("@ANNUALLY", "2027-01-01 00:00"),
        (rules.EVERY_SECOND, "2026-06-10 12:00:01"),
        (rules.EVERY_MINUTE, "2026-06-10 12:01"),
        (rules.EVERY_5_MINUTES, "2026-06-10 12:05"),
        (rules.EVERY_10_MINUTES, "2026-06-10 12:10"),
        (rules.EVERY_15_MINUTES, "2026-06-10 12:15"),
        (rules.EVERY_30_MINUTES, "2026-06-10 12:30"),
        (rules.HOURLY, "2026-06-10 13:00"),
        (rules.DAILY, "2026-06-11 00:00"),
        (rules.WEEKDAYS, "2026-06-11 00:00"),
        (rules.WEEKLY, "2026-06-14 00:00"),
        (rules.MONTHLY, "2026-07-01 00:00"),
        (rules.QUARTERLY, "2026-07-01 00:00"),
        (rules.YEARLY, "2027-01-01 00:00"),
    ],
)
def test_common_cron_expressions_are_stored_in_normal_form(expression: str, first: str) -> None:
    assert after_noon(expression) == first


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("", "has 0 fields, not 5 or 6"),
        ("0 3 * *", "has 4 fields, not 5 or 6"),
        ("0 0 3 * * * 2030", "end="),
        ("0 0 ? * MON", "Write * for any value"),
        ("60 * * * *", "the minute '60' must be from 0 to 59"),
        ("0 24 * * *", "Midnight is hour 0"),
        ("0 0 0 * *", "the day of month '0' must be from 1 to 31"),
        ("0 0 * 13 *", "the month '13' must be from 1 to 12"),
        ("0 0 * * 8", "the day of week '8' must be from 0 to 7"),
        ("0 22-2 * * *", "Write 22-23,0-2."),
        ("0 22-4/2 * * *", "Write 22,0,2,4."),
        ("50-10/15 * * * *", "Write 50,5."),
        ("0 0 * NOV-FEB *", "Write 11-12,1-2."),
        ("0 0 * * FRI-SUN", "Write 5-6,0."),
        ("0 0 * * SAT-MON", "Write 6,0-1."),
        ("0 0 28-3 * *", "Write 28-31,1-3."),
        ("0 0 * * FRIDAY", "did you mean 'FRI'?"),
        ("0 0 * JANUARY *", "did you mean 'JAN'?"),
        ("MON * * * *", "the minute 'MON' cannot be read"),
        ("0 0 15W * *", "Use L for the last day of the month, or LW"),
        ("0 0 L-3 * *", "Use L for the last day of the month, or LW"),
        ("0 0 * * L", "6L is the last Saturday"),
        ("0 0 * * MON#6", "at most five"),
        ("0 0 * * 1-5L", "cannot be read"),
        ("*/0 * * * *", "The smallest step is 1"),
        ("*/90 * * * *", 'every="90m"'),
        ("0 */36 * * *", 'every="36h"'),
        ("5-5/10 * * * *", "Write 5, or 5-59/10."),
        ("10-20/30 * * * *", "has a step that is larger than its range"),
        ("*,5 * * * *", "Write * alone"),
        ("1,,2 * * * *", "a comma without a value"),
        ("*-5 * * * *", "cannot be read"),
        ("-5 * * * *", "cannot be read"),
        ("1.5 * * * *", "cannot be read"),
        ("٣ * * * *", "cannot be read"),
        ("0 0 30 2 *", "these months have fewer"),
        ("0 0 31 4,6,9,11 *", "these months have fewer"),
        ("0 0 */30 2 MON#5", "never occurs in UTC"),
        ("@reboot", "@app.lifespan"),
        ("@every 5m", 'Use every="5m"'),
        ("@dialy", "did you mean '@daily'?"),
        ("@daily 5", "is not a known macro"),
        ("H * * * *", "needs the name of a schedule, and there is none"),
        ("1," * 400, "longer than 300 characters"),
        (5, "must be text"),
    ],
)
def test_bad_cron_expressions_are_refused_with_the_fix(expression: Any, said: str) -> None:
    """At declaration, and the error names the option."""
    with pytest.raises(InvalidOption, match=r"^cron=") as caught:
        make_rule(cron=expression)
    assert said in str(caught.value)


def test_a_time_that_daylight_saving_always_skips_is_refused() -> None:
    """Every five minutes between 02:00 and 03:00, on the one night of the year that has no such hour."""
    with pytest.raises(InvalidOption, match="never occurs in America/New_York"):
        make_rule(cron="*/5 2 * 3 SUN#2", tz="America/New_York")
    assert make_rule(cron="5 2 * 3 SUN#2", tz="America/New_York").next(NOON)  # a fixed time comes at 03:00


@settings(deadline=None)
@given(st.text(alphabet="0123456789*/-,LWH#?@() \tMONFRIJAXmé²", max_size=40))
def test_any_other_text_is_refused_as_an_invalid_option(expression: str) -> None:
    """Any text gives a rule or an ``InvalidOption``."""
    with contextlib.suppress(InvalidOption):
        assert make_rule(cron=expression, schedule="x").next(NOON) is not None


def test_a_rule_without_another_occurrence_returns_none() -> None:
    assert Cron("0 0 1 1 *").next(from_datetime(datetime(9999, 6, 1, tzinfo=UTC))) is None
    assert Cron("0 0 1 1 *", "Europe/Kyiv").next(1 << 62) is None
    assert Cron("* * * * * *", "Pacific/Kiritimati").next(-(1 << 62)) == 0


# ---- H ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "stored"),
    [
        ("H * * * *", "55 * * * *"),
        ("H H * * *", "55 20 * * *"),
        ("H H H * *", "55 20 20 * *"),
        ("H H * * H", "55 20 * * 0"),
        ("0 0 1 H *", "0 0 1 8 *"),
        ("H H * * * *", "22 55 * * * *"),
        ("H/15 * * * *", "10,25,40,55 * * * *"),
        ("H/5 * * * *", "0-59/5 * * * *"),
        ("H(0-29) * * * *", "25 * * * *"),
        ("H(0-29)/10 * * * *", "5,15,25 * * * *"),
        ("0 H(9-17)/2 * * *", "0 9-17/2 * * *"),
        ("0 0 * * H(MON-FRI)", "0 0 * * 1"),
        ("h(0-3),30 * * * *", "3,30 * * * *"),
    ],
)
def test_h_is_the_same_for_ever(expression: str, stored: str) -> None:
    """The name of the schedule decides, and the stored rule has no H left. These values must never change."""
    assert make_rule(cron=expression, schedule="report") == Cron(stored)


@pytest.mark.parametrize(
    "expression", ["H(29-0) * * * *", "H(0-60) * * * *", "H/60 * * * *", "H(1) * * * *", "H-5 * * * *"]
)
def test_a_wrong_h_is_refused(expression: str) -> None:
    with pytest.raises(InvalidOption, match="the minute"):
        make_rule(cron=expression, schedule="report")


def test_h_spreads_schedules() -> None:
    """A thousand names at ``H H`` share out hours and minutes."""
    made = [make_rule(cron="H H * * *", schedule=f"job-{n}") for n in range(1_000)]
    at = Counter(each.expression for each in made)  # type: ignore[union-attr]
    assert at.most_common(1)[0][1] < 8
    assert len({each.split()[0] for each in at}) == 60
    assert len({each.split()[1] for each in at}) == 24


@settings(deadline=None)
@given(st.text(min_size=1, max_size=20, alphabet=st.characters(codec="utf-8")), st.integers(2, 29))
def test_h_keeps_its_step(name: str, step: int) -> None:
    """``H/n`` is n apart and begins within the first n."""
    made = make_rule(cron=f"H/{step} 3 * * *", schedule=name)
    assert isinstance(made, Cron)
    minutes = [tick // 60 % 60 for tick in ticks(made.expression, "Etc/UTC", 0, 1440)]
    assert minutes == list(range(minutes[0], 60, step))
    assert minutes[0] < step


# ---- zones -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zone", "said"),
    [
        ("Europe/Kiyv", "did you mean 'Europe/Kyiv'?"),
        ("europe/kyiv", "did you mean 'Europe/Kyiv'?"),
        ("Kyiv", "did you mean 'Europe/Kyiv'?"),
        ("Europe", "is not a known time zone"),
        ("PST", "Use a name of the time zone database"),
        ("UTC+2", "Etc/GMT-2"),
        ("+02:00", "Etc/GMT-2"),
        ("localtime", "a different zone on each machine"),
        ("right/UTC", "is not a known time zone"),
        ("../../etc/passwd", "is not a known time zone"),
        ("Europe/Kyiv\0", "is not a known time zone"),
        ("", "must be the name of a time zone"),
        (7, "must be the name of a time zone"),
        (timezone(timedelta(hours=2)), "is not a named time zone"),
    ],
)
def test_an_unknown_zone_is_refused(zone: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=r"^tz=") as caught:
        make_rule(cron="@daily", tz=zone)
    assert said in str(caught.value)


def test_a_zone_can_be_given_as_an_object() -> None:
    assert make_rule(cron="@daily", tz=zoneinfo.ZoneInfo("Europe/Kyiv")) == Cron("0 0 * * *", "Europe/Kyiv")
    assert make_rule(cron="@daily", tz=UTC) == make_rule(cron="@daily") == Cron("0 0 * * *", "UTC")


def test_without_a_time_zone_database_only_utc_works(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other zones raise an error that names the package to install."""
    before = zoneinfo.TZPATH
    zones._load.cache_clear()
    zoneinfo.reset_tzpath(to=())
    zoneinfo.ZoneInfo.clear_cache()
    monkeypatch.setattr("importlib.resources.open_binary", _missing, raising=False)
    try:
        assert make_rule(cron="@daily").next(NOON)
        with pytest.raises(InvalidOption, match="pip install tzdata"):
            make_rule(cron="@daily", tz="Europe/Kyiv")
    finally:
        zoneinfo.reset_tzpath(to=before)


def _missing(*_: object) -> None:
    raise ModuleNotFoundError


def test_every_macro_equals_its_constant() -> None:
    assert {name: make_rule(cron=name) for name in MACROS} == {
        name: make_rule(cron=text) for name, text in MACROS.items()
    }
