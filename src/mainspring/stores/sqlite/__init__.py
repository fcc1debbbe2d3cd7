"""The SQLite engine: an embedded file, many processes on one machine."""

from .errors import translate
from .store import SqliteStore

__all__ = ["SqliteStore", "translate"]
