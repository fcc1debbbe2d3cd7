"""Retry a failed flow: in one step, or in slices behind a *retry join*.

The jobs that did not succeed get a new epoch and the edges that their records name (``Store.retry_flow``). Up to
``RETRIED_AT_ONCE`` jobs are one step. More jobs are retried in slices:

1. The retry join is enqueued. It is open, and has no members.
2. The jobs are retried, ``RETRIED_AT_ONCE`` at a time: the root first, joins before their members, parents before the
   jobs that wait for them. Each join waits for the retry join as well, so no join ends before all of its members wait
   or run again. Other jobs run as soon as they can.
3. The retry join is closed.

The id of the retry join follows from the flow and its epoch. A second call finds the open join of a call that was
killed, and goes on: it takes the jobs that ended before the join was enqueued, so no job is retried twice. If no second
call comes, the retry join expires after ``HOLD``, and the flow fails again.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator
from itertools import count
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from mainspring.common.ids import derived_id
from mainspring.errors import KeyTaken, WrongState
from mainspring.flows.info import shape_of
from mainspring.flows.results import rows_of
from mainspring.flows.shape import FLOW_QUEUE, GROUP_TASK
from mainspring.jobs.query import Query, flow_mark
from mainspring.jobs.records import Edge, FlowRetry, JobBatch, JobBody, JobRow, Join, NewJob
from mainspring.states import State
from mainspring.stores.base import MOST_RETRIED

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.stores.base import Store

RETRIED_AT_ONCE = MOST_RETRIED
"""The largest number of jobs that are retried in one step."""
HOLD = 3_600_000_000
"""Microseconds after which a retry that was not finished expires."""
PAGE = 500

_decode_body = msgspec.json.Decoder(JobBody).decode
_encode = msgspec.json.Encoder().encode


async def retry_flow(app: Mainspring, store: Store, root: JobRow) -> int:
    """Retry the jobs of the flow that did not succeed. Returns how many jobs this call has retried."""
    hold = await _find_hold(store, root)
    if root.state is not State.CANCELLED and not hold.exists:
        raise WrongState(UUID(bytes=root.id), "retry", root.state, frozenset({State.CANCELLED}))
    failed = await _read_failed(store, root, hold.since)
    if root.state is State.CANCELLED and len(failed.retries) < RETRIED_AT_ONCE:
        return len((await store.retry_flow([FlowRetry(root.id), *failed.retries.values()])).done)
    if not hold.exists:
        await app.client.enqueue(JobBatch(id=hold.id, jobs=(_retry_join(root.id, hold.id),), retry=True))
    done = await _retry_root(store, root, hold.id)
    for some in _slices(failed.in_order(hold.id)):
        done += len((await store.retry_flow(some)).done)
    await store.close_join(hold.id)
    return done


class _RetryJoin(NamedTuple):
    """The retry join of a flow."""

    id: bytes
    exists: bool = False
    since: int | None = None
    """When it was enqueued."""


class _FailedJobs(NamedTuple):
    """The jobs of a flow that are to be retried."""

    retries: dict[bytes, FlowRetry]
    joins: set[bytes]
    """All joins of the flow."""
    parents: dict[bytes, list[Edge]]
    """What a job waits for besides its own edges: jobs that a member of the flow has added in its place."""

    def in_order(self, hold: bytes) -> Iterator[FlowRetry]:
        """The jobs, each after its joins and its parents; a join also waits for the retry join."""
        retries = {id: self._complete(retry, hold) for id, retry in self.retries.items()}
        later: dict[bytes, list[bytes]] = defaultdict(list)
        missing: dict[bytes, int] = {}
        for id, retry in retries.items():
            first = {edge.parent for edge in retry.after} | {join for join in retry.before if join in self.joins}
            first &= retries.keys()
            missing[id] = len(first)
            for each in first:
                later[each].append(id)
        free = deque(id for id, n in missing.items() if not n)
        while free:
            id = free.popleft()
            yield retries.pop(id)
            for each in later[id]:
                missing[each] -= 1
                if not missing[each]:
                    free.append(each)
        yield from retries.values()

    def _complete(self, retry: FlowRetry, hold: bytes) -> FlowRetry:
        if retry.id in self.joins:
            return FlowRetry(retry.id, (*retry.after, Edge(hold)), retry.before)
        after = {edge.parent: edge for edge in (*self.parents.get(retry.id, ()), *retry.after)}
        return FlowRetry(retry.id, tuple(after.values()), retry.before)


def _slices(retries: Iterator[FlowRetry]) -> Iterator[list[FlowRetry]]:
    some: list[FlowRetry] = []
    for retry in retries:
        some.append(retry)
        if len(some) == RETRIED_AT_ONCE:
            yield some
            some = []
    if some:
        yield some


async def _find_hold(store: Store, root: JobRow) -> _RetryJoin:
    """The open retry join of an unfinished retry; otherwise the one that the next retry can make."""
    epoch = root.epoch if root.state is State.CANCELLED else root.epoch - 1
    for n in count():
        id = derived_id(root.id, b"retry", b"%d.%d" % (epoch, n))
        found = await store.joins([id])
        if not found:
            return _RetryJoin(id)
        if found[0].open and (row := (await rows_of(store, [id])).get(id)) is not None:
            return _RetryJoin(id, exists=True, since=row.enqueued)
    raise AssertionError


def _retry_join(root: bytes, id: bytes) -> NewJob:
    """It has no mark of the flow: the end of the flow would cancel it before the root is retried."""
    body = JobBody(flow=root.hex(), members=0)
    return NewJob(id=id, task=GROUP_TASK, queue=FLOW_QUEUE, join=Join(open=True), record=_encode(body), expires_in=HOLD)


async def _retry_root(store: Store, root: JobRow, hold: bytes) -> int:
    """Retry the root alone, so that nothing else is retried while another flow holds its key."""
    if root.state is not State.CANCELLED:
        return 0
    said = await store.retry_flow([FlowRetry(root.id, (Edge(hold),))])
    if said.held:
        await store.close_join(hold)
        raise KeyTaken(root.task, UUID(bytes=said.held[0][1]))
    return len(said.done)


async def _read_failed(store: Store, root: JobRow, until: int | None) -> _FailedJobs:
    """The jobs of the flow that ended without success, up to that moment."""
    undone = {node.id for node in shape_of(root).nodes if node.kind == "undo"}
    query, cursor = Query(marks=(flow_mark(root.id),)), None
    found = _FailedJobs({}, set(), {})
    added: list[tuple[bytes, tuple[bytes, ...]]] = []
    while True:
        page = await store.find(query, limit=PAGE, cursor=cursor)
        for row in page.jobs:
            if row.id.hex() in undone and row.state not in (State.CANCELLED, State.BLOCKED):
                raise WrongState(UUID(bytes=root.id), "retry after its compensations have run", root.state, frozenset())
            if row.state is State.SUCCEEDED:
                continue
            body = _decode_body(row.record)
            before = tuple(map(bytes.fromhex, body.before))
            if body.members is not None:
                found.joins.add(row.id)
            if before:
                added.append((row.id, before))
            if row.state in (State.DEAD, State.CANCELLED) and (until is None or (row.finished or 0) <= until):
                after = tuple(Edge(bytes.fromhex(parent), policy) for parent, policy in body.after)  # type: ignore[arg-type]  # the planner wrote them
                found.retries[row.id] = FlowRetry(row.id, after, before)
        cursor = page.cursor
        if cursor is None:
            break
    for id, before in added:
        for job in before:
            if job not in found.joins and job in found.retries:
                found.parents.setdefault(job, []).append(Edge(id))
    return found
