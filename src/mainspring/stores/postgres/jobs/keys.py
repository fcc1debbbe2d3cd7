"""Unique keys, as an enqueue sends them. Conflicts are decided in the server: see ``sql/keys.sql``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.jobs.records import NewJob, UniqueKey
from mainspring.stores.postgres.driver.arrays import numbers
from mainspring.stores.postgres.driver.constants import KEY_KEEP
from mainspring.stores.shared.folding import is_latest

LONGEST = 2**61
"""Microseconds. A longer time is cut to this: it can be added to a moment and means "for ever" all the same."""


def key_columns(jobs: Sequence[NewJob]) -> dict[str, Any]:
    """The parameters of an enqueue that describe the keys of these jobs; empty lists if no job has a key."""
    return {
        "key": [job.unique.hash if job.unique else None for job in jobs],
        "window": numbers(job.unique.window if job.unique else None for job in jobs),
        "conflict": [job.unique.conflict if job.unique and not is_latest(job) else None for job in jobs],
        "modes": _modes_json(jobs),
    }


def _modes_json(jobs: Sequence[NewJob]) -> str | None:
    """By the position of a job in its batch, from 1, the mode of its key; None if no key has a mode."""
    found = {
        str(at): _mode(job.unique)
        for at, job in enumerate(jobs, start=1)
        if job.unique is not None and (job.unique.mode != "once" or job.unique.keep)
    }
    return msgspec.json.encode(found).decode() if found else None


def _mode(unique: UniqueKey) -> dict[str, Any]:
    if unique.mode == "once":
        return {"mode": KEY_KEEP, "keep": min(unique.keep, LONGEST), "print": unique.print.hex() or None}
    return {"mode": unique.mode, "window": min(unique.window, LONGEST), "max_wait": min(unique.max_wait, LONGEST)}
