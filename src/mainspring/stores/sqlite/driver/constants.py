"""The numbers and names that only this engine stores; :mod:`.statements` fills them into the SQL texts.

Names that more than one engine uses are in :mod:`mainspring.stores.shared.constants`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mainspring.schedules.records import PART
from mainspring.states import REASONS, State

# ---- bits of jobs.flags ------------------------------------------------------------------------------

FLAG_HAS_CHILDREN = 1
"""At least one job names this job as its parent."""
FLAG_CANCEL_ORDERED = 2
"""The job runs and its owner has an order to cancel it."""
FLAG_LIMITED = 4
"""The job names buckets."""
FLAG_FOLLOWED_SUCCESS = 8
"""The job has follow-up jobs for ``succeeded``."""
FLAG_FOLLOWED_OTHER = 16
"""The job has follow-up jobs for ``dead`` or ``cancelled``: the only flag that a plain success may ignore."""
FLAG_UNKEYED_ONLY = 32
"""The job names buckets, and none of them has a key: while the job runs, its own row is its use of them."""
FLAG_DEPENDENCY = 64
"""The job has a dependency mark (``^@name``): jobs of other names may wait for its success."""

# ---- codes that statements return --------------------------------------------------------------------

PARENT_LIVE, PARENT_SUCCEEDED, PARENT_FAILED = 0, 1, 2
"""The statement ``parent_state``. No row means that the parent exists nowhere."""
HOLDER_ENDED, HOLDER_LIVE, HOLDER_EXPIRED = 0, 1, 2
"""The statement ``key_holder``. ``HOLDER_EXPIRED``: the job waits and is past its ``expires``."""

# ---- stored names ------------------------------------------------------------------------------------

KEY_KEEP = "keep"
"""The mode of a unique key that is held for a time after its job succeeded."""
RESERVED_HOLDER = b"next"
"""A row in ``holders`` that is no holder: the next free capacity of the bucket is reserved for holders."""
PAUSED_HOLDER = b"rest"
"""A row in ``holders`` that is no holder: nothing is reserved in the bucket until this row expires."""

FILLED: Mapping[str, object] = {
    "FLAG_HAS_CHILDREN": FLAG_HAS_CHILDREN,
    "FLAG_CANCEL_ORDERED": FLAG_CANCEL_ORDERED,
    "FLAG_LIMITED": FLAG_LIMITED,
    "FLAG_UNKEYED_ONLY": FLAG_UNKEYED_ONLY,
    "FLAG_DEPENDENCY": FLAG_DEPENDENCY,
    "FLAGS_OF_LIMITS": FLAG_LIMITED | FLAG_UNKEYED_ONLY,
    "FLAGS_OF_MORE_WORK": FLAG_HAS_CHILDREN | FLAG_CANCEL_ORDERED | FLAG_FOLLOWED_SUCCESS,
    "PARENT_LIVE": PARENT_LIVE,
    "PARENT_SUCCEEDED": PARENT_SUCCEEDED,
    "PARENT_FAILED": PARENT_FAILED,
    "HOLDER_ENDED": HOLDER_ENDED,
    "HOLDER_LIVE": HOLDER_LIVE,
    "HOLDER_EXPIRED": HOLDER_EXPIRED,
    "KEY_KEEP": KEY_KEEP,
    "PART_END": PART[:-1] + chr(ord(PART[-1]) + 1),
    "CANCELLED_REASONS": tuple(sorted(REASONS[State.CANCELLED])),
    "DEAD_REASONS": tuple(sorted(REASONS[State.DEAD])),
}
"""``FLAGS_OF_MORE_WORK``: a success with one of these bits is not applied in bulk. ``PART_END``: the first text behind
all dependency marks. ``*_REASONS``: the reasons that ``states.py`` allows in a final state."""

BLOBS: Mapping[str, bytes] = {"RESERVED_HOLDER": RESERVED_HOLDER, "PAUSED_HOLDER": PAUSED_HOLDER}
