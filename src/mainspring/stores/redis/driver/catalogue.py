"""The catalogue of keys: every key of a namespace, its type, what it holds, and which call deletes it.

All keys begin with the hash tag of the namespace, so a cluster keeps them in one slot and one script may use all of
them. Redis deletes a key when its last member is removed, so no key is left empty. Only the keys of listeners have a
time to live. ``tests/stores/redis/test_keys.py`` compares the catalogue with a store in use.
"""

from __future__ import annotations

from typing import NamedTuple


class CatalogueKey(NamedTuple):
    """One key, or one family of keys when ``per`` names what follows the colon."""

    name: str
    type: str
    holds: str
    deleted_by: str
    per: str = ""


_GONE = "delete, prune"
_RETRIED = "retry, delete, prune"
_FREED = "freed capacity, promote"

CATALOGUE: tuple[CatalogueKey, ...] = (
    # ---- jobs
    CatalogueKey(
        "meta",
        "hash",
        "schema: version; seq: the last place given in any line; confirms: marks; clock: see promote",
        "never",
    ),
    CatalogueKey("ids", "zset", "every job, live or ended, with score 0: ordered by id", _GONE),
    CatalogueKey("jobs", "hash", "job -> stored job: head, record and result in one string (rows.py)", _GONE),
    CatalogueKey("records", "hash", "job -> its record, if that is large", _GONE),
    CatalogueKey("results", "hash", "ended job -> its result, if that is large", _RETRIED),
    CatalogueKey("errors", "hash", "ended job -> its error", _RETRIED),
    CatalogueKey("progress", "hash", "job -> its last progress", _RETRIED),
    CatalogueKey("follow_ups", "hash", "job -> its follow-up jobs", _GONE),
    CatalogueKey("unique_keys", "hash", "unique key -> the job that took it last, end of its window, mode", _GONE),
    CatalogueKey("attempts", "list", "ended attempts, oldest first, at most ATTEMPTS_KEPT", _GONE, per="job"),
    CatalogueKey("logs", "list", "log lines with their numbers, at most LINES_KEPT", _GONE, per="job"),
    CatalogueKey("items", "zset", "items of its stream by their number", _RETRIED, per="job"),
    CatalogueKey("mark", "zset", "jobs with the mark, with score 0: ordered by id", _GONE, per="mark"),
    CatalogueKey("counts", "hash", "state, queue, task (reason, error) -> number of jobs", "the move that makes it 0"),
    # ---- edges and flows
    CatalogueKey(
        "children", "zset", "children by the policy of the edge", "finish of the parent or of the child", per="job"
    ),
    CatalogueKey(
        "parents", "zset", "jobs that a blocked job waits for, with score 0", "any move out of blocked", per="job"
    ),
    CatalogueKey("releasing", "zset", "joins that ended with many children, by their end", "promote"),
    CatalogueKey(
        "children_left", "zset", "further children of such a join, as in children", "promote", per="join, epoch, end"
    ),
    CatalogueKey("flow_jobs", "hash", "mark of a flow -> number of its live jobs", "the move that makes it 0"),
    CatalogueKey("flow_died", "zset", "dead jobs that are kept with their flow, by their end", _RETRIED),
    CatalogueKey("swept", "zset", "flows to cancel or to delete, by the moment of the next look", "promote"),
    CatalogueKey("sweeps", "hash", "such a flow -> how far promote has come", "promote, retry_flow"),
    # ---- ended jobs, for retention
    CatalogueKey("done", "zset", "succeeded and cancelled jobs by their end", _RETRIED),
    CatalogueKey("keep_until", "zset", "succeeded and cancelled jobs with their own keep, by its end", _RETRIED),
    CatalogueKey("died", "zset", "dead jobs by their end", _RETRIED),
    CatalogueKey("key_until", "zset", "ended jobs past retention whose unique key still counts, by its end", _RETRIED),
    # ---- jobs that wait for a moment
    CatalogueKey("due", "zset", "scheduled and retrying jobs by due", "any move out of these states"),
    CatalogueKey("expiring", "zset", "waiting jobs by expires", "claim, finish"),
    CatalogueKey("overdue", "zset", "expired ready jobs that a claim met, by expires", "promote, claim, finish"),
    # ---- ready jobs: lines and lanes
    CatalogueKey(
        "line", "list", "id and seq of ready jobs, in order of seq; stale entries", "claim", per="priority:lane"
    ),
    CatalogueKey(
        "line_moved", "zset", "ready jobs whose place is not the end of the list, by seq", "claim", per="priority:lane"
    ),
    CatalogueKey(
        "index",
        "zset",
        "lines with entries by the place of their first job; of a base lane also its lane sets",
        "claim",
        per="base lane or limited lane",
    ),
    CatalogueKey(
        "lanes",
        "zset",
        "open lanes by the place of their first job; of fair keys the priorities",
        "claim",
        per="lane set",
    ),
    CatalogueKey("vtimes", "zset", "open lanes of fair keys by virtual time", "claim", per="priority:lane set"),
    CatalogueKey("clocks", "hash", "priority -> the virtual time of the fair keys", "claim", per="queue"),
    CatalogueKey("fair", "set", "lane sets of fair keys that have an open lane", "claim", per="queue"),
    # ---- lanes that wait for capacity
    CatalogueKey("waiting_on", "hash", "waiting lane -> the bucket it waits for", _FREED),
    CatalogueKey("waiting_until", "zset", "waiting lanes whose moment is known, by that moment", _FREED),
    CatalogueKey(
        "waiting_lanes", "zset", "waiting lanes by the place of their first job", _FREED, per="lane set NUL bucket"
    ),
    CatalogueKey(
        "waiting_sets", "set", "lane sets of which a job found no capacity in the bucket", _FREED, per="bucket"
    ),
    CatalogueKey("waiting_buckets", "set", "buckets of the limit that a lane set waits for", _FREED, per="limit"),
    CatalogueKey(
        "recheck",
        "set",
        "buckets of changed limits whose waiting lanes are not rechecked yet",
        "recheck_limits, promote",
    ),
    # ---- limits
    CatalogueKey(
        "limits", "hash", "limit -> kind, size, per, burst, the size that was set by hand, share, span", "forget_limit"
    ),
    CatalogueKey("breakers", "hash", "breaker that has counted something -> its row", "forget_limit"),
    CatalogueKey(
        "bucket_counts", "hash", "unkeyed bucket -> number of running jobs that name it", "any move out of running"
    ),
    CatalogueKey(
        "bucket_jobs",
        "zset",
        "running jobs that name the keyed bucket, by their claim; of a breaker those since it opened",
        "any move out of running, close of the breaker",
        per="bucket",
    ),
    CatalogueKey(
        "rates", "hash", "bucket -> sum of its starts, moment at which all capacity is back, end of its pause", "prune"
    ),
    CatalogueKey("rate_ends", "zset", "the same buckets by the moment after which the entry says nothing", "prune"),
    CatalogueKey(
        "rate_starts",
        "list",
        "first moment, last moment and cost of starts, oldest first",
        "claim, prune",
        per="bucket",
    ),
    # ---- holders
    CatalogueKey("holders", "zset", "holders by the end of their hold", "release, promote"),
    CatalogueKey("holds", "hash", "holder -> its buckets, token, start, info", "release, promote"),
    CatalogueKey(
        "bucket_holders", "zset", "holders of the bucket by the end of their hold", "release, promote", per="bucket"
    ),
    CatalogueKey("fences", "zset", "buckets by the last fencing token that was given for them", "prune"),
    # ---- the fleet
    CatalogueKey("workers", "set", "all workers with a row", "retire, prune"),
    CatalogueKey(
        "worker", "hash", "number, turn, lost, started, seen, lease, queues, tasks, info", "retire, prune", per="worker"
    ),
    CatalogueKey("leads", "hash", "service of the fleet -> end of the lead, worker", "retire, rescue"),
    CatalogueKey("worker_jobs", "set", "its running jobs", "any move out of running", per="worker"),
    CatalogueKey("worker_orders", "hash", "running job to cancel -> reason", "any move out of running", per="worker"),
    CatalogueKey("wake", "list", "tokens, at most one for each listener", "listener; expires", per="queue"),
    CatalogueKey(
        "listeners", "zset", "listeners by the time of their last report", "close of the listener; expires", per="queue"
    ),
    # ---- queues
    CatalogueKey(
        "queues",
        "hash",
        "queue with a mode or settings -> mode, settings",
        "set_queue_mode, configure_queue, disable_queues",
    ),
    CatalogueKey(
        "depth",
        "zset",
        "waiting jobs that count for the depth, by their enqueue",
        "any move out of waiting",
        per="queue",
    ),
    # ---- schedules
    CatalogueKey("schedules", "hash", "schedule -> revision, moment of the next look, document", "swap_schedule"),
    CatalogueKey("schedule_looks", "zset", "schedules by the moment of their next look", "swap_schedule"),
    CatalogueKey("occurrences", "zset", "occurrences with a run, by their moment", "swap_schedule", per="schedule"),
    CatalogueKey("runs", "hash", "occurrence -> its job, document", "swap_schedule", per="schedule"),
    CatalogueKey(
        "schedules_gone", "zset", "schedules that were deleted lately, by their last revision", "swap_schedule, prune"
    ),
    # ---- documents
    CatalogueKey("documents", "hash", "name -> version, data", "never", per="kind"),
)


def tag(namespace: str) -> str:
    """The beginning of every key of the namespace."""
    return f"{{ms:{namespace}}}:"
