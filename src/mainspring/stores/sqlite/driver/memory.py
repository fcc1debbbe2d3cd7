"""A database in memory that several stores of one process share by name.

An app has one name. Its client, its embedded workers and their heartbeats are stores of their own, in different threads
and on different event loops, and all of them find the same database here. The database lives until the last of these
stores is closed or no longer used, or until the process ends. The unfinished jobs are lost then, so one warning in the
log says how many.

A forked process has a copy of its parent's memory. A job that it enqueued there would never run, so it is refused.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref

from mainspring.errors import InMemoryStore

from .connections import MEMORY
from .database import SqliteDatabase

log = logging.getLogger("mainspring.store")


class SharedDatabase:
    """A database in memory and the number of its open stores."""

    def __init__(self, name: str, namespace: str) -> None:
        self.database = SqliteDatabase(MEMORY, namespace=namespace, durability="normal", clock=None)
        self.name = name
        self.pid = os.getpid()
        self.stores = 0
        self._end = weakref.finalize(self, _end_unused, self.database, self.pid)  # at the end of the process too

    async def leave(self) -> None:
        """Close one store. The last one closes the database."""
        with _lock:
            self.stores -= 1
            if self.stores or self.pid != os.getpid():
                return
            _databases.pop(self.name, None)
        self._end.detach()
        _warn(self.database)
        await self.database.close()


_databases: weakref.WeakValueDictionary[str, SharedDatabase] = weakref.WeakValueDictionary()
_lock = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def join_database(name: str, namespace: str) -> SharedDatabase:
    """The database with this name, made by the first store that needs it. Call ``leave`` once for each call."""
    with _lock:
        found = _databases.get(name)
        if found is None:
            found = _databases[name] = SharedDatabase(name, namespace)
        if found.pid != os.getpid():
            raise InMemoryStore(
                f"a store in memory (sqlite://) belongs to the process that opened it ({found.pid}), and this is a "
                f"forked process"
            )
        found.stores += 1
        return found


def _end_unused(database: SqliteDatabase, pid: int) -> None:
    """The process ends, or no store uses the database and none was closed."""
    if pid == os.getpid():
        _warn(database)
        database.writer.end_thread()


def _warn(database: SqliteDatabase) -> None:
    lost = database.writer.peek("live_jobs")
    if lost:
        log.warning(
            "%d unfinished %s lost with the store in memory (sqlite://); a file keeps jobs: sqlite:///jobs.db",
            lost,
            "job is" if lost == 1 else "jobs are",
        )
