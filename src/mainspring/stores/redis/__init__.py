"""The Redis engine: Redis 6.2 or later, or Valkey, with its scripts in ``lua/``."""

from .errors import translate
from .store import RedisStore

__all__ = ["RedisStore", "translate"]
