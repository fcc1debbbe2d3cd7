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
from mainspring.flows.plan import FlowPlan, FlowPlanner, kind_of, plan_flow
from mainspring.flows.shape import FlowShape, decode_shape
from mainspring.jobs.call import Call
from mainspring.jobs.job import Job
from mainspring.jobs.query import Query
from mainspring.jobs.records import Edge, JobBatch, JobBody, NewJob

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.new_job import JobOrigin
    from mainspring.stores.base import Store

PIECE = 1_000
"""The largest number of jobs, and of joins, that are inserted in one step; of jobs and joins in a piece of a larger
flow."""
PIECE_BYTES = 4_000_000
"""The largest size of the records of one piece."""
HOLD = 3_600_000_000
"""Microseconds after which a flow that was not enqueued to its end expires."""

_decode_body = msgspec.json.Decoder(JobBody).decode


def enqueue_flow(flow: Flow[Any], origin: JobOrigin | None = None) -> Job[Any]:
    """Insert the flow in this thread; see :func:`aenqueue_flow`."""
    app, connection = app_beside(flow), _connection(flow)
    if origin is None and blocking.in_loop():
        blocking.warn_blocking("enqueue")
    plan = _plan_one_piece(flow, connection, origin)
    if plan is None:
        return blocking.run("flow.enqueue", _send_pieces(app, flow, _new_id(origin), origin))
    try:
        replies = app.client.enqueue_now(_batch(app, plan.jobs, plan, 0, origin), connection)
    except KeyTaken as error:
        return blocking.run("flow.enqueue", _return_holder(app, flow, plan, error))
    return _handle(app, plan, created=replies[0].created)


async def aenqueue_flow(flow: Flow[Any], origin: JobOrigin | None = None) -> Job[Any]:
    """Insert all jobs of the flow, or none; return the handle of its last job.

    ``origin``: the flow is the child of a running job. An attempt that is repeated gets the flow that is there.
    """
    app, connection = app_beside(flow), _connection(flow)
    plan = _plan_one_piece(flow, connection, origin)
    if plan is None:
        return await _send_pieces(app, flow, _new_id(origin), origin)
    batch = _batch(app, plan.jobs, plan, 0, origin)
    try:
        if connection is not None:
            replies = app.client.enqueue_now(batch, connection)
        else:
            replies = await app.client.enqueue(batch)
    except KeyTaken as error:
        return await _return_holder(app, flow, plan, error)
    return _handle(app, plan, created=replies[0].created)


def add_to_flow(app: Mainspring, flow: Flow[Any], place: FlowMembership) -> tuple[JobBatch, Job[Any]]:
    """The batch that adds this part to a flow that is there already, and the handle of its last job."""
    plan = FlowPlanner(app, place.flow, {}).plan_members(
        flow, place.id, place.after, place.before, undoable=place.undoable
    )
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
    undoable: bool = False
    """See :class:`mainspring.jobs.records.JobBody`."""


def _plan_one_piece(flow: Flow[Any], connection: Any, origin: JobOrigin | None) -> FlowPlan | None:
    """The jobs of a flow that is inserted in one step; None for a larger one, whose jobs also wait for a start join."""
    if connection is None and _count_calls(flow) > PIECE:
        return None  # without planning it twice
    plan = plan_flow(flow, _new_id(origin), origin=origin)
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


def _new_id(origin: JobOrigin | None) -> bytes:
    return raw_id() if origin is None else origin.id


def _batch(
    app: Mainspring, jobs: Sequence[NewJob], plan: FlowPlan, number: int, origin: JobOrigin | None, *,
    retry: bool = False,
) -> JobBatch:  # fmt: skip
    """The child of a running job is sent as a repeat and as accepted work: see ``jobs.call.prepare``."""
    batch = JobBatch(
        id=derived_id(plan.id, b"piece", b"%d" % number), jobs=tuple(jobs), limits=plan.limits,
        retry=retry or origin is not None, accepted=origin is not None,
    )  # fmt: skip
    return app.tasks.declared_queues.add_settings(batch)


def _handle(app: Mainspring, plan: FlowPlan, *, created: bool = True) -> Job[Any]:
    return Job(plan.exit, plan.task, app.client, plan.decode, created=created)


async def _return_holder(app: Mainspring, flow: Flow[Any], plan: FlowPlan, error: KeyTaken) -> Job[Any]:
    """The handle of the flow that holds the key, unless the key says that this is an error."""
    key = flow.settings["key"] if isinstance(flow, PlannedFlow) else None
    if key is None or key.on_conflict == "error":
        raise error
    shape = await _check_kind(app, flow, error)
    last = error.holder.bytes if shape is None else bytes.fromhex(shape.last)
    return Job(last, plan.task, app.client, plan.decode, created=False)


async def _check_kind(app: Mainspring, flow: Flow[Any], error: KeyTaken) -> FlowShape | None:
    """The shape of the flow that holds the key. ``KeyTaken`` if it consists of other tasks than this flow."""
    shape = await find_holder(app, error)
    if shape is not None and shape.kind != kind_of(flow):
        raise other_flow(error, "another flow, which consists of other tasks")
    return shape


async def find_holder(app: Mainspring, error: KeyTaken) -> FlowShape | None:
    """The shape of the flow that holds the key; None if it was deleted meanwhile."""
    store = await app.client.store()
    found = await store.find(Query.of(error.holder))
    shape = _decode_body(found.jobs[0].record).shape if found.jobs else msgspec.UNSET
    return None if shape is msgspec.UNSET else decode_shape(shape)


def other_flow(error: KeyTaken, holder: str) -> KeyTaken:
    """The error of a key that a flow holds which cannot stand for this one."""
    why = f"the key is held by {holder} ({error.holder}); nothing was enqueued"
    hint = 'All flows and batches share their keys. Say in the key what it is for: key="import:7", key="report:7".'
    return KeyTaken(error.task, error.holder, why=why, hint=hint)


# ---- many pieces --------------------------------------------------------------------------------------


async def _send_pieces(app: Mainspring, flow: Flow[Any], id: bytes, origin: JobOrigin | None) -> Job[Any]:
    plan = plan_flow(flow, id, HOLD, origin)
    pieces = list(_pieces(plan.jobs))
    resumed = False
    try:
        await app.client.enqueue(_batch(app, pieces[0], plan, 0, origin))
    except KeyTaken as error:
        if not await _is_unfinished(await app.client.store(), error.holder.bytes):
            return await _return_holder(app, flow, plan, error)
        await _check_kind(app, flow, error)
        plan, resumed = plan_flow(flow, error.holder.bytes, HOLD, origin), True
        pieces = list(_pieces(plan.jobs))
    for number, jobs in enumerate(pieces[0 if resumed else 1 :], 0 if resumed else 1):
        await app.client.enqueue(_batch(app, jobs, plan, number, origin, retry=resumed))
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
