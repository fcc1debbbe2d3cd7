"""Limits, their buckets, and guests: places outside of a claim."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final, LiteralString

import msgspec

from mainspring.breakers.records import BreakerRow
from mainspring.common.text import storable
from mainspring.jobs.lanes import bucket_label
from mainspring.limits.records import Bucket, BucketRow, HolderRow, HoldResult, Limit, LimitRow
from mainspring.stores.postgres.arrays import INT_MAX, numbers
from mainspring.stores.postgres.session import Params, Rows
from mainspring.stores.postgres.statements import fill

DECLARE = "select {schema}.declare_v1(%(limits)s::jsonb)"
SET_SIZE = "select {schema}.set_size_v1(%(limit)s::text, %(size)s::bigint)"
FORGET = "select {schema}.forget_limit_v1(%(limit)s::text)"
STIR = "select woken, more from {schema}.stir_v1(1000)"
LIMITS = "select name, kind, size, per, burst, share, span, set_size from {schema}.limits order by name"
_LOOK = "select * from {schema}.look_at_v1(%(names)b::text[], %(costs)s::bigint[], %(now)s::bigint)"
_ADMIT = """
select * from {schema}.admit_v1(
    %(guest)b::bytea, %(names)b::text[], %(costs)s::bigint[], %(ttl)s::bigint, %(limits)s::jsonb, %(keep)s::bigint,
    %(info)b::bytea, %(fenced)s::boolean, %(now)s::bigint
)
"""
_GUESTS = """
select bucket, guest, token, since, until, remaining, info from {schema}.guests_in_v1(
    %(bucket)s::text, %(after)s::text, %(limit)s::integer, %(now)s::bigint
)
"""
_GIVE = "select * from {schema}.give_v1(%(guest)b::bytea, %(spent)s::jsonb, %(slow)s::bigint, %(now)s::bigint)"
TRIP = "select {schema}.trip_v1(%(name)s::text, %(span)s::bigint, %(now)s::bigint)"
TELL = """
select * from {schema}.tell_v1(
    %(name)s::text, %(started)s::bigint, %(good)s::bigint, %(fault)s::text, %(now)s::bigint
)
"""
breaker_row = msgspec.json.Decoder(BreakerRow).decode
_LONGEST: Final = 1000
"""Bytes of a name that an index takes."""


def stored_name(bucket: Bucket) -> str:
    """The name of a bucket in the tables: a key that is too long, or odd, is hashed."""
    name = bucket.name
    if storable(name) and len(name.encode()) <= _LONGEST:
        return name
    return f"{bucket.limit}=~{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=16).hexdigest()}"


def costs_of(buckets: Iterable[Bucket]) -> dict[str, int]:
    """What a start uses up, by stored name, in the order of names; costs of one that is named twice add up."""
    found: dict[str, int] = {}
    for bucket in buckets:
        name = stored_name(bucket)
        found[name] = found.get(name, 0) + bucket.cost
    return dict(sorted(found.items()))


def named(names: Sequence[str] | None, costs: Sequence[int] | None) -> tuple[Bucket, ...]:
    """The buckets of a job as its row has them."""
    parts = [name.partition("=") for name in names or ()]
    return tuple(
        Bucket(limit, key, cost) for (limit, _, key), cost in zip(parts, costs or [1] * len(parts), strict=True)
    )


def limits_json(limits: Sequence[Limit]) -> str | None:
    """As statements take them, each name once, the last; None for none."""
    return msgspec.json.encode(list({limit.name: limit for limit in limits}.values())).decode() if limits else None


def labelled_json(buckets: Sequence[Bucket]) -> str | None:
    """Buckets for a job that is stored already: each with its cost and with what lanes call it; None for none."""
    if not buckets:
        return None
    labels = {stored_name(bucket): bucket_label(bucket) for bucket in buckets}
    return msgspec.json.encode([(name, cost, labels[name]) for name, cost in costs_of(buckets).items()]).decode()


def spent_json(spent: Sequence[tuple[str, int]]) -> str | None:
    return msgspec.json.encode(dict(spent)).decode() if spent else None


def storable_use(spent: Sequence[tuple[str, int]], slow: int) -> bool:
    return abs(slow) < INT_MAX and all(storable(limit) and abs(cost) < INT_MAX for limit, cost in spent)


def limit_row(row: tuple[str, str, int, int, int, int, int, int | None]) -> LimitRow:
    name, kind, size, per, burst, share, span, instead = row
    made = {"name": name, "kind": kind, "size": size, "per": per, "burst": burst, "share": share, "span": span}
    return LimitRow(limit=msgspec.convert(made, Limit), size=instead)


def look(buckets: Sequence[Bucket], schema: str, now: int | None) -> tuple[LiteralString, Params]:
    return fill(_LOOK, schema), {
        "names": [stored_name(bucket) for bucket in buckets],
        "costs": numbers(bucket.cost for bucket in buckets),
        "now": now,
    }


def bucket_rows(buckets: Sequence[Bucket], rows: Rows) -> list[BucketRow]:
    return [
        BucketRow(
            name=buckets[at - 1].name,
            limit=buckets[at - 1].limit,
            kind=kind,
            size=size,
            used=used,
            next_at=next_at,
            holders=tuple(holders),
            breaker=None if breaker is None else breaker_row(breaker),
        )
        for at, kind, size, used, next_at, holders, breaker in rows
    ]


def admit(
    guest: bytes, buckets: Sequence[Bucket], ttl: int, limits: Sequence[Limit], keep: int, *, info: bytes, fenced: bool,
    schema: str, now: int | None,
) -> tuple[LiteralString, Params]:  # fmt: skip
    costs = costs_of(buckets)
    return fill(_ADMIT, schema), {
        "guest": guest,
        "info": info,
        "fenced": fenced,
        "names": list(costs),
        "costs": numbers(costs.values()),
        "ttl": ttl,
        "limits": limits_json(limits),
        "keep": keep,
        "now": now,
    }


def taken(buckets: Sequence[Bucket], rows: Rows) -> HoldResult:
    ((ok, now, until, next_at, full_at, kept, news, token, _),) = rows
    full = ""
    if full_at is not None:
        names = {stored_name(bucket): bucket.name for bucket in buckets}
        full = names[list(costs_of(buckets))[full_at - 1]]
    breakers = tuple(map(breaker_row, news))
    return HoldResult(
        ok=ok, now=now, until=until, next_at=next_at, full=full, kept=kept, breakers=breakers, token=token
    )


def give(
    guest: bytes, spent: Sequence[tuple[str, int]], slow: int, *, schema: str, now: int | None
) -> tuple[LiteralString, Params]:
    return fill(_GIVE, schema), {"guest": guest, "spent": spent_json(spent), "slow": slow, "now": now}


def guests(of: Bucket | str, limit: int, *, schema: str, now: int | None) -> tuple[LiteralString, Params]:
    first, after = (stored_name(of), None) if isinstance(of, Bucket) else (of, of + chr(0x10FFFF))
    return fill(_GUESTS, schema), {"bucket": first, "after": after, "limit": limit, "now": now}


def guest_rows(of: Bucket | str, rows: Rows) -> list[HolderRow]:
    return [
        HolderRow(
            holder=guest, bucket=of.name if isinstance(of, Bucket) else bucket, token=token, since=since, until=until,
            left=left, info=info,
        )
        for bucket, guest, token, since, until, left, info in rows
    ]  # fmt: skip
