"""The catalogue of keys: every key of a namespace, its type, and who deletes it.

All of them begin with the namespace's hash tag, so a cluster keeps them in one slot and one
script may touch them all. Redis itself deletes a key with its last member, so nothing here is
left empty. No key has a time to live.
"""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """One key, or one family of keys when ``per`` names what follows the colon."""

    name: str
    type: str
    holds: str
    deleted_by: str
    per: str = ""


CATALOGUE: tuple[Key, ...] = (
    Key("meta", "hash", "schema: version; seq: the last place given in any line", "nobody"),
    Key("ids", "zset", "every job, live or ended, all with score 0: ordered by id", "delete, prune"),
    Key("jobs", "hash", "live job -> head (packed array, see _common.lua)", "finish: moves to finished"),
    Key("records", "hash", "job -> the opaque record; stays in place when the job ends", "delete, prune"),
    Key("finished", "hash", "ended job -> head", "delete, prune, retry"),
    Key("ended", "zset", "ended jobs by the time of their end", "delete, prune, retry", per="final state"),
    Key("results", "hash", "job -> result", "delete, prune"),
    Key("errors", "hash", "job -> the last error", "ack succeeded, delete, prune"),
    Key("attempts", "hash", "token -> attempt (packed array), token:error -> error", "delete, prune", per="job"),
    Key("counts", "hash", "state, queue, task (separated by NUL) -> how many jobs", "the move that makes it 0"),
    Key("later", "zset", "scheduled and retrying jobs by due", "any move out of these states"),
    Key("expiring", "zset", "waiting jobs by expires", "claim, finish"),
    Key("overdue", "zset", "ready jobs that a claim met after they expired, by expires", "promote, claim, finish"),
    Key("ready", "list", "id:seq in order of seq; stale entries are dropped when met", "claim", per="priority:lane"),
    Key("heads", "zset", "lists of a group that are not empty, by the place of their head", "claim", per="group"),
    Key("children", "hash", "child -> policy of the edge", "finish of the parent", per="job"),
    Key("bucket", "hash", "running job -> token", "any move out of running", per="bucket"),
    Key("workers", "set", "all workers with a row", "retire, prune"),
    Key("worker", "hash", "number, turn, lost, started, seen, lease, queues, ...", "retire, prune", per="worker"),
    Key("running", "hash", "running job -> token", "any move out of running", per="worker"),
    Key("orders", "hash", "running job that must be cancelled -> reason", "any move out of running", per="worker"),
)


def tag(namespace: str) -> str:
    """What every key of the namespace begins with."""
    return f"{{ms:{namespace}}}:"


def meta_key(namespace: str) -> str:
    return tag(namespace) + "meta"
