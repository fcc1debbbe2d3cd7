"""The Redis engine: Redis 6.2 or later, or Valkey, with its scripts in ``lua/``.

A call is one script, and a script is one atomic step. A script checks everything before its first write, so a refusal
leaves nothing behind. Scripts that must work at ``maxmemory`` begin with a deletion. A job is one string in one hash
(``rows.py``). A line is a list of ids with their places, for each priority and lane (``lua/_lanes.lua``); an entry
whose job has moved on is dropped when a claim meets it. ``driver/`` is the client: connections, scripts, key names,
checks at open.
"""

from .driver.errors import translate
from .store import RedisStore

__all__ = ["RedisStore", "translate"]
