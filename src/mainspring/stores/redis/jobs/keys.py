"""Unique keys with their modes, as ``lua/_keys.lua`` and ``lua/_keys_latest.lua`` read them."""

from __future__ import annotations

from mainspring.jobs.records import UniqueKey
from mainspring.stores.redis.driver.constants import CONFLICT_CODES, MODE_CODES, MODE_KEPT

_NO_KEY = (0, 0)


def key_codes(unique: UniqueKey | None) -> tuple[int | str | bool, ...]:
    """Conflict and window; of a key with a mode or a ``keep`` also mode, ``max_wait`` or ``keep``, and print."""
    if unique is None:
        return _NO_KEY
    plain = CONFLICT_CODES[unique.conflict], unique.window
    if unique.mode != "once":
        return (*plain, MODE_CODES[unique.mode], unique.max_wait, False)
    if unique.keep:
        return (*plain, MODE_KEPT, unique.keep, unique.print.hex() or False)
    return plain
