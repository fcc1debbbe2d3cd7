"""Writes that count only when others have them: replicas (``WAIT``) or the disk (``WAITAOF``).

The commands go out behind the scripts of one write, on the same connection, and speak for all of
them. Fewer than asked is no failure of the write, which stands: it is unknown whether it lasts.

The server waits for the last write *of this connection*. A repeated call finds its work done and
writes nothing, so it would be confirmed at once, by replicas that never saw the first try: a mark
is written before each wait.
"""

from __future__ import annotations

from typing import Any

from mainspring.errors import StoreUnavailable

from .resp import pack

WITHIN = 2_000
"""Milliseconds: less than the deadline of any call, so that the caller learns how many there were."""

MARK = b"redis.call('HDEL', KEYS[1], '') return redis.call('HINCRBY', KEYS[1], 'confirms', 1)"
"""The deletion of nothing lets it pass at maxmemory."""

NOTHING_TO_LOSE = frozenset(
    {
        *("beat", "buckets", "find", "guests", "links", "listen", "look", "notify", "promote", "prune", "prune_rates"),
        *("prune_schedules", "prune_workers", "reopen", "runs", "tally", "tell", "unlisten", "workers"),
    }
)
"""Scripts that only read, or whose loss heals by itself: nobody waits for their confirmation."""


class Confirm:
    """What a caller's write needs beside its own reply."""

    def __init__(self, meta: str, replicas: int = 0, fsync: bool = False) -> None:
        self._replicas = replicas
        self._fsync = fsync
        waits = [pack(("WAIT", replicas, WITHIN))] if replicas else []
        waits += [pack(("WAITAOF", 1, 0, WITHIN))] if fsync else []
        self.commands: tuple[bytes, ...] = (pack(("EVAL", MARK, 1, meta)), *waits) if waits else ()

    def is_wanted(self, name: str) -> bool:
        """Whether the write of this script waits for others."""
        return bool(self.commands) and name not in NOTHING_TO_LOSE

    def check(self, replies: list[Any], url: str) -> None:
        """``StoreUnavailable`` unless all who were asked for have the write."""
        _, *left = replies
        if self._replicas and (there := left.pop(0)) < self._replicas:
            raise _unknown(f"{there} of the {self._replicas} replicas asked for have confirmed the write", url)
        if self._fsync and left.pop(0)[0] < 1:
            raise _unknown("the write is not on the disk", url)


def _unknown(what: str, url: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{what} after {WITHIN / 1000:g} s",
        url=url,
        hint="It may last or not; Mainspring repeats the call in a way that is safe. Look at the server's replication.",
    )
