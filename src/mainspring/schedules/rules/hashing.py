"""Numbers that look random and are the same on every machine, for ever.

A number is the first 8 bytes of the SHA-256 of its words, joined by NUL, as a big-endian integer, modulo what is
asked for. Stored schedules rest on it: it must never change.
"""

from __future__ import annotations

from hashlib import sha256


def place(schedule: str, field: str, size: int) -> int:
    """Where ``H`` of a schedule falls among ``size`` values of a field."""
    return _number("H", schedule, field) % size


def delay_of(schedule: str, occurrence: int, jitter: int) -> int:
    """How long after its moment an occurrence is started: from 0 to below ``jitter``, all in microseconds.

    Every scheduler finds the same, and the occurrence itself stays what identifies the run.

    >>> delay_of("report", 1_800_000_000_000_000, 60_000_000)
    27001301
    """
    return _number("jitter", schedule, str(occurrence)) % jitter if jitter > 0 else 0


def _number(*words: str) -> int:
    return int.from_bytes(sha256("\0".join(words).encode()).digest()[:8], "big")
