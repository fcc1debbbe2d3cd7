"""What a flow is doing: its state, its counts, and its nodes with the states of their jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import msgspec

from mainspring.common.clock import to_datetime
from mainspring.errors import WrongState
from mainspring.flows.results import rows_of
from mainspring.flows.shape import BUILT_IN, FlowShape, ShapeNode, body_of, decode_shape
from mainspring.jobs.query import Query, flow_mark
from mainspring.jobs.records import JobBody, JobRow, JoinRow
from mainspring.states import FINAL, LIVE, Reason, State

if TYPE_CHECKING:
    from mainspring.stores.base import Store

FlowState = Literal["running", "succeeded", "failed", "cancelled", "expired"]

_decode_body = msgspec.json.Decoder(JobBody).decode
PAGE = 500


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a flow, or a group whose members are shown as one."""

    id: UUID
    task: str
    kind: str
    after: tuple[UUID, ...]
    when: str
    group: UUID | None
    """The group that it is in, if that is a node as well."""
    state: str
    """The state of its job. A group is ``waiting`` for the jobs before it, then ``running`` until its members ended."""
    reason: str | None = None
    total: int = 0
    """For a group: how many members it has, and how many of them ended well and badly."""
    good: int = 0
    bad: int = 0
    progress: dict[str, object] | None = None


class FlowInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A flow or a batch."""

    id: UUID
    name: str
    state: FlowState
    """``failed``: a job of the flow did not succeed, and the rest was cancelled by it. ``cancelled``: by a user."""
    enqueued: datetime
    finished: datetime | None
    expires: datetime | None
    """When its time limit is over."""
    key: str | None
    tags: tuple[str, ...]
    jobs: int
    """How many jobs the flow has, without joins. In listings, a part that was added to a batch counts as one job, and
    additions of running jobs to other flows are not counted."""
    counts: dict[str, int] = {}
    """Jobs by state, without joins; empty in listings."""
    nodes: tuple[NodeInfo, ...] = ()
    """In the order of the expression; empty in listings."""
    last: UUID | None = None
    """The job or group whose result is the result of the flow."""


def shape_of(row: JobRow) -> FlowShape:
    """The stored shape of a flow, from the row of its root."""
    shape = _decode_body(row.record).shape
    return FlowShape() if shape is msgspec.UNSET else decode_shape(shape)


def build_flow(row: JobRow) -> FlowInfo:
    """The flow of a root, without its nodes."""
    body, shape = _decode_body(row.record), shape_of(row)
    return FlowInfo(
        id=UUID(bytes=row.id), name=shape.name or _default_name(shape), state=_state(row),
        enqueued=to_datetime(row.enqueued), finished=None if row.finished is None else to_datetime(row.finished),
        expires=None if row.expires is None else to_datetime(row.expires), key=body.key, tags=body.tags,
        jobs=shape.jobs,
        last=UUID(hex=shape.last) if shape.last else None,
    )  # fmt: skip


async def read_flow(store: Store, row: JobRow) -> FlowInfo:
    """The flow of a root with its counts and nodes."""
    shape = shape_of(row)
    rows: dict[bytes, JobRow] = {}
    ids = [bytes.fromhex(node.id) for node in shape.nodes]
    for first in range(0, len(ids), PAGE):
        rows.update(await rows_of(store, ids[first : first + PAGE]))
    joins = {found.id: found for found in await store.joins([id for id in ids if id in rows])}
    nodes = tuple(_build_node(node, rows, joins) for node in shape.nodes)
    counts, flow = await _counts(store, row.id), build_flow(row)
    body = rows.get(body_of(row.id)) or (await rows_of(store, [body_of(row.id)])).get(body_of(row.id))
    expires = flow.expires if body is None or body.expires is None else to_datetime(body.expires)
    jobs = sum(counts.values()) or flow.jobs
    return msgspec.structs.replace(flow, nodes=nodes, counts=counts, jobs=jobs, expires=expires)


async def list_flows(store: Store, rows: Sequence[JobRow]) -> list[FlowInfo]:
    """The flows of these roots, without their nodes."""
    open_joins = {row.id: _open_joins(shape_of(row)) for row in rows}
    ids = [id for joins in open_joins.values() for id in joins]
    totals = {
        join.id: join.total
        for first in range(0, len(ids), PAGE)
        for join in await store.joins(ids[first : first + PAGE])
    }
    flows = [build_flow(row) for row in rows]
    added = [sum(totals.get(id, 0) for id in open_joins[row.id]) for row in rows]
    return [msgspec.structs.replace(flow, jobs=flow.jobs + n) for flow, n in zip(flows, added, strict=True)]


def _open_joins(shape: FlowShape) -> list[bytes]:
    """The joins whose members are not known when the flow is enqueued."""
    return [bytes.fromhex(node.id) for node in shape.nodes if node.kind in ("each", "batch")]


async def _counts(store: Store, root: bytes) -> dict[str, int]:
    """Jobs by state, without joins and the built-in task."""
    found: Counter[str] = Counter()
    mark = flow_mark(root)
    for state, n in (await store.count(Query(marks=(mark,)))).items():
        found[state.value] += n
    for state, n in (await store.count(Query(marks=(mark,), tasks=tuple(sorted(BUILT_IN))))).items():
        found[state.value] -= n
    return {state: n for state, n in found.items() if n > 0}


def _build_node(node: ShapeNode, rows: Mapping[bytes, JobRow], joins: Mapping[bytes, JoinRow]) -> NodeInfo:
    id = bytes.fromhex(node.id)
    row, join = rows.get(id), joins.get(id)
    state = "deleted" if row is None else row.state.value
    if join is not None and row is not None and row.state is State.BLOCKED:
        before = [rows.get(bytes.fromhex(each)) for each in node.after]
        state = "running" if join.total and all(each is None or each.state in FINAL for each in before) else "waiting"
    return NodeInfo(
        id=UUID(bytes=id), task=node.task, kind=node.kind, after=tuple(UUID(hex=each) for each in node.after),
        when=node.when, group=UUID(hex=node.group) if node.group else None, state=state,
        reason=row.reason.value if row is not None and row.reason else None,
        total=0 if join is None else join.total,
        good=0 if join is None else join.succeeded + join.bypassed,
        bad=0 if join is None else join.dead + join.cancelled,
        progress=msgspec.json.decode(row.progress) if row is not None and row.progress else None,
    )  # fmt: skip


def _state(row: JobRow) -> FlowState:
    if row.state not in FINAL:
        return "running"
    if row.state is State.SUCCEEDED:
        return "succeeded"
    if row.reason is Reason.PARENT:
        return "failed"
    return "expired" if row.reason is Reason.EXPIRED else "cancelled"


def _default_name(shape: FlowShape) -> str:
    """The first task and the last one."""
    nodes = [node for node in shape.nodes if node.task and node.kind != "undo"]
    last = next((node for node in nodes if node.id == shape.last), nodes[-1] if nodes else None)
    if last is None:
        return "flow"
    tasks = dict.fromkeys(node.task.rpartition(".")[2] for node in (nodes[0], last))
    return " ... ".join(tasks)


def wrong_flow_state(root: JobRow, action: str, *, why: str = "", hint: str = "") -> WrongState:
    """The error for an action that a flow in this state does not allow."""
    state = build_flow(root).state
    if not hint and state == "running":
        hint = "Wait for its end, or cancel it: app.flows.join(id), app.flows.cancel(id)."
    if not hint and state == "succeeded":
        hint = "Enqueue the flow anew."
    return WrongState(UUID(bytes=root.id), action, state, what="flow", why=why, hint=hint)


async def refuse_while_jobs_run(store: Store, root: JobRow) -> None:
    """Raise ``WrongState`` if jobs of an ended flow have not ended: their cancel orders would end the retried jobs."""
    query = Query(marks=(flow_mark(root.id),), states=tuple(sorted(LIVE)))
    found = (await store.find(query, limit=1)).jobs
    if found:
        job = found[0]
        why = f"job {UUID(bytes=job.id)} of task {job.task!r} has not ended yet: it is {job.state.value}"
        raise wrong_flow_state(root, "retry", why=why, hint="Retry the flow when this job has ended.")
