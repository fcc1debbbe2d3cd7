"""What a turn hands out: the lanes that it asks for, the bytes that it may carry, and its claims.

The claim itself runs in the server: see ``sql/claim/``.
"""

from __future__ import annotations

from typing import Any

from mainspring.stores.postgres.driver.arrays import numbers
from mainspring.stores.postgres.driver.database import Database
from mainspring.stores.postgres.driver.session import Rows
from mainspring.stores.postgres.jobs.claim.low_water import LowWaterMarks, Marks
from mainspring.worker.records import Turn

__all__ = ["LowWaterMarks", "Marks", "add_large_records", "claim_params"]

INLINE = 64 * 1024
"""Bytes of records that the reply of a turn itself may carry: a socket takes that much even if no client reads it."""

MAX_BYTES = 1024 * 1024
"""Bytes of records after which a turn hands out no more: a slow connection carries them well within the time of a
call."""

_RECORDS = "select id, record from {schema}.jobs where id = any(%(ids)b::bytea[]) and worker = %(worker)s"

_ID, _RECORD = 1, 13
"""Columns of a row of a turn, which is read by position: this is the hot path."""


def claim_params(turn: Turn) -> dict[str, Any]:
    """The parameters of a turn that say what it wants. A want ahead in the lanes of the want before has no lanes."""
    wants = [
        (number, lane) for number, want in enumerate(turn.wants, start=1)
        if not (number > 1 and want.ahead and want.lanes == turn.wants[number - 2].lanes) for lane in want.lanes
    ]  # fmt: skip
    return {
        "want": numbers([number for number, _ in wants]),
        "lane": [lane for _, lane in wants],
        "n": numbers([want.n if want.lanes else 0 for want in turn.wants]),
        "ahead": [want.ahead for want in turn.wants],
        "inline": INLINE // max(1, sum([want.n for want in turn.wants])),
        "max_bytes": MAX_BYTES,
    }


async def add_large_records(db: Database, worker: str, rows: Rows) -> Rows:
    """The rows of a turn with the records that were too large for its reply.

    A job that was taken away meanwhile is not claimed any more.
    """
    ids = [row[_ID] for row in rows if row[_RECORD] is None and row[0] == "claim"]
    if not ids:
        return rows
    found: dict[bytes, bytes] = dict(await db.rows(_RECORDS, {"ids": ids, "worker": worker}))
    whole = []
    for row in rows:
        if row[0] != "claim" or row[_RECORD] is not None:
            whole.append(row)
        elif row[_ID] in found:
            whole.append((*row[:_RECORD], found[row[_ID]], *row[_RECORD + 1 :]))
    return whole
