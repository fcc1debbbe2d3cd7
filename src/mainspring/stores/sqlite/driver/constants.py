"""The numbers and names that only this engine stores; :mod:`.statements` fills them into the SQL texts.

Names that more than one engine uses are in :mod:`mainspring.stores.shared.constants`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args, get_type_hints

from mainspring.jobs.records import Edge
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
FLAG_JOIN = 64
"""The job is a join: it has a row in ``joins``."""

# ---- codes that statements return --------------------------------------------------------------------

HOLDER_ENDED, HOLDER_LIVE, HOLDER_EXPIRED = 0, 1, 2
"""The statement ``key_holder``. ``HOLDER_EXPIRED``: the job waits and is past its ``expires``."""

# ---- stored names ------------------------------------------------------------------------------------

EDGE_MEMBER = "member"
"""The policy of the edge from a member to its join. :meth:`Store.waits_for` shows it as ``fail``."""
FLOW_MARK = "%"
"""The mark of the jobs of a flow is this and the hex id of its root."""
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
    "FLAGS_OF_LIMITS": FLAG_LIMITED | FLAG_UNKEYED_ONLY,
    "FLAG_JOIN": FLAG_JOIN,
    "FLAGS_OF_MORE_WORK": FLAG_CANCEL_ORDERED | FLAG_FOLLOWED_SUCCESS,
    "FLAGS_OF_OTHERS": FLAG_LIMITED | FLAG_HAS_CHILDREN,
    "HOLDER_ENDED": HOLDER_ENDED,
    "HOLDER_LIVE": HOLDER_LIVE,
    "HOLDER_EXPIRED": HOLDER_EXPIRED,
    "EDGE_MEMBER": EDGE_MEMBER,
    "EDGE_POLICIES": (*get_args(get_type_hints(Edge)["policy"]), EDGE_MEMBER),
    "FLOW_MARK": FLOW_MARK,
    "KEY_KEEP": KEY_KEEP,
    "CANCELLED_REASONS": tuple(sorted(REASONS[State.CANCELLED])),
    "DEAD_REASONS": tuple(sorted(REASONS[State.DEAD])),
}
"""``FLAGS_OF_MORE_WORK``: a success with one of these bits is not applied in bulk. ``FLAGS_OF_OTHERS``: the end of a
job with one of these bits may concern other jobs. ``*_REASONS``: the reasons that ``states.py`` allows in a final
state."""

BLOBS: Mapping[str, bytes] = {"RESERVED_HOLDER": RESERVED_HOLDER, "PAUSED_HOLDER": PAUSED_HOLDER}
