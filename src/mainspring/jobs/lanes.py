"""Names of lanes.

The jobs of one lane wait for the same things (a slot of one kind, the same limits, the same workers), so a claim
examines the first job of each lane only. All jobs of a queue that run in the same kind of slot share a *base lane*. A
job that waits for something more is in a lane *beside* the base lane:

    email/async                  base lane: queue "email", async slots
    email/process                process slots of the default pool
    email/process~&gpu~          process slots of the pool "gpu"
    email/any                    enqueued by name: the producer does not know the kind of slot
    email/async~+1.4,gpu~        base lane of jobs with terms: only workers that fit the terms name it
    email/async!                 suspects: one more crash of its worker makes the job dead
    email/async?shop.tasks.send  parked: a worker that did not know the task handed it back
    email/async#api              limited: needs capacity in the unkeyed limit "api"
    email/async#api=tenant=7     limited: and in the bucket of the limit "tenant" for the key 7
    email/async#*=5*acme         fair: of the key "acme", which has the weight 5
    email/async#**,api=5*acme    both

Lanes with the same base lane, unkeyed limits and marks are a *lane set*. Its name is the text before the first ``=``
and any mark behind it.

A claim names base lanes; the store adds the lanes beside them that the worker may claim from. The name of a queue has
no ``/``, and the name of a base lane has none of ``! # ?``, so the name of any lane begins with its base lane. The
lanes beside a base lane are one range of names, from the base lane to the base lane with ``@`` appended. No other base
lane is in this range, because where a base lane continues another, the next character is ``~``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal
from urllib.parse import quote

from mainspring.limits.records import Bucket
from mainspring.queues.records import FairKey

Kind = Literal["async", "thread", "process", "any"]
KINDS: tuple[Kind, ...] = ("async", "thread", "any")
"""The kinds that a worker asks for together. Each pool of process slots asks for its own lanes."""
DEFAULT_POOL = "default"
"""The pool of tasks with ``executor="process"`` and without ``pool=``."""
VERSION, BULK, POOL = "+", "*", "&"
"""The first character of a term that is no label."""
_BASE = re.compile(r"[^/]*/[^!#?]+")
_TERM = 100
"""The largest number of characters of a readable term; an index of PostgreSQL takes no long names."""
_PLAIN = re.compile(r"[\w.:-]{1,40}", re.ASCII)


def base_lane(queue: str, kind: str) -> str:
    """The base lane of a queue for a kind of slot."""
    return f"{queue}/{kind}"


def base_of(lane: str) -> str:
    """The base lane of a lane."""
    found = _BASE.match(lane)
    return found[0] if found else lane


def on_terms(kind: str, terms: Iterable[str]) -> str:
    """The kind of a base lane of jobs that only workers with these terms may claim.

    >>> on_terms("async", ["gpu", version_term("1.4")]), on_terms("thread", [])
    ('async~+1.4,gpu~', 'thread')
    """
    found = ",".join(sorted(set(terms)))
    return f"{kind}~{found}~" if found else kind


def terms_of(lane: str) -> tuple[str, ...]:
    """The terms of the jobs in a lane."""
    found = base_of(lane).partition("~")[2].rstrip("~")
    return tuple(found.split(",")) if found else ()


def version_term(version: str) -> str:
    """The term of jobs that only workers of this version may claim. No label looks like it."""
    return VERSION + quoted(version)


def unpinned(kind: str) -> str:
    """The same kind for workers of any version.

    >>> unpinned("async~+1.4,gpu~"), unpinned("thread~+1.4~"), unpinned("thread")
    ('async~gpu~', 'thread', 'thread')
    """
    return on_terms(kind.partition("~")[0], [term for term in terms_of(kind) if not term.startswith(VERSION)])


def bulk_term(task: str) -> str:
    """The term of the jobs of a bulk task. They wait apart from other jobs, so that one claim can take many of them."""
    return BULK + quoted(task)


def pool_terms(pool: str) -> tuple[str, ...]:
    """The term of the jobs of a named pool of process slots; none for the default pool and for other jobs."""
    return (POOL + quoted(pool),) if pool and pool != DEFAULT_POOL else ()


def quoted(text: str) -> str:
    """A text as part of a term: short, and without the characters that have a meaning in the name of a lane."""
    plain = quote(text, safe="").replace("~", "%7E")
    return plain if len(plain) <= _TERM else "^" + hashlib.sha256(text.encode()).hexdigest()[:32]


def is_suspect(crashes: int, limit: int) -> bool:
    """Whether a job has crashed and its next crash would be its last. Such a job runs apart from others like it."""
    return crashes > 0 and crashes >= limit - 1


def excludes_suspects(crashes: int) -> bool:
    """Whether a worker that holds a job with this number of crashes claims no suspect. After the next crash of such a
    worker it would not be clear which of the two jobs was the cause."""
    return crashes > 0


def guilt(crashes: int, limit: int) -> int:
    """The class of a job when a crash is charged: 1 for jobs that crashed before, 2 for suspects, 0 for other jobs."""
    return 2 if is_suspect(crashes, limit) else int(crashes > 0)


def suspect_lane(base: str) -> str:
    """The lane of the suspects beside a base lane."""
    return base + "!"


def is_in_suspect_lane(lane: str) -> bool:
    """Whether the next crash of a job in this lane would be its last.

    >>> is_in_suspect_lane("email/async!"), is_in_suspect_lane("email/async#api!?shop.send")
    (True, True)
    >>> is_in_suspect_lane("email/async#api"), is_in_suspect_lane("email/async?shop.send!")
    (False, False)
    """
    return lane.partition("?")[0].endswith("!")


def parked_lane(base: str, task: str) -> str:
    """The lane of jobs that a worker handed back because it does not know the task."""
    return f"{base}?{task}"


def limited_lane(base: str, buckets: Iterable[Bucket]) -> str:
    """The lane of jobs that need capacity in these buckets. Equal lanes mean equal buckets.

    >>> limited_lane("email/async", [Bucket("tenant", "7"), Bucket("api")])
    'email/async#api=tenant=7'
    """
    unkeyed = sorted({bucket_label(bucket) for bucket in buckets if not bucket.key})
    keyed = sorted({bucket_label(bucket) for bucket in buckets if bucket.key})
    return f"{base}#{','.join(unkeyed)}" + (f"={','.join(keyed)}" if keyed else "")


def bucket_label(bucket: Bucket) -> str:
    """The text for a bucket in the name of a lane."""
    return f"{_label(bucket.limit)}={_label(bucket.key)}" if bucket.key else _label(bucket.limit)


def limit_label(limit: str) -> str:
    """The text for a limit in the name of a lane."""
    return _label(limit)


def fair_lane(base: str, buckets: Iterable[Bucket], fair: FairKey) -> str:
    """The lane of the jobs of a fair key, which may need capacity in these buckets.

    >>> fair_lane("email/async", [], FairKey("acme", 0.5))
    'email/async#*=0.5*acme'
    >>> fair_lane("email/async", [Bucket("tenant", "7"), Bucket("api")], FairKey("acme"))
    'email/async#**,api=1*acme,tenant=7'
    """
    return _fair_lane(base, buckets, f"{fair.weight:g}*{_label(fair.key) if fair.key else ''}")


def _fair_lane(base: str, buckets: Iterable[Bucket], own: str) -> str:
    unkeyed, _, keyed = limited_lane("", buckets)[1:].partition("=")
    names = ["**" if unkeyed or keyed else "*", *([unkeyed] if unkeyed else [])]
    return f"{base}#{','.join(names)}={','.join([own, *([keyed] if keyed else [])])}"


def home_lane(queue: str, kind: str, buckets: Iterable[Bucket], fair: FairKey | None) -> str:
    """The lane of a new job."""
    base = base_lane(queue, kind)
    if fair is not None:
        return fair_lane(base, buckets, fair)
    return limited_lane(base, buckets) if buckets else base


def relaned(home: str, buckets: Iterable[Bucket]) -> str:
    """The lane of a job that names other buckets than at its enqueue; its fair key stays.

    >>> relaned("email/async#*=1*acme", [Bucket("api")])
    'email/async#**,api=1*acme'
    """
    base = base_of(home)
    if not is_fair(home):
        return limited_lane(base, buckets)
    return _fair_lane(base, buckets, home[len(base) :].partition("=")[2].partition(",")[0])


def is_fair(lane: str) -> bool:
    """Whether a lane, or a lane set, is one of fair keys."""
    return lane.startswith("#*", len(base_of(lane)))


@lru_cache(maxsize=1024)
def is_limited(lane: str) -> bool:
    """Whether the jobs of a lane, or of a lane set, need capacity in a bucket."""
    start = len(base_of(lane))
    return lane.startswith("#", start) and not lane.startswith("#*=", start)


def weight_of(lane: str) -> float:
    """The weight of the fair key of a lane."""
    return float(lane[len(base_of(lane)) :].partition("=")[2].partition("*")[0])


@lru_cache(maxsize=1024)
def limits_in(lane: str) -> frozenset[str]:
    """The limits in the name of a lane, with or without a key.

    >>> sorted(limits_in("email/async#api=tenant=7!")), limits_in("email/async")
    (['api', 'tenant'], frozenset())
    """
    unkeyed, _, keyed = lane.partition("?")[0].partition("#")[2].partition("=")
    names = {*unkeyed.rstrip("!").split(","), *(each.partition("=")[0] for each in keyed.split(","))}
    return frozenset(names) - {""}


def bucket_labels_in(lane: str) -> frozenset[str]:
    """The buckets in the name of a lane.

    >>> sorted(bucket_labels_in("email/async#api=tenant=7!")), bucket_labels_in("email/async")
    (['api', 'tenant=7'], frozenset())
    """
    unkeyed, _, keyed = lane.partition("?")[0].partition("#")[2].rstrip("!").partition("=")
    return frozenset({*unkeyed.split(","), *keyed.split(",")}) - {""}


def _label(name: str) -> str:
    """A name as part of the name of a lane: short, and without the characters that have a meaning there."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
