"""The names of locks in the store. Each lock is a bucket, and its holder is a holder of that bucket."""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from mainspring.common.duration import Duration, to_us
from mainspring.errors import InvalidOption
from mainspring.limits.records import Bucket, Limit

Kind = Literal["lock", "semaphore", "election"]

SHORTEST = 100_000
"""The shortest ttl, in microseconds."""
PREFIX = "locks/"
"""The first part of the bucket names of all locks."""
_ONE = {"lock": f"{PREFIX}lock", "election": f"{PREFIX}election"}
"""One limit of size 1 serves all locks of a kind. Their names are its keys, so millions of names cost no rows."""
_SEMAPHORE = f"{PREFIX}semaphore/"


class LockName(NamedTuple):
    """The name of a lock, a semaphore or an election, with its bucket and its limit."""

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


def parse_bucket(bucket: str) -> tuple[Kind, str]:
    """Return the kind and the name of the lock of this bucket."""
    if bucket.startswith(_SEMAPHORE):
        return "semaphore", bucket.removeprefix(_SEMAPHORE)
    limit, _, name = bucket.partition("=")
    return ("election" if limit == _ONE["election"] else "lock"), name


def is_lock_limit(limit: str) -> bool:
    """Whether this is the limit of all locks or of all elections. Its size is always 1."""
    return limit in _ONE.values()


# ---- checks of declarations ---------------------------------------------------------------------------


def check_name(kind: Kind, value: Any) -> str:
    """Check that every store can keep the name. The name of a semaphore is also the name of a limit."""
    if not isinstance(value, str) or not re.fullmatch(r"[^\s\x00-\x1f\x7f\ud800-\udfff]{1,200}", value):
        hint = f'Use 1 to 200 characters without spaces: app.{kind}("nightly-report")'
        raise InvalidOption("name", value, f"is not a valid name for a {kind}", hint=hint)
    if kind == "semaphore" and "=" in value:
        raise InvalidOption(
            "name", value, "is not a valid name for a semaphore: it contains a =", hint="Use another character."
        )
    return value


def check_size(value: Any, subject: str) -> int:
    """Check the number of holders of a semaphore."""
    if type(value) is not int or not 1 <= value <= 1_000_000:
        hint = "The size is the number of holders at the same time. For one holder use app.lock(name)."
        raise InvalidOption("size", value, "must be a whole number from 1 to 1,000,000", subject=subject, hint=hint)
    return value


def check_ttl(value: Duration, subject: str, name: str = "ttl") -> int:
    """Return the ttl in microseconds. It must be long enough to renew the lock in time."""
    span = to_us(value, what=name, allow_negative=True)
    if span < SHORTEST:
        hint = f'The lock is renewed at every third of this time while its process lives. {name}="30s" fits most cases.'
        raise InvalidOption(name, value, "must be at least 100ms", subject=subject, hint=hint)
    return span


def check_wait(value: Duration | None, subject: str) -> float:
    """Return the seconds to wait; 0 for None."""
    span = 0 if value is None else to_us(value, what="wait", allow_negative=True)
    if span < 0:
        hint = 'wait="10s" waits up to 10 s for the holder. Without wait= the call does not wait.'
        raise InvalidOption("wait", value, "cannot be negative", subject=subject, hint=hint)
    return span / 1e6
