"""Flows: edges as the scripts read them, and the calls that only flows need. ``lua/_flows.lua`` has edges and joins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from mainspring.errors import StoreConflict
from mainspring.jobs.records import ActResult, Edge, FlowRetry, JoinRow
from mainspring.stores.shared.retries import distinct_retries

from . import rows
from .driver.client import RedisClient
from .driver.constants import EDGE_CODE_MEMBER, EDGE_CODES, JOIN_FIELDS, REFUSED_NO_PARENT, STATES

SLICE: Final = 1_000
"""Jobs that are read at once."""

_CODES: Final = {policy: bytes([code]) for policy, code in EDGE_CODES.items()}
_POLICIES: Final[dict[int, Any]] = {code: policy for policy, code in EDGE_CODES.items()}
"""The edge of a member has no policy of its own."""
_MEMBER: Final = bytes([EDGE_CODE_MEMBER])


def pack_edges(after: Sequence[Edge], before: Sequence[bytes]) -> bytes:
    """The edges to the parents of a job, and behind them the jobs that wait for it."""
    edges = [edge.parent + _CODES[edge.policy] for edge in after]
    return b"".join([*edges, *(job + _MEMBER for job in before)])


def no_parent(child: bytes, parent: bytes) -> Exception:
    return StoreConflict(
        f"job {UUID(bytes=child)} waits for job {UUID(bytes=parent)}, which does not exist",
        hint="Enqueue the parent first or in the same batch. It may have been deleted or pruned.",
    )


async def close_join(client: RedisClient, join: bytes) -> JoinRow | None:
    numbers = await client.run("close_join", join)
    return _join_row(join, numbers) if numbers else None


async def joins(client: RedisClient, ids: Sequence[bytes]) -> list[JoinRow]:
    found = []
    for start in range(0, len(ids), SLICE):
        some = ids[start : start + SLICE]
        stored = await client.command("HMGET", client.key("jobs"), *some)
        for job, raw in zip(some, stored, strict=True):
            numbers = rows.read(raw).more.j if raw else ()
            if numbers:
                found.append(_join_row(job, numbers))
    return found


async def waits_for(client: RedisClient, job: bytes, limit: int) -> list[Edge]:
    if limit <= 0:
        return []
    words = await client.run("waits_for", job, limit)
    return [Edge(parent, _POLICIES.get(code, "fail")) for parent, code in zip(words[::2], words[1::2], strict=True)]


async def retry_flow(client: RedisClient, retries: Sequence[FlowRetry]) -> ActResult:
    words = [word for each in distinct_retries(retries) for word in (each.id, pack_edges(each.after, each.before))]
    reply = await client.run("retry_flow", *words)
    if reply[0] == REFUSED_NO_PARENT.encode():
        raise no_parent(*reply[1:])
    done, refused, held = reply
    return ActResult(
        tuple(done),
        tuple((job, STATES[state - 1]) for job, state in refused),
        held=tuple((job, holder) for job, holder in held),
    )


def _join_row(join: bytes, numbers: Sequence[int]) -> JoinRow:
    named = dict(zip(JOIN_FIELDS, numbers, strict=True))
    del named["lenient"]
    return JoinRow(id=join, open=bool(named.pop("open")), **named)
