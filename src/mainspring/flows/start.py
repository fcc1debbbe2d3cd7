"""Enqueue a flow: small ones in one step, large ones in pieces behind a start join.

A flow of up to ``PIECE`` jobs, and as many joins, is one batch: all of it is inserted, or nothing. A larger flow is
sent in pieces. Its first jobs wait for the *start join*, which is closed when the last piece is in. So a producer that
dies in between leaves nothing half-started: after ``HOLD`` the start join expires, and with it the flow. With a key
the producer can repeat the enqueue before that: it finds the flow by its key, sends all pieces again, and the store
inserts what is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.client import blocking
from mainspring.common.ids import derived_id, raw_id
from mainspring.errors import InvalidOption, KeyTaken
from mainspring.flows.dag import parts_of
from mainspring.flows.flow import Flow, PlannedFlow, app_beside
from mainspring.flows.plan import FlowPlan, FlowPlanner, plan_flow
from mainspring.flows.shape import decode_shape
from mainspring.jobs.call import Call
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, JobBatch, JobBody, NewJob

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.stores.base import Store

PIECE = 1_000
"""The largest number of jobs, and of joins, that are inserted in one step; of jobs and joins in a piece of a larger
flow."""
PIECE_BYTES = 4_000_000
"""The largest size of the records of one piece."""
HOLD = 3_600_000_000
"""Microseconds after which a flow that was not enqueued to its end expires."""

_decode_body = msgspec.json.Decoder(JobBody).decode


def enqueue_flow(flow: Flow[Any]) -> Job[Any]:
    """Insert the flow in this thread; see :func:`aenqueue_flow`."""
    app, connection = app_beside(flow), _connection(flow)
    if blocking.in_loop():
        blocking.warn_blocking("enqueue")
    plan = _plan_one_piece(flow, connection)
    if plan is None:
        return blocking.run("flow.enqueue", _send_pieces(app, flow, raw_id()))
    try:
        app.client.enqueue_now(_batch(app, plan.jobs, plan, 0), connection)
    except KeyTaken as error:
        holder = blocking.run("flow.enqueue", _holder_exit(app, error))
        return _return_holder(flow, plan, error, holder)
    return _handle(app, plan)


async def aenqueue_flow(flow: Flow[Any]) -> Job[Any]:
    """Insert all jobs of the flow, or none; return the handle of its last job."""
    app, connection = app_beside(flow), _connection(flow)
    plan = _plan_one_piece(flow, connection)
    if plan is None:
        return await _send_pieces(app, flow, raw_id())
    try:
        if connection is not None:
            app.client.enqueue_now(_batch(app, plan.jobs, plan, 0), connection)
        else:
            await app.client.enqueue(_batch(app, plan.jobs, plan, 0))
    except KeyTaken as error:
        return _return_holder(flow, plan, error, await _holder_exit(app, error))
    return _handle(app, plan)


def add_to_flow(app: Mainspring, flow: Flow[Any], place: FlowMembership) -> tuple[JobBatch, Job[Any]]:
    """The batch that adds this part to a flow that is there already, and the handle of its last job."""
    plan = FlowPlanner(app, place.flow, {}).plan_members(flow, place.id, place.after, place.before)
    if not _is_one_piece(plan):
        raise InvalidOption(
            "flow", f"{len(plan.jobs):,} jobs", f"can be added up to {PIECE:,} at once", subject="flow.add",
            hint="Add the parts in several calls.",
        )  # fmt: skip
    batch = JobBatch(
        id=place.id, jobs=tuple(plan.jobs), limits=plan.limits, retry=place.accepted, accepted=place.accepted
    )
    return app.tasks.declared_queues.add_settings(batch), Job(plan.exit, plan.task, app.client, plan.decode)


class FlowMembership(NamedTuple):
    """Where a new part of a flow goes: the fields of ``worker.run.context.FlowPart``, a lower layer."""

    id: bytes
    """The id of the last job of the part."""
    flow: bytes
    before: tuple[bytes, ...]
    """The joins and jobs that wait for the part."""
    after: tuple[Edge, ...] = ()
    accepted: bool = False
    """A running job of the flow adds the part."""


def _plan_one_piece(flow: Flow[Any], connection: Any) -> FlowPlan | None:
    """The jobs of a flow that is inserted in one step; None for a larger one, whose jobs also wait for a start join."""
    if connection is None and _count_calls(flow) > PIECE:
        return None  # without planning it twice
    plan = plan_flow(flow, raw_id())
    if _is_one_piece(plan):
        return plan
    if connection is not None:
        raise _too_large_for_connection(plan)
    return None


def _count_calls(flow: Flow[Any]) -> int:
    """The calls in an expression: its jobs, without compensations and the jobs of ``each``."""
    if isinstance(flow, Call):
        return 1
    body = flow.body if isinstance(flow, PlannedFlow) else flow
    return sum(map(_count_calls, parts_of(body)))


def _is_one_piece(plan: FlowPlan) -> bool:
    """Whether the flow is inserted in one step."""
    return len(plan.jobs) <= 2 * PIECE and sum(job.join is None for job in plan.jobs) <= PIECE


# ---- one piece ----------------------------------------------------------------------------------------


def _batch(app: Mainspring, jobs: Sequence[NewJob], plan: FlowPlan, number: int, *, retry: bool = False) -> JobBatch:
    batch = JobBatch(
        id=derived_id(plan.id, b"piece", b"%d" % number), jobs=tuple(jobs), limits=plan.limits, retry=retry
    )
    return app.tasks.declared_queues.add_settings(batch)


def _handle(app: Mainspring, plan: FlowPlan, *, created: bool = True) -> Job[Any]:
    return Job(plan.exit, plan.task, app.client, plan.decode, created=created)


def _return_holder(flow: Flow[Any], plan: FlowPlan, error: KeyTaken, last: bytes) -> Job[Any]:
    """The handle of the flow that holds the key, unless the key says that this is an error."""
    key = flow.settings["key"] if isinstance(flow, PlannedFlow) else None
    if key is None or key.on_conflict == "error":
        raise error
    return Job(last, plan.task, app_beside(flow).client, plan.decode, created=False)


async def _holder_exit(app: Mainspring, error: KeyTaken) -> bytes:
    """The last job of the flow that holds the key."""
    store = await app.client.store()
    found = await store.find(Query.of(error.holder))
    shape = _decode_body(found.jobs[0].record).shape if found.jobs else msgspec.UNSET
    if shape is msgspec.UNSET:
        return error.holder.bytes
    return bytes.fromhex(decode_shape(shape).last)


# ---- many pieces --------------------------------------------------------------------------------------


async def _send_pieces(app: Mainspring, flow: Flow[Any], id: bytes) -> Job[Any]:
    plan = plan_flow(flow, id, HOLD)
    pieces = list(_pieces(plan.jobs))
    resumed = False
    try:
        await app.client.enqueue(_batch(app, pieces[0], plan, 0))
    except KeyTaken as error:
        if not await _is_unfinished(await app.client.store(), error.holder.bytes):
            return _return_holder(flow, plan, error, await _holder_exit(app, error))
        plan, resumed = plan_flow(flow, error.holder.bytes, HOLD), True
        pieces = list(_pieces(plan.jobs))
    for number, jobs in enumerate(pieces[0 if resumed else 1 :], 0 if resumed else 1):
        await app.client.enqueue(_batch(app, jobs, plan, number, retry=resumed))
    await _open_start(await app.client.store(), plan)
    return _handle(app, plan, created=not resumed)


def _pieces(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    """Slices of the jobs; the parents and the joins of a job are in its piece or an earlier one."""
    piece: list[NewJob] = []
    size = 0
    for job in jobs:
        if piece and (len(piece) >= PIECE or size + len(job.record) > PIECE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(job)
        size += len(job.record)
    if piece:
        yield piece


async def _is_unfinished(store: Store, root: bytes) -> bool:
    """Whether the start join of this flow is still open."""
    start = await store.joins([derived_id(root, b"start")])
    return bool(start) and start[0].open


async def _open_start(store: Store, plan: FlowPlan) -> None:
    """Close the joins of the flow, and the start join last: its jobs are released, in slices."""
    start = derived_id(plan.id, b"start")
    for job in plan.jobs:
        if job.join is not None and job.join.open and job.id != start and _decode_body(job.record).members != -1:
            await store.close_join(job.id)
    await store.close_join(start)
    for _ in range(len(plan.jobs) // PIECE + 1):  # the services of the fleet do the same if this process dies
        said = await store.promote()
        if said.next_due is None or said.next_due > said.now:
            return
        await asyncio.sleep(0)


# ---- options ------------------------------------------------------------------------------------------


def _connection(flow: Flow[Any]) -> Any:
    return flow.settings.get("connection") if isinstance(flow, PlannedFlow) else None


def _too_large_for_connection(plan: FlowPlan) -> InvalidOption:
    return InvalidOption(
        "connection", f"{len(plan.jobs):,} jobs", f"can be given to a flow of up to {PIECE:,} jobs and as many joins",
        subject="flow",
        hint="A larger flow is enqueued in pieces. Enqueue one job in the transaction, which enqueues the flow.",
    )  # fmt: skip
