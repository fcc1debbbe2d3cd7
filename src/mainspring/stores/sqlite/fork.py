"""Forks: no process may use, or even close, a database handle that it inherited.

Leaving the handle alone is not enough. SQLite keeps a table of the locks that a process has on a
file; a child inherits that table, but not the locks. A new connection of the child then believes
that its lock is there: when the parent closes the file, SQLite in the parent takes itself for the
last user and removes the log under the child's feet, and what the child commits is lost (shown).
So the connections are closed before the fork and opened again, on both sides, when next needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from .store import SqliteStore

PATIENCE = 2.0
_stores: WeakSet[SqliteStore] = WeakSet()
_kept_for_ever: list[Any] = []
"""Handles that could not be closed in time: a call was in the middle of a commit for longer than our patience."""


def watch(store: SqliteStore) -> None:
    _stores.add(store)


def _before() -> None:
    for store in list(_stores):
        for part in store.parts():
            part.before_fork(PATIENCE)


def _in_parent() -> None:
    for store in list(_stores):
        for part in store.parts():
            part.after_fork_in_parent()


def _in_child() -> None:
    for store in list(_stores):
        _kept_for_ever.extend(part.after_fork_in_child() for part in store.parts())
        store.let_go_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
