"""Forks: no process may use, or even close, a database handle that it inherited.

Leaving the handle alone is not enough. SQLite keeps a table of the locks that a process has on a file. A child inherits
that table, but not the locks. A new connection of the child then believes that its lock exists: when the parent closes
the file, SQLite in the parent takes itself for the last user and removes the log while the child uses it, and what the
child commits is lost (a test showed it). So the connections are closed before the fork, and parent and child open new
ones at their next call.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

if TYPE_CHECKING:
    from .database import SqliteDatabase

PATIENCE = 2.0
"""Seconds that a fork waits for a commit."""
_databases: WeakSet[SqliteDatabase] = WeakSet()
_forking = threading.RLock()
"""Held during a fork: of two threads that fork at the same time, the second would find the locks of the first, and the
first would never release them."""
_kept_for_ever: list[Any] = []
"""Handles that could not be closed before the fork: a call was in the middle of a commit for longer than 2 s."""


def watch(database: SqliteDatabase) -> None:
    """Close the connections of the database before each fork of this process."""
    _databases.add(database)


def stores_of(path: str) -> list[SqliteDatabase]:
    """The databases of this process with this path."""
    return [database for database in list(_databases) if database.path == path]


def _before() -> None:
    _forking.acquire()
    for database in list(_databases):
        for connection in database.connections():
            connection.before_fork(PATIENCE)
        database.leave_before_fork()


def _in_parent() -> None:
    try:
        for database in list(_databases):
            for connection in database.connections():
                connection.after_fork_in_parent()
    finally:
        _forking.release()


def _in_child() -> None:
    try:
        for database in list(_databases):
            _kept_for_ever.extend(connection.after_fork_in_child() for connection in database.connections())
            database.close_files_after_fork()
    finally:
        _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
