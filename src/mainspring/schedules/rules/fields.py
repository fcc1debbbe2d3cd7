"""The grammar of cron expressions: checks an expression, returns its normal form and the values of each field.

cronsim decides what an expression matches. This module refuses what cronsim would refuse or would read in another way
than users expect, and the error says how to write it.
"""

from __future__ import annotations

import re
from typing import NamedTuple, NoReturn

from mainspring.errors import InvalidOption, did_you_mean
from mainspring.schedules.rules.constants import MACROS
from mainspring.schedules.rules.hashing import hash_into

LONGEST = 300
"""The maximum number of characters of an expression."""
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_TERM = re.compile(r"(?P<low>\*|[0-9A-Z]+)(-(?P<high>[0-9A-Z]+))?(/(?P<step>[0-9]+))?", re.ASCII)
_HASHED = re.compile(r"H(\((?P<low>[0-9A-Z]+)-(?P<high>[0-9A-Z]+)\))?(/(?P<step>[0-9]+))?", re.ASCII)
_NTH = re.compile(r"(?P<day>[0-9A-Z]+)(#(?P<nth>[0-9]+)|L)", re.ASCII)


class CronField(NamedTuple):
    """One field of an expression."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    first: int = 0
    """The number of the first name."""
    hashed: int = 0
    """The highest value of ``H``, if it is not ``high``."""


SECOND, MINUTE, HOUR = CronField("second", 0, 59), CronField("minute", 0, 59), CronField("hour", 0, 23)
DAY = CronField("day of month", 1, 31, hashed=28)  # not 31: H must occur in every month
MONTH = CronField("month", 1, 12, MONTHS, 1)
WEEKDAY = CronField("day of week", 0, 7, DAYS, 0, hashed=6)
FIELDS = (SECOND, MINUTE, HOUR, DAY, MONTH, WEEKDAY)


class FieldProblem(Exception):
    """Why a field is refused, and how to write it."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


def normalise(expression: object, schedule: str | None, name: str = "cron") -> str:
    """Return the normal form: macros and ``H`` resolved, upper case, one space between fields."""
    if not isinstance(expression, str):
        raise InvalidOption(name, expression, "must be text", hint='cron="0 3 * * *" runs at 03:00 every day.')
    try:
        parts = _split(expression.strip())
        fields = FIELDS[6 - len(parts) :]
        return " ".join(_normal_field(*pair, schedule) for pair in zip(fields, parts, strict=True))
    except FieldProblem as error:
        raise InvalidOption(name, expression, str(error), hint=error.hint) from None


def _split(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise FieldProblem(f"is longer than {LONGEST} characters", "Use steps and ranges, or two schedules.")
    if text.startswith("@"):
        text = _macro(text)
    parts = text.upper().split()
    if len(parts) in (5, 6):
        return parts
    if len(parts) == 7:
        raise FieldProblem(
            "has 7 fields: there is no field for years", "Remove the year. To end the schedule, use end=."
        )
    raise FieldProblem(
        f"has {len(parts)} field{'' if len(parts) == 1 else 's'}, not 5 or 6",
        "The fields are: minute hour day-of-month month day-of-week. A sixth field, before them, is the second.",
    )


def _macro(text: str) -> str:
    word, _, rest = text.lower().partition(" ")
    if word in MACROS and not rest:
        return MACROS[word]
    if word == "@every":
        raise FieldProblem("is an interval, not cron", f'Use every="{rest.strip() or "5m"}" instead of cron=.')
    if word == "@reboot":
        raise FieldProblem("is not supported", "To run code when a worker starts, use @app.lifespan.")
    raise FieldProblem(f"is not a known macro{did_you_mean(word, MACROS)}", f"Macros: {', '.join(MACROS)}.")


def _normal_field(field: CronField, text: str, schedule: str | None) -> str:
    if "?" in text:
        raise FieldProblem(f"the {field.name} {text!r}: ? is not supported", "Write * for any value.")
    terms = text.split(",")
    if "*" in terms and len(terms) > 1:
        raise FieldProblem(f"the {field.name} {text!r}: * beside other values means all of them", "Write * alone.")
    return ",".join(_normal_term(field, term, schedule) for term in terms)


def _normal_term(field: CronField, term: str, schedule: str | None) -> str:
    if match := _HASHED.fullmatch(term):
        return _resolve_hash(field, term, match, schedule)
    if field is DAY and term in ("L", "LW"):
        return term
    if field is WEEKDAY and (match := _NTH.fullmatch(term)) and term not in DAYS:
        return _nth(field, term, match)
    _check_unknown(field, term)
    match = _TERM.fullmatch(term)
    if match is None:
        raise FieldProblem(f"the {field.name} {term!r} cannot be read", _example(field))
    _check_term(field, term, match)
    return term


def _check_term(field: CronField, term: str, match: re.Match[str]) -> None:
    step = _step(field, term, match)
    low, high = _ends(field, term, match)
    if low > high:
        raise FieldProblem(
            f"the {field.name} {term!r} begins after its end", f"Write {_wrap_range(field, low, high, step)}."
        )
    if match["high"] and low == high and step:
        raise FieldProblem(
            f"the {field.name} {term!r} is a range of one value", f"Write {low}, or {low}-{field.high}/{step}."
        )
    _check_step(field, term, step, high - low)


def _ends(field: CronField, term: str, match: re.Match[str]) -> tuple[int, int]:
    if match["low"] == "*":
        if match["high"]:
            raise FieldProblem(f"the {field.name} {term!r} cannot be read", _example(field))
        return field.low, field.high
    low = _value(field, match["low"], term)
    if match["high"]:
        return low, _value(field, match["high"], term)
    return low, field.high if match["step"] else low


def _step(field: CronField, term: str, match: re.Match[str]) -> int:
    if not match["step"]:
        return 0
    if not (step := int(match["step"][:9])):
        raise FieldProblem(f"the {field.name} {term!r} has a step of zero", "The smallest step is 1.")
    return step


def _check_step(field: CronField, term: str, step: int, span: int) -> None:
    if step > max(span, 1):
        hint = "A step starts again in each range."
        if field in (SECOND, MINUTE, HOUR) and term.startswith(("*", "H", "0/")):
            hint = f'For an interval over all hours use every="{step}{field.name[0]}" instead of cron=.'
        raise FieldProblem(f"the {field.name} {term!r} has a step that is larger than its range", hint)


def _resolve_hash(field: CronField, term: str, match: re.Match[str], schedule: str | None) -> str:
    if not schedule:
        raise FieldProblem(f"the {field.name} {term!r} needs the name of a schedule, and there is none")
    low, high = field.low, field.hashed or field.high
    if match["low"]:
        low, high = _value(field, match["low"], term), _value(field, match["high"], term)
    if low > high:
        raise FieldProblem(
            f"the {field.name} {term!r} begins after its end", f"Write the smaller value first: H({high}-{low})."
        )
    step = _step(field, term, match)
    _check_step(field, term, step, high - low)
    if not step:
        return str(low + hash_into(schedule, field.name, high - low + 1))
    first = low + hash_into(schedule, field.name, step)
    values = range(first, high + 1, step)
    return ",".join(map(str, values)) if len(values) < 5 else f"{first}-{high}/{step}"


def _nth(field: CronField, term: str, match: re.Match[str]) -> str:
    day = _value(field, match["day"], term)
    if match["nth"] is None:
        return f"{day}L"
    if not 1 <= int(match["nth"][:9]) <= 5:
        raise FieldProblem(
            f"the {field.name} {term!r}: a month has at most five of a weekday", f"Use {term[:4]}1 to {term[:4]}5."
        )
    return term


def _value(field: CronField, text: str, term: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.first
    if not text.isdigit():
        _refuse_word(field, text, term)
    if not field.low <= (value := int(text[:9])) <= field.high:
        hint = "Midnight is hour 0." if field is HOUR and value == 24 else ""
        raise FieldProblem(f"the {field.name} {term!r} must be from {field.low} to {field.high}", hint)
    return value


def _check_unknown(field: CronField, term: str) -> None:
    """Refuse syntax of other cron programs."""
    if field is DAY and re.fullmatch(r"\d+W|L-\d+|W", term, re.ASCII):
        hint = "Use L for the last day of the month, or LW for its last day from Monday to Friday."
        raise FieldProblem(f"the {field.name} {term!r} is not supported", hint)
    if field is WEEKDAY and term == "L":
        raise FieldProblem(f"the {field.name} 'L' has no weekday", "For example, 6L is the last Saturday of the month.")
    if not term:
        raise FieldProblem(f"the {field.name} has a comma without a value", _example(field))


def _refuse_word(field: CronField, text: str, term: str) -> NoReturn:
    if field.names:
        near = [name for name in field.names if text.startswith(name)]
        guess = f"; did you mean {near[0]!r}?" if near else did_you_mean(text, field.names)
        raise FieldProblem(f"the {field.name} {term!r} cannot be read{guess}", f"Names: {', '.join(field.names)}.")
    raise FieldProblem(f"the {field.name} {term!r} cannot be read", _example(field))


def _wrap_range(field: CronField, low: int, high: int, step: int) -> str:
    """Return the correct form of a range such as 22-2: 22-23,0-2."""
    if field is WEEKDAY:
        high, end = high % 7, 6
    else:
        end = field.high
    if step:
        size = end - field.low + 1
        return ",".join(str((low - field.low + n) % size + field.low) for n in range(0, size - low + high + 1, step))
    ends = ((low, end), (field.low, high))
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ends)


def _example(field: CronField) -> str:
    low, high = field.low, field.low + 4
    more = {DAY: ", L, LW", WEEKDAY: ", MON#1, 5L"}.get(field, "")
    return f"A {field.name} is *, {low}, {low}-{high}, {low},{high}, */2 or H{more}."


def field_values(field: CronField, text: str) -> frozenset[int] | None:
    """Return the values of a field in normal form; None if it names days by ``L`` or ``#``."""
    found: set[int] = set()
    for term in text.split(","):
        match = _TERM.fullmatch(term)
        if match is None or term in ("L", "LW") or (field is WEEKDAY and term[-1] == "L"):
            return None
        low, high = _ends(field, term, match)
        found.update(range(low, high + 1, int(match["step"] or 1)))
    return frozenset(value % 7 for value in found) if field is WEEKDAY else frozenset(found)
