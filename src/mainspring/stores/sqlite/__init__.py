"""The SQLite engine: one file, any number of processes on one machine.

``store`` has one line for each method of the contract. Each feature has a module, or a package, with the names that the
other engines use, and its statements in ``sql/`` under the same name. Functions take an open transaction (``tx``).
Functions that need several transactions are ``async`` and take the database. ``driver/`` is everything about SQLite.
"""

from .driver.errors import translate
from .store import SqliteStore

__all__ = ["SqliteStore", "translate"]
