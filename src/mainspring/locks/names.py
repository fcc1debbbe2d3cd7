"""What locks are called in the store: each is a bucket, and who holds it is a guest in it."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption
from mainspring.limits.records import Bucket, Limit

Kind = Literal["lock", "semaphore", "election"]

SHORTEST = 100_000
"""Microseconds of the shortest ttl."""
PREFIX = "locks/"
"""What the buckets of all locks begin with."""
_ONE = {"lock": f"{PREFIX}lock", "election": f"{PREFIX}election"}
"""One limit of size 1 serves all locks of a kind, which are its keys: names may come and go by the million."""
_SEMAPHORE = f"{PREFIX}semaphore/"


class LockName(NamedTuple):
    """What one wants to hold: a lock, an office, or one of the places of a semaphore."""

    kind: Kind
    name: str
    size: int = 1

    @property
    def bucket(self) -> Bucket:
        return Bucket(self.limit.name) if self.kind == "semaphore" else Bucket(self.limit.name, self.name)

    @property
    def limit(self) -> Limit:
        return Limit(name=_ONE.get(self.kind) or _SEMAPHORE + self.name, size=self.size)

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def spot_of(bucket: str) -> tuple[Kind, str]:
    """Kind and name of the lock whose bucket it is."""
    if bucket.startswith(_SEMAPHORE):
        return "semaphore", bucket.removeprefix(_SEMAPHORE)
    limit, _, name = bucket.partition("=")
    return ("election" if limit == _ONE["election"] else "lock"), name


def is_fixed(limit: str) -> bool:
    """Whether it is the limit of all locks, or of all elections, which let one through and never more."""
    return limit in _ONE.values()


# ---- what may be declared ---------------------------------------------------------------------------


def checked_name(kind: Kind, value: Any) -> str:
    """A name that every store can keep. That of a semaphore is the name of a limit too."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\s\x00-\x1f\x7f\ud800-\udfff]{1,200}", value):
        hint = f'1 to 200 characters without spaces: app.{kind}("nightly-report")'
        raise InvalidOption("name", value, f"is no name for a {kind}", hint=hint)
    if kind == "semaphore" and "=" in value:
        raise InvalidOption("name", value, "is no name for a semaphore: it has a =", hint="Use another sign.")
    return value


def checked_size(value: Any, subject: str) -> int:
    if type(value) is not int or not 1 <= value <= 1_000_000:
        hint = "So many hold it at once; for one at a time take app.lock(name)."
        raise InvalidOption("size", value, "must be a whole number from 1 to 1,000,000", subject=subject, hint=hint)
    return value


def checked_ttl(value: Duration, subject: str, name: str = "ttl") -> int:
    """Microseconds, enough for a renewal in time."""
    span = to_us(value, what=name, allow_negative=True)
    if span < SHORTEST:
        hint = f'It is renewed each third of that while its process lives: {name}="30s" is good for most.'
        raise InvalidOption(name, value, "must be at least 100ms", subject=subject, hint=hint)
    return span


def checked_wait(value: Duration | None, subject: str) -> float:
    """Seconds; none for None."""
    span = 0 if value is None else to_us(value, what="wait", allow_negative=True)
    if span < 0:
        hint = 'wait="10s" waits so long for who holds it; without it nobody waits.'
        raise InvalidOption("wait", value, "cannot be negative", subject=subject, hint=hint)
    return span / 1e6
