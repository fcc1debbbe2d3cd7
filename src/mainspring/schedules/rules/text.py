"""Describes rules in words. If no exact sentence exists, the description shows the cron expression itself."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from itertools import product

from mainspring.common.clock import to_datetime
from mainspring.common.duration import format_duration
from mainspring.schedules.rules.cron import Cron
from mainspring.schedules.rules.every import Every
from mainspring.schedules.rules.fields import DAY, FIELDS, MONTH, WEEKDAY, field_values
from mainspring.schedules.rules.occurrences import Rule, RuleWindow

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NTH = {"1": "first", "2": "second", "3": "third", "4": "fourth", "5": "fifth", "L": "last"}
_UNITS = ((604_800, "week"), (86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))
_FEW, _SIXTY, _HOURS = 4, range(60), range(24)


def describe(rule: Rule | RuleWindow) -> str:
    """Describe a rule in words.

    >>> text(Cron.of("30 9 * * MON-FRI", tz="Europe/Kyiv"))
    'at 09:30 on weekdays (Europe/Kyiv)'
    >>> text(Every.of("5m"))
    'every 5 minutes'
    """
    if isinstance(rule, RuleWindow):
        start = "" if rule.start is None else f" from {_moment(rule.start)}"
        return describe(rule.rule) + start + ("" if rule.end is None else f" until {_moment(rule.end)}")
    if isinstance(rule, Cron):
        return _sentence(rule) or f"cron {rule.expression} ({rule.tz})"
    if isinstance(rule, Every):
        return _interval(rule.period)
    if rule.moment is None:
        return f"once, {_duration(rule.delay or 0)} after it is stored"
    return f"once at {_moment(rule.moment)}"


def _interval(period: int) -> str:
    for size, unit in _UNITS:
        count, rest = divmod(period, size * 1_000_000)
        if count and not rest:
            return f"every {unit}" if count == 1 else f"every {count} {unit}s"
    return f"every {_duration(period)}"


def _sentence(rule: Cron) -> str | None:
    parts = rule.expression.split()
    pairs = zip(FIELDS, ["0", *parts][-6:-3], strict=False)
    second, minute, hour = (field_values(*pair) or frozenset() for pair in pairs)
    day = _days(*parts[-3:])
    time = _time(second, minute, hour)
    if day is None or time is None:
        return None
    if time.startswith("at ") and not day:
        day = "every day"
    anywhere = len(hour) == 24 and not day
    return " ".join(filter(None, (time, day, "" if anywhere else f"({rule.tz})")))


def _time(second: Collection[int], minute: Collection[int], hour: Collection[int]) -> str | None:
    if len(second) * len(minute) * len(hour) <= _FEW:
        at = product(sorted(hour), sorted(minute), sorted(second))
        return f"at {_list(_clock(h, m, s, seconds=set(second) != {0}) for h, m, s in at)}"
    if set(second) != {0}:
        if len(minute) < 60 or len(hour) < 24:
            return None
        return _repeated(second, "second") or _named(second, "every minute at second")
    if len(hour) == 24:
        return _repeated(minute, "minute") or _named(minute, "every hour at minute")
    if len(minute) == 1 and 0 in minute and (step := _step(hour, _HOURS)):
        return f"every {step} hours"
    return _through_hours(minute, hour)


def _through_hours(minute: Collection[int], hour: Collection[int]) -> str | None:
    first, last = min(hour), max(hour)
    if len(hour) != last - first + 1:
        return None
    every = "every hour" if len(minute) == 1 else _repeated(minute, "minute")
    return every and f"{every} from {_clock(first, min(minute))} to {_clock(last, max(minute))}"


def _repeated(found: Collection[int], unit: str) -> str | None:
    step = _step(found, _SIXTY)
    if step is None:
        return None
    return f"every {unit}" if step == 1 else f"every {step} {unit}s"


def _step(found: Collection[int], whole: range) -> int | None:
    """Return the step of values that are spread evenly over the whole range; None if they are not."""
    if len(found) < 2 or len(whole) % len(found):
        return None
    step = len(whole) // len(found)
    return step if sorted(found) == list(whole[::step]) else None


def _named(found: Collection[int], words: str) -> str | None:
    if len(found) > _FEW:
        return None
    return f"{words}{'' if len(found) == 1 else 's'} {_list(map(str, sorted(found)))}"


def _days(day: str, month: str, weekday: str) -> str | None:
    """Describe the days; "" for every day, None if no exact sentence exists."""
    months = sorted(field_values(MONTH, month) or ())
    if len(months) > 6 and len(months) < 12:
        return None
    some = _list(_MONTHS[number - 1] for number in months) if len(months) < 12 else ""
    days, weekdays = field_values(DAY, day), field_values(WEEKDAY, weekday)
    any_day, any_weekday = days is not None and len(days) == 31, weekdays is not None and len(weekdays) == 7
    either = not (day.startswith("*") or weekday.startswith("*"))  # then cron needs one of the two to match, not both
    if (any_day and any_weekday) or (either and (any_day or any_weekday)):
        return f"every day in {some}" if some else ""
    if any_weekday:
        return _of_month(day, days, some)
    if not any_day:
        return None
    return _of_week(weekday, weekdays, some)


def _of_month(day: str, days: Collection[int] | None, months: str) -> str | None:
    of = f"of {months or 'the month'}"
    if days is None:
        return {"L": f"on the last day {of}", "LW": f"on the last weekday {of}"}.get(day)
    if len(days) > 6:
        return None
    return f"on day{'' if len(days) == 1 else 's'} {_list(map(str, sorted(days)))} {of}"


def _of_week(weekday: str, weekdays: Collection[int] | None, months: str) -> str | None:
    if weekdays is None:
        if "," in weekday:
            return None
        name, _, nth = weekday.partition("#") if "#" in weekday else (weekday[:-1], "", "L")
        found = min(field_values(WEEKDAY, name) or ())
        return f"on the {_NTH[nth]} {_DAYS[found]} of {months or 'the month'}"
    weeks = {frozenset(range(1, 6)): "weekdays", frozenset({0, 6}): "weekends"}
    names = weeks.get(frozenset(weekdays)) or _list(
        _DAYS[day] for day in sorted(weekdays, key=lambda day: (day - 1) % 7)
    )
    return f"on {names}" + (f" in {months}" if months else "")


def _clock(hour: int, minute: int, second: int = 0, *, seconds: bool = False) -> str:
    return f"{hour:02}:{minute:02}" + (f":{second:02}" if seconds else "")


def _list(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _moment(us: int) -> str:
    return to_datetime(us).isoformat(" ").replace("+00:00", " UTC")


def _duration(us: int) -> str:
    return format_duration(timedelta(microseconds=us))
