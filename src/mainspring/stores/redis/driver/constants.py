"""The constants of the Redis engine: the layout of a stored job, and the numbers that Lua scripts and Python share.

:data:`LUA` is the table of the engine's own ``{NAME}`` placeholders. The shared table is in
:mod:`mainspring.stores.shared.constants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct, calcsize
from typing import Final

from mainspring.jobs.outcomes import Outcome
from mainspring.states import State

# ---- states -------------------------------------------------------------------------------------

STATES: Final = (
    State.BLOCKED,
    State.SCHEDULED,
    State.RETRYING,
    State.READY,
    State.RUNNING,
    State.SUCCEEDED,
    State.DEAD,
    State.CANCELLED,
)
"""A state is stored as its position in this tuple, counted from 1. Live states come before final states, and waiting
states come before ``running``: the scripts compare these numbers with ``<`` and ``>``."""
CODES: Final = {state: code for code, state in enumerate(STATES, 1)}

# ---- the layout of a stored job -----------------------------------------------------------------

FIELDS: Final = (
    ("state", "B"),
    ("ends", "B"),
    ("claims", "B"),
    ("rest", "B"),
    ("seq", "d"),
    ("priority", "h"),
    ("attempt", "I"),
    ("started", "d"),
    ("turn", "d"),
    ("ended", "d"),
    ("ran", "d"),
    ("crashes", "I"),
    ("crash_limit", "I"),
    ("epoch", "I"),
    ("deps", "I"),
    ("enqueued", "d"),
    ("due", "d"),
    ("expires", "d"),
    ("record_size", "I"),
    ("more_size", "I"),
    ("token", "d"),
    ("worker_size", "B"),
)
"""The fixed fields of a stored job, in their order, with the letters of :mod:`struct`. ``ends``, ``claims`` and
``rest`` are the flags below."""

FIXED: Final = Struct(">" + "".join(code for _, code in FIELDS))


def _offsets() -> dict[str, int]:
    """``SEQ_AT`` and ``SEQ_END``, ...: the first and the last byte of each fixed field, counted from 1 as in Lua."""
    found, codes = {}, ">"
    for name, code in FIELDS:
        found[f"{name.upper()}_AT"] = calcsize(codes) + 1
        codes += code
        found[f"{name.upper()}_END"] = calcsize(codes)
    return found


OFFSETS: Final = _offsets()

NONE: Final = -(2**62)
"""A moment that is not set."""

LARGE: Final = 1024
"""Bytes. A larger record or result is stored in a hash of its own, so that a script that moves, counts or searches jobs
does not read it."""

FLAG_CHILDREN, FLAG_ORDERED, FLAG_LIMITED, FLAG_FOLLOWED, FLAG_KEEP = 1, 2, 4, 8, 16
"""Bits of ``ends``: what the end of the job has to look at. Children that wait for it, a cancel order, buckets,
follow-up jobs, a retention of its own or a flow."""

FLAG_EXPIRES, FLAG_PARKED, FLAG_COUNTED = 1, 2, 8
"""Bits of ``claims``, besides ``FLAG_LIMITED``: what a claim of the job has to look at. A moment after which it
expires, a lane for workers that know its task, a place in the depth of its queue."""

FLAG_EARLY, FLAG_RECORD_APART, FLAG_RESULT, FLAG_ERROR, FLAG_RESULT_APART = 1, 2, 4, 8, 16
"""Bits of ``rest``. Early acknowledgement; a record in the hash ``records``; a result; an error; a result in the hash
``results``."""

ID_BYTES: Final = 16
LEASE_BYTES: Final = 24
"""An id and a token of 8 bytes."""
SUCCESS_BYTES: Final = 32
"""A lease, and 8 bytes for the microseconds that the body ran."""
EDGE_BYTES: Final = 17
"""The id of a parent and one byte for the policy of the edge."""

FLOW_MARK: Final = "%"
"""The first character of the mark by which the jobs of a flow are found: the hex id of its root follows."""

# ---- codes in arguments and stored values -------------------------------------------------------

EDGE_CODES: Final = {"fail": 1, "ignore": 2, "skip": 3, "wait": 4, "failed": 5, "dead": 6}
"""The last byte of an edge, and its score among the children of the parent."""
EDGE_CODE_MEMBER: Final = 7
"""The edge from a member to its join."""

JOIN_FIELDS: Final = ("open", "lenient", "total", "succeeded", "dead", "cancelled", "bypassed")
"""The numbers of a join in its rare fields, in this order. The first two are 0 or 1."""

CONFLICT_CODES: Final = {"return": 0, "error": 1, "replace": 2}
MODE_CODES: Final = {"debounce": 1, "throttle": 2, "keep_last": 3}
"""Modes of unique keys in which the newest enqueue replaces the waiting job."""
MODE_KEPT: Final = 4
"""A key of the mode ``once`` with ``keep``: it is held for a time after its job has succeeded."""

REFUSED_DRAINING = "draining"
REFUSED_SETTINGS = "settings"
"""The queue has settings, which the scripts for plain jobs do not read: the batch must go through ``enqueue.lua``."""
REFUSED_DISABLED = "disabled"
REFUSED_FULL = "full"
REFUSED_TAKEN = "taken"
REFUSED_CONFLICT = "conflict"
REFUSED_NO_PARENT = "no_parent"
REFUSED_CLOSED = "closed"
"""The first word of a reply that refuses a whole batch."""

# ---- numbers ------------------------------------------------------------------------------------

SEQ_SPAN: Final = 2**53
"""``seq`` of a ``lifo`` job is ``SEQ_SPAN - seq``. Order keys are exact up to here, which is in the year 2112."""
SEQ_FIRST: Final = SEQ_SPAN // 2
"""The ``seq`` of the time 0: those of ``fifo`` jobs grow from here, those of ``lifo`` jobs fall from here. So all are
positive, and the bytes of two of them compare as the numbers do."""
FAIR_PLACE: Final = 0
"""The place of a lane set of fair keys in its root, before all jobs: a claim looks inside to find the first job."""
EXACT: Final = 2**53
"""Numbers of Lua are doubles: a larger whole number would be rounded. As a moment it is in the year 2255."""
EPOCHS: Final = 2**16
"""The epoch of a job is the last two bytes of the ids of its follow-up jobs."""

_NUMBERS: Mapping[str, int] = {
    "SEQ_SPAN": SEQ_SPAN,
    "SEQ_FIRST": SEQ_FIRST,
    "FAIR_PLACE": FAIR_PLACE,
    "EPOCHS": EPOCHS,
    # Arguments of one command. The stack of Lua is small.
    "ARGUMENTS": 1000,
    # A turn ends when it has met this many useless entries and lanes without capacity, or has claimed this many bytes.
    "CLAIM_LOOKED": 1000,
    "CLAIM_BYTES": 1024 * 1024,
    # Entries of a line that a claim reads at once: where jobs of another line may come first, and where they cannot.
    "CLAIM_PORTION": 200,
    "CLAIM_ALL": 500,
    # Entries that are read at once from the front of a line to remove stale entries.
    "GAP_ENTRIES": 500,
    # Overdue jobs that return to their line in one turn, after the clock went back.
    "OVERDUE_RETURNED": 100,
    # Waiting lanes of one lane set that are opened at once when a bucket has capacity again.
    "LANES_OPENED": 100,
    # Buckets of a changed limit that one script rechecks.
    "BUCKETS_RECHECKED": 500,
    # Starts of a rate that are read at once, at most.
    "STARTS_READ": 64,
    # Milliseconds for which a listener counts after its last call of listen.lua.
    "LISTENER_TTL": 60_000,
    # Tokens in the wake list of one queue, at most.
    "WAKE_TOKENS": 1000,
    # A query by state reads these sets whole when they have no more than this many jobs.
    "QUERY_FEW": 2000,
    # Jobs that a query reads at once.
    "QUERY_READ": 200,
    # Jobs that one call of find.lua looks at.
    "FIND_LOOKED": 1000,
    "MILLISECOND": 1000,
    # guilt_of() in _moves.lua: a job that crashed before, and a job that dies at its next crash.
    "GUILT_CRASHED": 1,
    "GUILT_SUSPECT": 2,
    # How a parent ended, for the policies of its edges.
    "ENDED_WELL": 1,
    "ENDED_BADLY": 2,
    "ENDED_DEAD": 3,
}


def _format() -> str:
    """All of a stored job up to its lane, as Lua's ``struct`` reads it: the name of the worker, the group, the lane."""
    return f"{FIXED.format.replace('I', 'I4')}c0Hc0Hc0"


LUA: Mapping[str, object] = {
    **{state.name: code for state, code in CODES.items()},
    **OFFSETS,
    **_NUMBERS,
    "JOB_FORMAT": _format(),
    "NONE": NONE,
    "LARGE": LARGE,
    "FLAG_CHILDREN": FLAG_CHILDREN,
    "FLAG_ORDERED": FLAG_ORDERED,
    "FLAG_LIMITED": FLAG_LIMITED,
    "FLAG_FOLLOWED": FLAG_FOLLOWED,
    "FLAG_KEEP": FLAG_KEEP,
    "FLAG_EXPIRES": FLAG_EXPIRES,
    "FLAG_PARKED": FLAG_PARKED,
    "FLAG_COUNTED": FLAG_COUNTED,
    "FLAG_EARLY": FLAG_EARLY,
    "FLAG_RECORD_APART": FLAG_RECORD_APART,
    "FLAG_RESULT": FLAG_RESULT,
    "FLAG_ERROR": FLAG_ERROR,
    "FLAG_RESULT_APART": FLAG_RESULT_APART,
    "ID_BYTES": ID_BYTES,
    "LEASE_BYTES": LEASE_BYTES,
    "SUCCESS_BYTES": SUCCESS_BYTES,
    "EDGE_BYTES": EDGE_BYTES,
    "FLOW_MARK": FLOW_MARK,
    "NAMES_AT": FIXED.size + 1,  # the group begins here plus the length of the worker's name
    # {SUCCEEDED} is the code of the state; the outcome of an attempt is stored as text.
    "OUTCOME_SUCCEEDED": Outcome.SUCCEEDED.value,
    "OUTCOME_CRASHED": Outcome.CRASHED.value,
    **{f"EDGE_CODE_{name.upper()}": code for name, code in EDGE_CODES.items()},
    "EDGE_CODE_MEMBER": EDGE_CODE_MEMBER,
    **{f"JOIN_{name.upper()}": place for place, name in enumerate(JOIN_FIELDS, 1)},
    **{f"CONFLICT_{name.upper()}": code for name, code in CONFLICT_CODES.items()},
    **{f"KEY_{name.upper()}": code for name, code in MODE_CODES.items()},
    "KEY_KEPT": MODE_KEPT,
    "REFUSED_DRAINING": REFUSED_DRAINING,
    "REFUSED_SETTINGS": REFUSED_SETTINGS,
    "REFUSED_DISABLED": REFUSED_DISABLED,
    "REFUSED_FULL": REFUSED_FULL,
    "REFUSED_TAKEN": REFUSED_TAKEN,
    "REFUSED_CONFLICT": REFUSED_CONFLICT,
    "REFUSED_NO_PARENT": REFUSED_NO_PARENT,
    "REFUSED_CLOSED": REFUSED_CLOSED,
}
