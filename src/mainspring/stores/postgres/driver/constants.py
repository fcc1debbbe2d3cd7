"""The names that only the SQL texts of PostgreSQL use; names shared with other engines are in
``stores/shared/constants``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mainspring.stores.shared import constants as shared

# ---- SQLSTATEs of our own functions -------------------------------------------------------------------

ERROR_REFUSED: Final = "MS001"
"""A call that the contract refuses; the message says why."""

ERROR_KEY_TAKEN: Final = "MS002"
"""Another job holds the unique key. Message: the id of that job. Detail: the task of the job that wanted the key."""

ERROR_DRAINING: Final = "MS003"
"""The queue takes no new jobs. Message: the name of the queue."""

ERROR_DISABLED: Final = "MS004"
"""The queue rejects new jobs. Message: the name of the queue. Detail: who disabled it."""

ERROR_QUEUE_FULL: Final = "MS005"
"""No more jobs may wait in the queue. Message: the name of the queue. Detail: the numbers, as JSON."""

ERROR_KEY_CONFLICT: Final = "MS006"
"""The key is held by a job with other arguments. Message: the ids of the holder and of the refused job. Detail: the
task."""

ERROR_FLOW_CLOSED: Final = "MS007"
"""The flow takes no further jobs. Message: the id of the job that was to wait for them."""

# ---- numbers that the columns can hold ----------------------------------------------------------------

UNLIMITED: Final = 2**62
"""The available capacity of a bucket that holds nothing back. A duration above this is cut, so that it can be added
to a time."""

CLOSED_HEADROOM: Final = UNLIMITED // 2
"""A closed breaker has more headroom than this, and an open or half open breaker has less."""

LOWEST_INTEGER: Final = -(2**31)
HIGHEST_INTEGER: Final = 2**31 - 1
"""The bounds of a priority as the column can hold it."""

ID_BYTES: Final = 16
"""Length of a job id and of the hash of a unique key."""

DAY_SECONDS: Final = 86_400

# ---- marks of their own -------------------------------------------------------------------------------

KEY_KEEP: Final = "keep"
"""Mode of a unique key that is held after its job succeeded too."""

RESERVED_PLACE: Final = "next"
"""Id in ``holders`` of the next place of a bucket, reserved for holders."""

RESTED_BUCKET: Final = "rest"
"""Id in ``holders`` of a bucket in which no place is reserved for a while, because a holder has just released one."""

FOLLOWED_ANY: Final = shared.FOLLOWED_SUCCESS | shared.FOLLOWED_OTHER
"""The bits of the column ``followed`` for follow-up jobs."""

IS_JOIN: Final = 4
"""A bit of the column ``followed``, beside ``FOLLOWED_SUCCESS`` and ``FOLLOWED_OTHER``: the job is a join."""

EDGE_MEMBER: Final = "member"
"""Policy of the edge from a member to its join: the join counts the end."""

EDGE_HOLD: Final = "hold"
"""Policy of the edge from a job to itself: a join that is open, or a job whose other edges are being written."""

EDGE_STAYS: Final = "stays"
"""Effect of the end of a parent on an edge that is not resolved by it."""

FIRST_DEATH, UNHELD = "first_death", "unheld"
"""In place of the end of a parent: the first member of this join is dead; the edge ``hold`` of this job is resolved."""

RELEASE_CHILDREN, CANCEL_FLOW, DELETE_FLOW = "release", "cancel", "delete"
"""What promotions still have to do for a flow."""

NEAR_END: Final = 8
"""A join that waits for at most this many jobs more than end now is expected to end, and its children are locked with
it: other transactions may end the others before this one has the lock."""

GUILT_NONE, GUILT_CRASHED, GUILT_SUSPECT = 0, 1, 2
"""The groups that a crash is charged to: see ``mainspring.jobs.lanes.guilt``."""

# ---- locks --------------------------------------------------------------------------------------------

LOCK_WAIT: Final = "100ms"
"""How long a transaction waits for a lock behind which others would queue up."""

SHARERS: Final = 16
"""Turns that share the lock of an unkeyed bucket at the same time. A power of two."""

SHARED_PART: Final = 4
"""Turns share the lock while all of them together claim at most one in this many places of the bucket."""

PLENTIFUL_PART: Final = 2
"""A bucket is plentiful while one in this many of its places is left; see also ``PLENTIFUL``."""

# ---- how much one statement looks at ------------------------------------------------------------------

NEW_BUCKETS: Final = 64
"""Rows of buckets that a claim inserts in one step."""

RECHECKED_LANES: Final = 1_000
"""Lanes of a set that are rechecked at most when a bucket has capacity again."""

RECHECK_SLICE: Final = 1_000
"""Lanes that one step of a recheck looks at, after a limit was changed."""

EXAMINED_ROWS: Final = 128
"""Rows of keyed lanes that a claim examines before it leaves the rest to the next turn."""

FEW_BUCKETS: Final = 8
ACKS_PER_BUCKET: Final = 8
"""With at most ``FEW_BUCKETS`` buckets, and this many acks for each, a turn locks all buckets of its worker unread."""

WALKED_PAGE: Final = 20
"""Index entries that the read of one index page is counted as."""

LONG_WALK: Final = 2_000
WALK_PER_CLAIM: Final = 10
"""A turn reports low-water marks after a walk of ``LONG_WALK`` index entries and this many for each job that it
wants."""

STRAYS_SEARCHED: Final = 100
"""Jobs below one low-water mark that a search looks at."""

ABOVE_ALL_SEQS: Final = 2**63 - 1
"""The end of a range of ``seq`` values that has no bound."""

# ---- retention ----------------------------------------------------------------------------------------

PRUNE_ROUNDS: Final = 10
"""Rounds of one prune call: a round may find only jobs whose pruning is postponed."""

PRUNED_ROWS: Final = 10_000
"""Rows of starts, and of buckets, that one prune call deletes at most."""

SETTLED_LANES: Final = 1_000
"""Rows of keyed lanes that one prune call looks at."""

PRUNED_SCHEDULES: Final = 1_000
"""Rows of deleted schedules that one prune call deletes."""

DAYS_AHEAD: Final = 7
"""Days for which partitions of ``finished`` are made before they are needed."""

MOST_DAYS: Final = 400
"""Partitions that one call makes at most."""

CONSTANTS: Final[Mapping[str, object]] = {
    name: value for name, value in globals().items() if name.isupper() and isinstance(value, (str, int))
}


def fill_constants(text: str) -> str:
    """``text`` with every ``{NAME}`` replaced by its literal; ``ValueError`` for an unknown name."""
    return shared.fill(text, CONSTANTS)
