"""The names that SQL and Lua texts are filled with, so that no state, flag or threshold is typed by hand in them.

A text writes ``{READY}`` and :func:`fill` replaces the name when the engine loads the text. A placeholder is a name of
upper-case letters, digits and underscores in braces, without spaces. ``{schema}``, ``{t}``, ``{rows:4}`` and the tables
of Lua are not placeholders. A text value becomes a quoted literal (``'ready'``), a number stays bare (``100``), and a
sequence becomes a list with commas (``in ({LIVE})``). The quotes are those of SQL and are valid in Lua as well.

>>> fill("update jobs set state = {READY} where state = {RUNNING}")
"update jobs set state = 'ready' where state = 'running'"
>>> fill("local HOLDERS = {HOLDERS_SHOWN}; local found = {}")
'local HOLDERS = 10; local found = {}'
>>> fill("where flags & {FLAG_LIMITED} = 0", {"FLAG_LIMITED": 4})
'where flags & 4 = 0'

This table has the names that more than one engine uses. An engine keeps its own names in ``driver/constants.py`` and
passes them as ``extra``. A name in ``extra`` replaces the shared name: Redis stores a state as one byte, so there
``{READY}`` is a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, get_args, get_type_hints

from mainspring.breakers.records import BREAKER_SUFFIX, FOREVER
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import ENDED_JOB, FLOW_KEEP, PRIORITY_STEP, Edge, UniqueKey
from mainspring.limits.records import HOLDER_REST, PLENTIFUL, Limit
from mainspring.queues.records import DisabledMode, QueueMode
from mainspring.schedules.records import ALWAYS_DUE
from mainspring.states import FINAL, LIVE, WAITING, Action, Reason, State
from mainspring.stores.base import CHILDREN_AT_ONCE, NUMBERS_KEPT

EDGE_FAIL: Final = "fail"
EDGE_IGNORE: Final = "ignore"
"""Two of the policies of an edge: see :class:`mainspring.jobs.records.Edge`."""

FOLLOWED_SUCCESS, FOLLOWED_OTHER = 1, 2
"""Bits that tell for which ends a job has follow-up jobs: for ``succeeded``, and for ``dead`` or ``cancelled``."""

ENDED_JOB_TEXT, ENDED_JOB_HEX = str(ENDED_JOB), ENDED_JOB.hex
"""In a follow-up job of a follow-up job, the id of the job that it follows, until that job is inserted."""

KEPT_BYTES = 9
"""The first bytes of the id of such a job that stay when its id is mixed with the id of the inserted job: the
milliseconds, the version and the variant of the UUID."""

MIXED_BYTES = 5
"""The bytes behind them: the first bytes of a hash of both ids. PostgreSQL and SQLite use SHA-256, Redis SHA-1."""

RATE_PIECES = 1000
"""A rate joins starts that are less than this part of its window apart: ``per / RATE_PIECES`` microseconds."""

HOLDERS_SHOWN = 10
"""``BucketRow.holders`` names at most this many jobs."""

HOLDERS_SEARCHED = 10_000
"""An engine looks at this many of the oldest running jobs, at most, to fill ``BucketRow.holders``."""

ATTEMPTS_KEPT = 100
"""The newest attempts of a job that are never pruned while the job exists."""

LINES_KEPT = 1_000
"""The newest log lines of a job that are kept."""

HIGHEST_PRIORITY = 100
LOWEST_PRIORITY = -100

SECOND = 1_000_000
"""Microseconds."""

DAY = 86_400 * SECOND
"""Microseconds."""

SEQ_BEHIND = SECOND
"""An engine moves the last ``seq`` to the time of the store when it is this far behind: an order key is exact to a
second, and most calls need no write for it."""

CLOCK_NOTED = 5 * SECOND
"""A promotion notes the time of the store this often, to see later that the clock was set back."""

CLOCK_SET_BACK = SECOND
"""A clock that is further behind the noted time was set back."""

NANOSECONDS = 1_000
"""In a microsecond. Smooth rates are counted in nanoseconds."""


def _members(prefix: str, kind: type[StrEnum]) -> dict[str, object]:
    return {f"{prefix}{member.name}": member.value for member in kind}


def _choices(prefix: str, record: type, field: str) -> dict[str, object]:
    """The values of a field of type ``Literal``."""
    return {f"{prefix}{value.upper()}": value for value in get_args(get_type_hints(record)[field])}


def _sorted(states: Iterable[State]) -> tuple[str, ...]:
    """In the order of their definition, so that a text is the same in every process."""
    return tuple(state.value for state in State if state in states)


CONSTANTS: Mapping[str, object] = {
    # A state, a reason and an outcome of one name have one value too: SUCCEEDED, CANCELLED, CRASHED, FAILED, ...
    **_members("", State),
    **_members("", Reason),
    **_members("", Outcome),
    "LIVE": _sorted(LIVE),
    "WAITING": _sorted(WAITING),
    "FINAL": _sorted(FINAL),
    **_members("ACTION_", Action),
    **_members("QUEUE_", QueueMode),
    **_members("DISABLED_", DisabledMode),
    **_choices("LIMIT_", Limit, "kind"),
    **_choices("KEY_", UniqueKey, "mode"),
    **_choices("CONFLICT_", UniqueKey, "conflict"),
    "FULL_ERROR": "error",
    "FULL_WAIT": "wait",
    "FULL_DROP_OLDEST": "drop_oldest",
    "ORDER_FIFO": "fifo",
    "ORDER_LIFO": "lifo",
    **_choices("EDGE_", Edge, "policy"),
    "FLOW_KEEP": FLOW_KEEP,
    "CHILDREN_AT_ONCE": CHILDREN_AT_ONCE,
    "FOLLOWED_SUCCESS": FOLLOWED_SUCCESS,
    "FOLLOWED_OTHER": FOLLOWED_OTHER,
    "ENDED_JOB_TEXT": ENDED_JOB_TEXT,
    "ENDED_JOB_HEX": ENDED_JOB_HEX,
    "KEPT_BYTES": KEPT_BYTES,
    "MIXED_BYTES": MIXED_BYTES,
    "BREAKER_SUFFIX": BREAKER_SUFFIX,
    "FOREVER": FOREVER,
    "PLENTIFUL": PLENTIFUL,
    "HOLDER_REST": HOLDER_REST,
    "NUMBERS_KEPT": NUMBERS_KEPT,
    "RATE_PIECES": RATE_PIECES,
    "HOLDERS_SHOWN": HOLDERS_SHOWN,
    "HOLDERS_SEARCHED": HOLDERS_SEARCHED,
    "ATTEMPTS_KEPT": ATTEMPTS_KEPT,
    "LINES_KEPT": LINES_KEPT,
    "HIGHEST_PRIORITY": HIGHEST_PRIORITY,
    "LOWEST_PRIORITY": LOWEST_PRIORITY,
    "SECOND": SECOND,
    "DAY": DAY,
    "PRIORITY_STEP": PRIORITY_STEP,
    "SEQ_BEHIND": SEQ_BEHIND,
    "ALWAYS_DUE": ALWAYS_DUE,
    "CLOCK_NOTED": CLOCK_NOTED,
    "CLOCK_SET_BACK": CLOCK_SET_BACK,
    "NANOSECONDS": NANOSECONDS,
}

_PLACEHOLDER = re.compile(r"\{([A-Z][A-Z0-9_]*)\}")


def fill(text: str, extra: Mapping[str, object] | None = None) -> str:
    """``text`` with every ``{NAME}`` replaced by its literal; ``ValueError`` for a name that no table has."""
    own = extra or {}

    def literal(found: re.Match[str]) -> str:
        name = found[1]
        if name in own:
            return to_literal(own[name])
        if name in CONSTANTS:
            return to_literal(CONSTANTS[name])
        raise ValueError(f"the text names {{{name}}}, which is not in the table of constants")

    return _PLACEHOLDER.sub(literal, text)


def to_literal(value: object) -> str:
    """A value as SQL and Lua write it."""
    if isinstance(value, str):
        if not value.isprintable() or "'" in value or "\\" in value:
            raise ValueError(f"{value!r} cannot be written as a literal that SQL and Lua read alike")
        return f"'{value}'"
    if isinstance(value, (list, tuple)):
        return ", ".join(to_literal(each) for each in value)
    if type(value) in (int, float):
        return str(value)
    raise TypeError(f"a constant is a text, a number or a sequence of them, not {type(value).__name__}")
