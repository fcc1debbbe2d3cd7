"""Records of a store itself: its migrations and its small documents.

An id is the 16 bytes of a UUID. Times and durations are in microseconds; times count from 1970, on the store's clock.
"""

from __future__ import annotations

import msgspec


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a migration would do, and the scripts to run by hand instead."""

    before: int
    after: int
    script: str = ""
    """The script to run instead of ``migrate``; empty if there is nothing to run."""
    access: str = ""
    """The script that gives a user with few rights access to the store."""


class Document(msgspec.Struct, frozen=True):
    """A small versioned document; ``put`` never lets an older version overwrite a newer one."""

    kind: str
    name: str
    version: int
    data: bytes
