"""Names of lanes.

A lane is the set of things that can hold a job back; jobs inside a lane are alike, so a
claim looks at lane heads only. Every job of a queue that runs in the same kind of slot
shares a base lane; a job that something more can hold back lives in a lane of its own
kind beside it:

    email/async                  base lane: queue "email", async slots
    email/any                    enqueued by name: the producer does not know the kind of slot
    email/async~+1.4,gpu~        base lane of jobs with terms: only workers that fit them name it
    email/async!                 suspects: one more crash of its worker and the job is dead
    email/async?shop.tasks.send  parked: a worker that did not know the task handed it back
    email/async#api              limited: needs room in the gate "api"
    email/async#api=tenant=7     limited: and in the part of the limit "tenant" that belongs to key 7
    email/async#*=5*acme         fair: of the key "acme", which has a weight of 5
    email/async#**,api=5*acme    both

Lanes with the same base, gates and marks are a *group*: what stands before the first ``=``, and any mark behind it.

A claim names base lanes; the store adds the lanes beside them that the worker may take
from. Queue names have no ``/`` and base lanes none of ``! # ?``, so the base lane can be read off
any lane. The lanes beside a base lane are a range of names, from it to it with ``@`` behind: no
other base lane lies in there, for what follows a base lane inside of another is a ``~``.
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

Kind = Literal["async", "thread", "any"]
KINDS: tuple[Kind, ...] = ("async", "thread", "any")
VERSION, BULK = "+", "*"
"""What terms that are no labels begin with."""
_BASE = re.compile(r"[^/]*/[^!#?]+")
_TERM = 100
"""Most characters of a term that can be read; an index of PostgreSQL takes no long names."""
_PLAIN = re.compile(r"[\w.:-]{1,40}", re.ASCII)


def base_lane(queue: str, kind: str) -> str:
    return f"{queue}/{kind}"


def base_of(lane: str) -> str:
    """The base lane that a lane stands beside."""
    found = _BASE.match(lane)
    return found[0] if found else lane


def on_terms(kind: str, terms: Iterable[str]) -> str:
    """The kind of a base lane of jobs that only some workers may take.

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
    """The term of jobs that only workers of this version may take; no label looks like it."""
    return VERSION + quoted(version)


def unpinned(kind: str) -> str:
    """The same kind for workers of any version.

    >>> unpinned("async~+1.4,gpu~"), unpinned("thread~+1.4~"), unpinned("thread")
    ('async~gpu~', 'thread', 'thread')
    """
    return on_terms(kind.partition("~")[0], [term for term in terms_of(kind) if not term.startswith(VERSION)])


def bulk_term(task: str) -> str:
    """The term of the jobs of a bulk task: they wait apart from others, so that one claim can take many of them."""
    return BULK + quoted(task)


def quoted(text: str) -> str:
    """Any text as part of a term: short, and without the characters that mean something in the name of a lane."""
    plain = quote(text, safe="").replace("~", "%7E")
    return plain if len(plain) <= _TERM else "^" + hashlib.sha256(text.encode()).hexdigest()[:32]


def is_suspect(crashes: int, limit: int) -> bool:
    """Whether a job has crashed and its next crash would be its last: then it is kept apart from others like it."""
    return crashes > 0 and crashes >= limit - 1


def guilt(crashes: int, limit: int) -> int:
    """Whom a crash is charged to if jobs of several kinds ran: 1 those that crashed before, 2 suspects, 0 others."""
    return 2 if is_suspect(crashes, limit) else int(crashes > 0)


def suspect_lane(base: str) -> str:
    return base + "!"


def parked_lane(base: str, task: str) -> str:
    return f"{base}?{task}"


def limited_lane(base: str, buckets: Iterable[Bucket]) -> str:
    """The lane of jobs that need room in these buckets. Equal lanes mean equal buckets.

    >>> limited_lane("email/async", [Bucket("tenant", "7"), Bucket("api")])
    'email/async#api=tenant=7'
    """
    gates = sorted({bucket_label(bucket) for bucket in buckets if not bucket.key})
    keyed = sorted({bucket_label(bucket) for bucket in buckets if bucket.key})
    return f"{base}#{','.join(gates)}" + (f"={','.join(keyed)}" if keyed else "")


def bucket_label(bucket: Bucket) -> str:
    """What lanes call a bucket."""
    return f"{_label(bucket.limit)}={_label(bucket.key)}" if bucket.key else _label(bucket.limit)


def limit_label(limit: str) -> str:
    """What lanes call a limit."""
    return _label(limit)


def fair_lane(base: str, buckets: Iterable[Bucket], fair: FairKey) -> str:
    """The lane of the jobs of a fair key, which may need room in these buckets.

    >>> fair_lane("email/async", [], Fair("acme", 0.5))
    'email/async#*=0.5*acme'
    >>> fair_lane("email/async", [Bucket("tenant", "7"), Bucket("api")], Fair("acme"))
    'email/async#**,api=1*acme,tenant=7'
    """
    return _fair_lane(base, buckets, f"{fair.weight:g}*{_label(fair.key) if fair.key else ''}")


def _fair_lane(base: str, buckets: Iterable[Bucket], own: str) -> str:
    gates, _, keyed = limited_lane("", buckets)[1:].partition("=")
    names = ["**" if gates or keyed else "*", *([gates] if gates else [])]
    return f"{base}#{','.join(names)}={','.join([own, *([keyed] if keyed else [])])}"


def home_lane(queue: str, kind: str, buckets: Iterable[Bucket], fair: FairKey | None) -> str:
    """Where a new job stands."""
    base = base_lane(queue, kind)
    if fair is not None:
        return fair_lane(base, buckets, fair)
    return limited_lane(base, buckets) if buckets else base


def relaned(home: str, buckets: Iterable[Bucket]) -> str:
    """Where a job stands that names other buckets than in its home; its fair key stays.

    >>> relaned("email/async#*=1*acme", [Bucket("api")])
    'email/async#**,api=1*acme'
    """
    base = base_of(home)
    if not is_fair(home):
        return limited_lane(base, buckets)
    return _fair_lane(base, buckets, home[len(base) :].partition("=")[2].partition(",")[0])


def is_fair(lane: str) -> bool:
    """Whether a lane, or a group of lanes, is one of fair keys."""
    return lane.startswith("#*", len(base_of(lane)))


@lru_cache(maxsize=1024)
def is_limited(lane: str) -> bool:
    """Whether the jobs of a lane, or of a group of lanes, need room somewhere."""
    start = len(base_of(lane))
    return lane.startswith("#", start) and not lane.startswith("#*=", start)


def weight_of(lane: str) -> float:
    """The weight of the fair key that a lane belongs to."""
    return float(lane[len(base_of(lane)) :].partition("=")[2].partition("*")[0])


@lru_cache(maxsize=1024)
def limits_in(lane: str) -> frozenset[str]:
    """What a lane calls the limits that its jobs name, with or without a key.

    >>> sorted(limits_in("email/async#api=tenant=7!")), limits_in("email/async")
    (['api', 'tenant'], frozenset())
    """
    gates, _, keyed = lane.partition("?")[0].partition("#")[2].partition("=")
    names = {*gates.rstrip("!").split(","), *(each.partition("=")[0] for each in keyed.split(","))}
    return frozenset(names) - {""}


def _label(name: str) -> str:
    """A name as a lane may hold it: short, and without the signs that lanes are written with."""
    if _PLAIN.fullmatch(name):
        return name
    return "~" + hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=10).hexdigest()
