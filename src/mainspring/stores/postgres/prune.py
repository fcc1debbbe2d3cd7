"""Let go of what retention no longer asks for, row by row; whole days go in ``chunks.py``."""

from __future__ import annotations

from typing import LiteralString

import msgspec

from mainspring.jobs.records import Retention
from mainspring.stores.postgres.session import Params
from mainspring.stores.postgres.statements import fill

_CALL = """
select {schema}.prune_v1(
    %(limit)s::integer, %(now)s::bigint, %(keep)s::bigint, %(keep_count)s::integer, %(keep_at_least)s::bigint,
    %(keep_dead)s::bigint, %(keep_dead_count)s::integer, %(keep_workers)s::bigint
)
"""


def prune(retention: Retention, limit: int, schema: str, now: int | None) -> tuple[LiteralString, Params]:
    return fill(_CALL, schema), {**msgspec.structs.asdict(retention), "limit": limit, "now": now}
