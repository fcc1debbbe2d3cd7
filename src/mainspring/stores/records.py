"""Records of a store itself: its migrations and its small documents.

Ids are the 16 bytes of a UUID. Times and durations are microseconds; times count from 1970 on the clock of the store.
"""

from __future__ import annotations

import msgspec


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration would do, and what people may run by hand."""

    before: int
    after: int
    script: str = ""
    """What to run instead of ``migrate``; empty where there is nothing to run."""
    access: str = ""
    """What lets somebody with few rights use the store."""


class Document(msgspec.Struct, frozen=True):
    """A small versioned document; ``put`` never lets an older version overwrite a newer one."""

    kind: str
    name: str
    version: int
    data: bytes
