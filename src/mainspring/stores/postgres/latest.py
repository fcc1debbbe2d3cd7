"""Keys with a mode, as an enqueue writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from mainspring.jobs.records import NewJob, UniqueKey

MOST = 2**61
"""Microseconds; a longer time is as good as for ever, and a moment and this can be added."""


def modes_json(jobs: Sequence[NewJob]) -> str | None:
    """By the place of a job in its batch, from 1, what its key asks for; None if no key has a mode."""
    found = {
        str(at): _asked(job.unique)
        for at, job in enumerate(jobs, start=1)
        if job.unique is not None and (job.unique.mode != "once" or job.unique.keep)
    }
    return msgspec.json.encode(found).decode() if found else None


def _asked(unique: UniqueKey) -> dict[str, Any]:
    if unique.mode == "once":
        return {"mode": "keep", "keep": min(unique.keep, MOST), "print": unique.print.hex() or None}
    return {"mode": unique.mode, "window": min(unique.window, MOST), "max_wait": min(unique.max_wait, MOST)}
