"""The settings of a pool of process slots."""

from __future__ import annotations

import msgspec


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one pool of process slots. Durations in microseconds, sizes in bytes."""

    name: str
    min: int = 1
    """Children that are kept ready."""
    max: int = 1
    """0: as many as ``process_slots`` of the worker."""
    max_jobs_per_child: int | None = None
    """Replace a child after this number of jobs."""
    max_memory_per_child: int | None = None
    """Replace a child after the job at whose end it uses more bytes than this."""
    max_age: int | None = None
    """Replace a child that is older, when it runs no job."""
