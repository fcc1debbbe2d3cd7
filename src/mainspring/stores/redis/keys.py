"""The catalogue of keys: every key of a namespace, its type, and who deletes it.

All of them begin with the namespace's hash tag, so a cluster keeps them in one slot and one
script may touch them all. Redis itself deletes a key with its last member, so nothing here is
left empty. Only those of listeners have a time to live.
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
    Key("meta", "hash", "schema: version; seq: the last place given in any line; confirms: marks", "nobody"),
    Key("ids", "zset", "every job, live or ended, all with score 0: ordered by id", "delete, prune"),
    Key("jobs", "hash", "job, live or ended -> head, record and result in one string (heads.py)", "delete, prune"),
    Key("records", "hash", "job -> a large record", "delete, prune"),
    Key("results", "hash", "ended job -> a large result", "retry, delete, prune"),
    Key("errors", "hash", "ended job -> its error", "retry, delete, prune"),
    Key("progress", "hash", "job -> its last progress", "retry, delete, prune"),
    Key("follows", "hash", "job -> its follow-up jobs", "delete, prune"),
    Key("unique", "hash", "unique key -> the job that took it last, end of its window, mode", "delete, prune"),
    Key("attempts", "list", "ended attempts, oldest first, 100 at most", "delete, prune", per="job"),
    Key("logs", "list", "log lines with their numbers, 1,000 at most", "delete, prune", per="job"),
    Key("items", "zset", "items of its stream by place", "retry, delete, prune", per="job"),
    Key("mark", "zset", "jobs with the mark, all with score 0: ordered by id", "delete, prune", per="mark"),
    Key("counts", "hash", "state, queue, task (reason, error) -> how many jobs", "the move that makes it 0"),
    Key("done", "zset", "succeeded and cancelled jobs by their end", "retry, delete, prune"),
    Key("drops", "zset", "the same with a keep of their own, by when they go", "retry, delete, prune"),
    Key("died", "zset", "dead jobs by their end", "retry, delete, prune"),
    Key("held", "zset", "ended jobs that only a unique window keeps, by its end", "retry, delete, prune"),
    Key("later", "zset", "scheduled and retrying jobs by due", "any move out of these states"),
    Key("expiring", "zset", "waiting jobs by expires", "claim, finish"),
    Key("overdue", "zset", "ready jobs that a claim met after they expired, by expires", "promote, claim, finish"),
    Key(
        "ready", "list", "id and seq in order of seq; stale entries are dropped when met", "claim", per="priority:lane"
    ),
    Key("moved", "zset", "ready jobs that came to another place, by seq", "claim", per="priority:lane"),
    Key(
        "heads",
        "zset",
        "lines that are not empty, and of a base lane its groups, by the place of their first job",
        "claim",
        per="base lane or limited lane",
    ),
    Key(
        "lanes", "zset", "open lanes by the place of their first job; of fair keys the priorities", "claim", per="group"
    ),
    Key("vtimes", "zset", "open lanes of fair keys by virtual time", "claim", per="priority:group"),
    Key("clocks", "hash", "priority -> how far the virtual time of its fair keys has come", "claim", per="queue"),
    Key("fair", "set", "groups of lanes of fair keys that have one in line", "claim", per="queue"),
    Key("ages", "zset", "open lanes by the seq of their oldest job", "claim", per="group"),
    Key("parked", "hash", "lane with keys that has no room -> the bucket it waits for", "who frees room, promote"),
    Key("parked_until", "zset", "those of them that wait for a moment, by it", "who frees room, promote"),
    Key(
        "waiting", "zset", "parked lanes by the place of their head", "who frees room, promote", per="group NUL bucket"
    ),
    Key("waits", "set", "groups of which something found no room in it", "who frees room", per="bucket"),
    Key("crowded", "set", "its buckets that something waits for", "who frees room", per="limit"),
    Key("reopen", "set", "buckets of limits that were changed, to be looked at for who waits", "reopen, promote"),
    Key("children", "hash", "child -> policy of the edge", "finish of the parent, of the child", per="job"),
    Key("parents", "hash", "blocked job -> those it waits for", "any move out of blocked"),
    Key("links", "hash", "part that waits for others -> those", "link"),
    Key("linked", "set", "parts that wait for it", "link", per="part"),
    Key("missing", "set", "those that it waits for of which no success is noted", "finish, link", per="part"),
    Key(
        "awaiting",
        "zset",
        "its jobs that wait for others, in the order they came",
        "any move out of blocked",
        per="part",
    ),
    Key("released", "hash", "part that waits for others -> its job that was let go last, with its token", "link"),
    Key(
        "limits",
        "hash",
        "limit -> kind, size, per, burst, what somebody set in place of its size, share, span",
        "forget_limit",
    ),
    Key("breakers", "hash", "breaker that is not simply closed -> how it stands", "who closes it, forget_limit"),
    Key("places", "hash", "bucket without a key -> how many running jobs name it", "any move out of running"),
    Key(
        "bucket",
        "zset",
        "with a key: running jobs that name it by their claim; of a breaker those since it opened",
        "any move out of running; who closes it",
        per="bucket",
    ),
    Key("rates", "hash", "bucket -> sum of its starts, when all is back, end of its pause", "prune"),
    Key("rests", "zset", "the same buckets by when nothing of that counts any more", "prune"),
    Key(
        "starts", "list", "first and last moment of some starts, their cost; oldest first", "claim, prune", per="bucket"
    ),
    Key("guests", "zset", "guests by the end of their time", "give, promote"),
    Key("visits", "hash", "guest -> its buckets, number, since when, what it says of itself", "give, promote"),
    Key("fences", "zset", "buckets by the last number that came with places in them", "prune"),
    Key("visitors", "zset", "guests in it by the end of their time", "give, promote", per="bucket"),
    Key("workers", "set", "all workers with a row", "retire, prune"),
    Key("worker", "hash", "number, turn, lost, started, seen, lease, queues, ...", "retire, prune", per="worker"),
    Key("running", "set", "its running jobs", "any move out of running", per="worker"),
    Key("orders", "hash", "running job that must be cancelled -> reason", "any move out of running", per="worker"),
    Key("wake", "list", "tokens, at most one for each listener", "listener; expires", per="queue"),
    Key(
        "listeners", "zset", "who listens, by the time of its last word", "close of the listener; expires", per="queue"
    ),
    Key("modes", "hash", "queue of which something is stored -> mode, settings", "set_mode, configure, disable"),
    Key("depth", "zset", "waiting jobs that count for its depth, by their enqueue", "any move", per="queue"),
    Key("schedules", "hash", "schedule -> number, when to look at it, data", "swap"),
    Key("looks", "zset", "schedules by when to look at them", "swap"),
    Key("occurrences", "zset", "its occurrences of which there is a run, by their moment", "swap", per="schedule"),
    Key("runs", "hash", "occurrence -> its job, data", "swap", per="schedule"),
    Key("gone", "zset", "schedules that went not long ago by their last number", "swap, prune"),
    Key("docs", "hash", "name -> version, data", "nobody", per="kind"),
)


def tag(namespace: str) -> str:
    """What every key of the namespace begins with."""
    return f"{{ms:{namespace}}}:"


def meta_key(namespace: str) -> str:
    return tag(namespace) + "meta"
