"""Rules in words: what a sentence says is exactly what the rule does."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings

from mainspring.common.clock import from_datetime
from mainspring.errors import InvalidOption
from mainspring.schedules.rules import Cron, Every, Once, describe, make_rule, make_window
from tests.unit.cron_reference import Matcher, expressions

NOON = from_datetime(datetime(2030, 1, 1, 12, tzinfo=UTC))


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("* * * * *", "every minute"),
        ("* * * * * *", "every second"),
        ("*/10 * * * * *", "every 10 seconds"),
        ("15 * * * * *", "every minute at second 15"),
        ("*/5 * * * *", "every 5 minutes"),
        ("0-59/5 * * * *", "every 5 minutes"),
        ("0 * * * *", "every hour at minute 0"),
        ("5,35 * * * *", "every hour at minutes 5 and 35"),
        ("0 */2 * * *", "every 2 hours (Europe/Kyiv)"),
        ("0 3 * * *", "at 03:00 every day (Europe/Kyiv)"),
        ("30 0 3 * * *", "at 03:00:30 every day (Europe/Kyiv)"),
        ("30 9,17 * * MON-FRI", "at 09:30 and 17:30 on weekdays (Europe/Kyiv)"),
        ("30 9 * * SAT,SUN", "at 09:30 on weekends (Europe/Kyiv)"),
        ("0 0 * * 0", "at 00:00 on Sunday (Europe/Kyiv)"),
        ("0 0 * * 5-7,1", "at 00:00 on Monday, Friday, Saturday and Sunday (Europe/Kyiv)"),
        ("*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45 on weekdays (Europe/Kyiv)"),
        ("30 9-17 * * *", "every hour from 09:30 to 17:30 (Europe/Kyiv)"),
        ("*/5 * * * MON", "every 5 minutes on Monday (Europe/Kyiv)"),
        ("0 0 1 * *", "at 00:00 on day 1 of the month (Europe/Kyiv)"),
        ("0 0 1,15 1,7 *", "at 00:00 on days 1 and 15 of January and July (Europe/Kyiv)"),
        ("0 0 L * *", "at 00:00 on the last day of the month (Europe/Kyiv)"),
        ("0 0 LW 3 *", "at 00:00 on the last weekday of March (Europe/Kyiv)"),
        ("0 0 * * MON#1", "at 00:00 on the first Monday of the month (Europe/Kyiv)"),
        ("0 0 * 6 5L", "at 00:00 on the last Friday of June (Europe/Kyiv)"),
        ("0 0 * 6 *", "at 00:00 every day in June (Europe/Kyiv)"),
        ("0 0 1-31 * MON", "at 00:00 every day (Europe/Kyiv)"),
        ("0 0 13 * FRI", "cron 0 0 13 * FRI (Europe/Kyiv)"),
        ("*/7 3-5 * * *", "cron */7 3-5 * * * (Europe/Kyiv)"),
        ("0 0 */2 * MON", "cron 0 0 */2 * MON (Europe/Kyiv)"),
    ],
)
def test_cron_in_words(expression: str, words: str) -> None:
    assert describe(make_rule(cron=expression, tz="Europe/Kyiv")) == words


def test_other_rules_in_words() -> None:
    assert describe(Every.of("5m")) == "every 5 minutes"
    assert describe(Every.of("1h")) == "every hour"
    assert describe(Every.of("7d")) == "every week"
    assert describe(Every.of("14d")) == "every 2 weeks"
    assert describe(Every.of("90s")) == "every 90 seconds"
    assert describe(Every.of("1.5s")) == "every 1.5s"
    assert describe(Every.of("90.5s")) == "every 1m30.5s"
    assert describe(Every.of("250ms")) == "every 250ms"
    assert describe(Once(NOON)) == "once at 2030-01-01 12:00:00 UTC"
    assert describe(Once.after("10m")) == "once, 10m after it is stored"
    both = make_window(make_rule(cron="@daily"), NOON, NOON + 10**12)
    assert describe(both) == "at 00:00 every day (UTC) from 2030-01-01 12:00:00 UTC until 2030-01-13 01:46:40 UTC"


# ---- the sentence read back ------------------------------------------------------------------------

MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
WEEKDAYS = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]
SOME_YEARS = range(20_000, 21_000)
EVERY = [(h, m, s) for h in range(24) for m in range(60) for s in range(60)]
NTH = {"first": "#1", "second": "#2", "third": "#3", "fourth": "#4", "fifth": "#5", "last": "L"}


def items(words: str) -> list[str]:
    return re.split(r", | and ", words)


def read_days(words: str) -> str:
    """``day month weekday`` of the text after the time."""
    if match := re.search(r"(?: in| of) ((?:[A-Z][a-z]+(?:, | and )?)+)$", words):
        words, months = words[: match.start()], ",".join(str(MONTHS.index(each) + 1) for each in items(match[1]))
    else:
        words, months = words.removesuffix(" of the month"), "*"
    if words in ("", "every day"):
        return f"* {months} *"
    if match := re.fullmatch(r"on the last (day|weekday)", words):
        return f"{'L' if match[1] == 'day' else 'LW'} {months} *"
    if match := re.fullmatch(r"on days? (.+)", words):
        return f"{','.join(items(match[1]))} {months} *"
    if match := re.fullmatch(r"on the (\w+) (\w+)", words):
        return f"* {months} {WEEKDAYS.index(match[2])}{NTH[match[1]]}"
    named = {"weekdays": "1-5", "weekends": "0,6"}
    words = words.removeprefix("on ")
    return f"* {months} {named.get(words) or ','.join(str(WEEKDAYS.index(each)) for each in items(words))}"


def read(words: str) -> tuple[set[tuple[int, int, int]], str]:
    """The times of a day and the days, as a reader understands the sentence."""
    words = re.sub(r" \([\w/]+\)$", "", words)
    clock = r"\d\d:\d\d(?::\d\d)?"
    if match := re.match(rf"at ((?:{clock}(?:, | and )?)+)", words):
        times = {tuple(int(part) for part in f"{each}:00".split(":")[:3]) for each in items(match[1])}
        return times, read_days(words[match.end() :].strip())  # type: ignore[return-value]
    match = re.match(r"every (?:(\d+) )?(second|minute|hour)s?(?: at (?:second|minute)s? ([\d, and]*\d))?", words)
    assert match, words
    step, unit, at = int(match[1] or 1), match[2], [int(each) for each in items(match[3])] if match[3] else [0]
    rest = words[match.end() :]
    low, high = (0, 0), (23, 59)
    if span := re.match(r" from (\d\d):(\d\d) to (\d\d):(\d\d)", rest):
        low, high, rest = (int(span[1]), int(span[2])), (int(span[3]), int(span[4])), rest[span.end() :]
        at = [low[1]]
    if unit == "second":
        found = {time for time in EVERY if time[2] % step == 0}
    elif unit == "minute":
        found = {time for time in EVERY if (time[2] in at) and (time[1] % step == 0)}
    else:
        found = {time for time in EVERY if time[2] == 0 and time[1] in at and time[0] % step == 0}
    return {time for time in found if low <= time[:2] <= high}, read_days(rest.strip())


@settings(deadline=None, max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(expressions())
def test_a_sentence_means_what_the_expression_means(expression: str) -> None:
    """Each sentence is parsed back to the same times and days."""
    try:
        words = describe(Cron.of(expression))
    except InvalidOption:
        return
    if words.startswith("cron "):
        assert words == f"cron {expression} (UTC)"
        return
    match = Matcher(expression)
    times, days = read(words)
    assert times == {(h, m, s) for h in match.hours for m in match.minutes for s in match.seconds}, words
    meant = Matcher(f"0 0 {days}")
    assert [day for day in SOME_YEARS if match.on(day)] == [d for d in SOME_YEARS if meant.on(d)], words


def test_most_ordinary_rules_have_a_sentence() -> None:
    ordinary = [
        "0 3 * * *",
        "*/5 * * * *",
        "0 9 * * MON-FRI",
        "0 0 1 * *",
        "30 6 * * SUN",
        "0 */6 * * *",
        "15 10 L * *",
    ]
    assert not [each for each in ordinary if describe(Cron.of(each)).startswith("cron ")]
