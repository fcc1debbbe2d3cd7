"""An independent cron: it looks at every minute, and knows time zones only by their offset at each of them.

It shares no code with ``mainspring.schedules.rules`` or cronsim. Moments are whole minutes since 1970,
UTC, ticks are seconds.
"""

from __future__ import annotations

import calendar
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY_ZERO = date(1970, 1, 1)
MONTHS = {name.upper(): number for number, name in enumerate(calendar.month_abbr) if name}
DAYS = dict(zip(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), range(7), strict=True))
RANGES: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, MONTHS),
    (0, 7, DAYS),
)


def minute_of(moment: datetime) -> int:
    return int((moment - EPOCH).total_seconds()) // 60


# ---- what an expression matches --------------------------------------------------------------------


class Matcher:
    """The field sets of an expression."""

    def __init__(self, expression: str) -> None:
        parts = expression.upper().split()
        parts = parts if len(parts) == 6 else ["0", *parts]
        self.fixed = not any(part.startswith("*") for part in parts[:3])
        plain = [self._set(part, *bounds) for part, bounds in zip(parts, RANGES, strict=True)]
        self.seconds, self.minutes, self.hours, self.days, self.months, weekdays = plain
        self.weekdays = {day % 7 for day in weekdays}
        self.last = "L" in parts[3].split(",")
        self.last_working = "LW" in parts[3].split(",")
        terms = parts[5].split(",")
        self.nth = {
            (DAYS[a] if a in DAYS else int(a) % 7, int(b)) for a, _, b in (t.partition("#") for t in terms) if b
        }
        self.last_of = {int(term[:-1]) % 7 for term in terms if term.endswith("L")}
        self.both = parts[3].startswith("*") or parts[5].startswith("*")
        self._known: dict[int, bool] = {}

    @staticmethod
    def _set(text: str, low: int, high: int, names: dict[str, int]) -> set[int]:
        found = set[int]()
        for term in text.split(","):
            if "#" in term or term in ("L", "LW") or (term.endswith("L") and term not in names):
                continue
            body, slash, step = term.partition("/")
            first, dash, last = body.partition("-")
            begin = low if first == "*" else names.get(first, -1) if first in names else int(first)
            end = names[last] if last in names else int(last) if dash else high if slash or first == "*" else begin
            found |= {value for value in range(begin, end + 1) if (value - begin) % int(step or 1) == 0}
        return found

    def on(self, day: int) -> bool:
        """Whether it comes on the day with this number."""
        if day not in self._known:
            self._known[day] = self._on(DAY_ZERO + timedelta(days=day))
        return self._known[day]

    def _on(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        length = calendar.monthrange(day.year, day.month)[1]
        working = max(n for n in range(1, length + 1) if date(day.year, day.month, n).weekday() < 5)
        weekday = (day.weekday() + 1) % 7
        by_day = day.day in self.days or (self.last and day.day == length)
        by_day = by_day or (self.last_working and day.day == working)
        by_weekday = weekday in self.weekdays or (weekday, (day.day - 1) // 7 + 1) in self.nth
        by_weekday = by_weekday or (weekday in self.last_of and day.day + 7 > length)
        return (by_day and by_weekday) if self.both else (by_day or by_weekday)

    def walls(self, begin: int, end: int) -> Iterator[int]:
        """Matching wall minutes in [begin, end), minute after minute; days and hours that do not match are left out."""
        while begin < end:
            if not self.on(begin // 1440):
                begin = (begin // 1440 + 1) * 1440
            elif begin // 60 % 24 not in self.hours:
                begin = (begin // 60 + 1) * 60
            else:
                if begin % 60 in self.minutes:
                    yield begin
                begin += 1


# ---- what a zone does ------------------------------------------------------------------------------


@lru_cache(maxsize=2_000)
def segments(zone: str, begin: int, end: int) -> list[tuple[int, int, int]]:
    """The times of one offset, all in minutes: from, before, and how much wall time is ahead."""
    info = ZoneInfo(zone)

    def ahead(minute: int) -> int:
        offset = (EPOCH + timedelta(minutes=minute)).astimezone(info).utcoffset()
        assert offset is not None
        return int(offset.total_seconds()) // 60

    def changes(low: int, high: int, step: int) -> Iterator[int]:
        """Where it is another than before; first looked for by days, then by hours, then by minutes."""
        for since in range(low, high, step):
            until = min(since + step, high)
            if ahead(since) != ahead(until):
                yield from [until] if step == 1 else changes(since, until, 60 if step > 60 else 1)

    edges = [begin, *changes(begin, end, 1440), end]
    return [(low, high, ahead(low)) for low, high in pairwise(edges)]


def ticks(expression: str, zone: str, begin: int, end: int) -> Iterator[int]:
    """Every occurrence in [begin, end), given in minutes, as seconds since 1970."""
    match = Matcher(expression)
    early = begin - 2880  # so that a fold just before does not matter
    found = _once(match, zone, early, end) if match.fixed else _always(match, zone, early, end)
    return (tick for tick in found if begin * 60 <= tick < end * 60)


def _always(match: Matcher, zone: str, begin: int, end: int) -> Iterator[int]:
    for since, before, ahead in segments(zone, begin, end):
        for wall in match.walls(since + ahead, before + ahead):
            yield from ((wall - ahead) * 60 + second for second in sorted(match.seconds))


def _once(match: Matcher, zone: str, begin: int, end: int) -> Iterator[int]:
    shown: int | None = None  # wall minutes before this one have been shown
    for since, before, ahead in segments(zone, begin, end):
        wall = since + ahead
        shown = wall if shown is None else shown
        late = wall > shown and any(True for _ in match.walls(shown, wall))
        if late:
            yield since * 60
        for minute in match.walls(max(wall, shown), before + ahead):
            seconds = ((minute - ahead) * 60 + second for second in sorted(match.seconds))
            yield from (tick for tick in seconds if not (late and tick == since * 60))
        shown = max(shown, before + ahead)


# ---- expressions -----------------------------------------------------------------------------------


@st.composite
def field(draw: st.DrawFn, low: int, high: int, names: dict[str, int] = {}) -> str:  # noqa: B006 - never changed
    def value(number: int) -> str:
        named = [name for name, known in names.items() if known == number]
        return draw(st.sampled_from([str(number), *named]))

    def term() -> str:
        begin = draw(st.integers(low, high - 1))
        kind = draw(st.sampled_from(["value", "value", "range", "range step", "from step", "star step"]))
        if kind == "value":
            return value(draw(st.integers(low, high)))
        last = draw(st.integers(begin + 1, high))
        step = draw(st.integers(1, {"range step": last, "from step": high}.get(kind, high + low) - begin or 1))
        ends = f"{begin}-{last}" if names else f"{value(begin)}-{value(last)}"
        step = min(step, high - low)
        return {"range": ends, "range step": f"{ends}/{step}", "from step": f"{begin}/{step}"}.get(kind, f"*/{step}")

    if draw(st.integers(0, 3)) == 0:
        return "*"
    return ",".join(term() for _ in range(draw(st.sampled_from([1, 1, 1, 2, 3]))))


def days_of_month() -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), field(1, 31), st.sampled_from(["L", "LW", "15,L", "L,1-7"]))


def days_of_week() -> st.SearchStrategy[str]:
    special = st.sampled_from(["MON#1", "5L", "SUN#5", "3#2,6L", "TUE,FRI#3", "7L", "0#4"])
    return st.one_of(st.just("*"), field(0, 7, DAYS), special)


@st.composite
def expressions(draw: st.DrawFn, *, seconds: bool = True) -> str:
    """Cron expressions of 5 fields, and some of 6."""
    first = [draw(field(0, 59))] if seconds and draw(st.integers(0, 4)) == 0 else []
    return " ".join(
        [
            *first,
            draw(field(0, 59)),
            draw(field(0, 23)),
            draw(days_of_month()),
            draw(field(1, 12, MONTHS)),
            draw(days_of_week()),
        ]
    )
