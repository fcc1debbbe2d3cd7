"""Results of parts of a flow, read from the store: of one job, or of the members of a group, page by page.

A result is the JSON that the job stored. The result of a group is a JSON list of the results of its members, in their
order; the ids of the members follow from the id of the join. Members that ended badly have no result: only a group with
``on_failure="partial"`` has a result then, without them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from math import inf
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from mainspring.common.ids import derived_id, id_text
from mainspring.errors import ResultGone
from mainspring.flows.shape import member_id
from mainspring.jobs.query import Query, flow_mark
from mainspring.jobs.records import JobBody, JobRow
from mainspring.states import Reason, State

if TYPE_CHECKING:
    from mainspring.stores.base import Store

_REPLACED = b'{"$mainspring.replaced_by":"'
PAGE = 500
"""Members whose results are read at once."""

_decode_body = msgspec.json.Decoder(JobBody).decode


class ReplacedBy(NamedTuple):
    """In place of a result: the job whose result it is, because the task returned a flow."""

    job: UUID

    def encode(self) -> bytes:
        return _REPLACED + str(self.job).encode() + b'"}'

    @classmethod
    def decode(cls, result: bytes) -> ReplacedBy | None:
        """What a stored result stands for; None for an ordinary result."""
        if not result.startswith(_REPLACED):
            return None
        return cls(UUID(result[len(_REPLACED) : -2].decode()))


class ResultsTooLarge(Exception):
    """The results take more than the limit."""


async def read_result(store: Store, row: JobRow, limit: float = inf) -> bytes:
    """The result of an ended job or join as JSON; ``null`` for a job that was bypassed. ``ResultGone`` without one,
    ``ResultsTooLarge`` as soon as the results that were read take more than ``limit`` bytes.
    """
    if row.state is State.CANCELLED and row.reason is Reason.BYPASSED:
        return b"null"
    if row.result is not None:
        other = ReplacedBy.decode(row.result)
        if other is None and len(row.result) > limit:
            raise ResultsTooLarge
        if other is None:
            return row.result
        found = await rows_of(store, [other.job.bytes])
        if other.job.bytes not in found:
            raise ResultGone(str(other.job), "the job was deleted")
        return await read_result(store, found[other.job.bytes], limit)
    if is_join(row):
        return b"[%b]" % b",".join([value async for _, value in member_results(store, row, limit)])
    raise ResultGone(id_text(row.id), "none was kept")


def is_join(row: JobRow) -> bool:
    """Whether the row is a join, which has the results of its members."""
    return b'"members":' in row.record and _decode_body(row.record).members is not None


def flow_of(row: JobRow) -> str | None:
    """The mark of the jobs of its flow; None if it belongs to none."""
    flow = _decode_body(row.record).flow if b'"flow":' in row.record else None
    return None if flow is None else flow_mark(bytes.fromhex(flow))


async def member_results(store: Store, join: JobRow, limit: float = inf) -> AsyncIterator[tuple[int, bytes]]:
    """The members of a group that have a result: their numbers, and the results as JSON."""
    body = _decode_body(join.record)
    n = body.members or 0
    if n < 0:
        n = await _count_elements(store, join)
    for first in range(0, n, PAGE):
        ids = [member_id(join.id, each) for each in range(first, min(n, first + PAGE))]
        rows = await rows_of(store, ids)
        for number, id in enumerate(ids, first):
            row = rows.get(id)
            if row is None:
                raise ResultGone(id_text(id), "the job was deleted")
            if row.state is State.SUCCEEDED or row.reason is Reason.BYPASSED:
                value = await read_result(store, row, limit)
                limit -= len(value) + 1
                yield number, value
            elif not body.partial:
                raise ResultGone(id_text(id), f"the job of task {row.task!r} is {row.state.value}")


async def _count_elements(store: Store, join: JobRow) -> int:
    """How many jobs ``each`` made: the result of its built-in job. The join may have more members, which were added."""
    id = derived_id(join.id, b"each")
    row = (await rows_of(store, [id])).get(id)
    if row is None or row.result is None:
        raise ResultGone(id_text(id), "the job was deleted")
    return int(row.result)


async def rows_of(store: Store, ids: list[bytes]) -> dict[bytes, JobRow]:
    """The jobs with these ids, live or ended."""
    found: dict[bytes, JobRow] = {}
    cursor: str | None = None
    query = Query(ids=tuple(ids))
    while True:
        page = await store.find(query, limit=len(ids), cursor=cursor)
        found.update((row.id, row) for row in page.jobs)
        cursor = page.cursor
        if cursor is None:
            return found
