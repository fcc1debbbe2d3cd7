"""Numbers that look random and are the same on every machine and in every version.

A number is the first 8 bytes of the SHA-256 of its words, joined by NUL, as a big-endian integer, modulo the size.
Stored schedules depend on it: it must never change.
"""

from __future__ import annotations

from hashlib import sha256


def hash_into(schedule: str, field: str, size: int) -> int:
    """Return the value of ``H`` for a schedule: a number from 0 to below ``size``, for one cron field."""
    return _number("H", schedule, field) % size


def jitter_delay(schedule: str, occurrence: int, jitter: int) -> int:
    """Return how long after its moment an occurrence starts: from 0 to below ``jitter``, in microseconds.

    Every scheduler computes the same delay. The occurrence itself does not change: it identifies the run.

    >>> delay_of("report", 1_800_000_000_000_000, 60_000_000)
    27001301
    """
    return _number("jitter", schedule, str(occurrence)) % jitter if jitter > 0 else 0


def _number(*words: str) -> int:
    return int.from_bytes(sha256("\0".join(words).encode()).digest()[:8], "big")
