"""Confirmed writes: a write counts when replicas (``WAIT``) or the disk (``WAITAOF``) have it.

The commands follow the scripts of one write on the same connection and confirm all of them. If fewer replicas answer
than were asked for, the write itself has happened: it is unknown whether it survives a failover.

The server waits for the last write *of this connection*. A repeated call finds its work done and writes nothing.
Replicas that never got the first try would confirm it at once. Therefore a mark is written before each wait.
"""

from __future__ import annotations

from typing import Any

from mainspring.errors import StoreUnavailable

from .resp import pack

WAIT_TIMEOUT = 2_000
"""Milliseconds. Less than the deadline of any call, so that the caller gets the number of replicas that confirmed."""

MARK = b"redis.call('HDEL', KEYS[1], '') return redis.call('HINCRBY', KEYS[1], 'confirms', 1)"
"""The script of the mark. The deletion of a field that does not exist lets the script run at maxmemory."""

READS = frozenset(
    (
        *("buckets", "due_schedules", "find", "holders", "read_breakers", "schedule_runs", "tally"),
        *("waits_for", "workers"),
    )
)
"""Scripts that only read."""

NOTHING_TO_LOSE = READS | {
    *("beat", "lead", "listen", "notify", "promote", "prune", "prune_limits", "prune_schedules", "prune_workers"),
    *("recheck_limits", "unlisten"),
}
"""Scripts that only read, or whose lost write is repaired by a later call: they are never confirmed."""


class WriteConfirmation:
    """The commands that confirm a write, and the check of their replies."""

    def __init__(self, meta: str, replicas: int = 0, fsync: bool = False) -> None:
        self._replicas = replicas
        self._fsync = fsync
        waits = [pack(("WAIT", replicas, WAIT_TIMEOUT))] if replicas else []
        waits += [pack(("WAITAOF", 1, 0, WAIT_TIMEOUT))] if fsync else []
        self.commands: tuple[bytes, ...] = (pack(("EVAL", MARK, 1, meta)), *waits) if waits else ()

    def is_wanted(self, name: str) -> bool:
        """Whether the write of this script waits for confirmation."""
        return bool(self.commands) and name not in NOTHING_TO_LOSE

    def check(self, replies: list[Any], url: str) -> None:
        """Raise ``StoreUnavailable`` unless as many replicas as asked for, and the disk, have the write."""
        _, *left = replies
        if self._replicas and (there := left.pop(0)) < self._replicas:
            raise _unknown(f"{there} of the {self._replicas} replicas asked for have confirmed the write", url)
        if self._fsync and left.pop(0)[0] < 1:
            raise _unknown("the write is not on the disk", url)


def _unknown(what: str, url: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"{what} after {WAIT_TIMEOUT / 1000:g} s",
        url=url,
        hint=(
            "The write may last or not; Mainspring repeats the call in a way that is safe. "
            "Check the replication of the server."
        ),
    )
