"""From an expression to jobs: each part gets an id that follows from the id of the flow, its edges and its joins.

    plan_flow(flow, id)     all jobs, in an order in which parents and joins come before the jobs that name them

A part is planned with the id of its *exit* (the job or join whose result is the result of the part), the edges that it
waits for, and the joins that its exit is a member of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.common.ids import derived_id, id_of
from mainspring.errors import InvalidOption
from mainspring.flows.dag import Dag, NodeResult
from mainspring.flows.flow import Chain, Flow, Group, Link, PlannedFlow, app_beside
from mainspring.flows.shape import (
    ALIKE_SHOWN,
    BUILT_IN,
    FLOW_QUEUE,
    GROUP_TASK,
    NODES_SHOWN,
    ROOT_TASK,
    FlowShape,
    ShapeNode,
    encode_shape,
    member_id,
)
from mainspring.jobs.call import UPSTREAM, Call, Step
from mainspring.jobs.keys import claim_of
from mainspring.jobs.new_job import FlowPlace
from mainspring.jobs.query import flow_mark
from mainspring.jobs.records import FLOW_KEEP, Edge, JobBatch, JobBody, Join, NewJob
from mainspring.limits.records import Limit
from mainspring.tasks.middleware import wrap_call

if TYPE_CHECKING:
    from mainspring.app import Mainspring

MOST_NEXT = 100
"""The record of a job names the jobs that wait for it, if these are not more. Such a job can add to its flow."""

_encode = msgspec.json.Encoder().encode


class Part(NamedTuple):
    """Where a part of a flow stands."""

    exit: bytes
    """The id of the job or join whose result is the result of the part."""
    after: tuple[Edge, ...] = ()
    """What its first jobs wait for."""
    before: tuple[bytes, ...] = ()
    """The joins that its exit is a member of."""
    upstream: bytes = b""
    """The job or join whose result its steps get."""


class FlowPlan(NamedTuple):
    """The jobs of a flow, parents first."""

    id: bytes
    exit: bytes
    task: str
    jobs: list[NewJob]
    limits: tuple[Limit, ...]
    decode: Callable[[bytes], Any]


class FlowPlanner:
    """Collects the jobs of one flow."""

    def __init__(self, app: Mainspring, flow: bytes, settings: dict[str, Any], hold: int = 0) -> None:
        """``hold``: the flow is enqueued in pieces, and starts when its start join is closed, within this time."""
        self.app = app
        self.flow = flow
        self.settings = settings
        self.hold = hold
        self.start = derived_id(flow, b"start")
        self.jobs: list[NewJob] = []
        self._limits: dict[str, Limit] = {}
        self._nodes: list[ShapeNode] = []
        self._undos: list[tuple[bytes, Step[Any]]] = []
        self._body = flow
        self._group = b""
        self._is_shown = True
        self._code = app.settings.version
        self._count = 0

    def plan_members(
        self, flow: Flow[Any], last: bytes, after: tuple[Edge, ...], before: tuple[bytes, ...]
    ) -> FlowPlan:
        """The jobs that a running job, or the producer of a batch, adds to a flow that is there already."""
        if _has_undo(flow):
            hint = "Compensations belong to the flow that is enqueued as a whole."
            raise InvalidOption("undo", flow, "cannot be added to a flow that runs", subject="a flow", hint=hint)
        self._plan(flow, Part(last, after, before))
        self._note_children()
        return FlowPlan(self.flow, last, last_task(flow), self.jobs, tuple(self._limits.values()), decoder_of(flow))

    def plan(self, flow: Flow[Any]) -> FlowPlan:
        last = derived_id(self.flow, b"exit")
        root = self.make_root()
        self.jobs.append(root)
        after: tuple[Edge, ...] = ()
        if self.hold:
            self.add_join(self.start, Join(open=True), (), (), expires_in=self.hold)
            after = (Edge(self.start),)
        if _has_undo(flow):
            self._body = derived_id(self.flow, b"body")
            self.add_join(self._body, Join(open=bool(self.hold)), after, (self.flow,))
        self._plan(flow, Part(last, after, (self._body,)))
        self._plan_undos()
        self._note_children()
        shape = FlowShape(
            tuple(self._nodes[:NODES_SHOWN]), last.hex(), self.settings.get("name", ""), self._count,
            self.start.hex() if self.hold else "",
        )  # fmt: skip
        self.jobs[0] = self.with_shape(root, shape)
        return FlowPlan(self.flow, last, last_task(flow), self.jobs, tuple(self._limits.values()), decoder_of(flow))

    # ---- parts --------------------------------------------------------------------------------

    def _plan(self, flow: Flow[Any], part: Part) -> None:
        if isinstance(flow, Call):
            self._plan_call(flow, part)
        elif isinstance(flow, Chain):
            self._plan_chain(flow, part)
        elif isinstance(flow, Group):
            self._plan_group(flow, part)
        elif isinstance(flow, Dag):
            self._plan_dag(flow, part)
        else:
            raise InvalidOption("flow", flow, "cannot be a part of a flow", subject="a flow")

    def _plan_call(self, call: Call[Any], part: Part) -> None:
        before = part.before
        undo = call.undo_step if isinstance(call, Step) else None
        if undo is not None:
            self._undos.append((part.exit, undo))
            before = tuple(dict.fromkeys((*before, self._body)))
        inputs = {
            name: source.id if isinstance(source, NodeResult) else part.upstream
            for name, source in (call.inputs.items() if isinstance(call, Step) else ())
        }
        self.add_member(call, part.exit, FlowPlace(self.flow, part.after, before, inputs))
        self._show(part.exit, call.task, part.after)

    def _plan_chain(self, chain: Chain[Any], part: Part) -> None:
        ids = [derived_id(part.exit, b"part", b"%d" % n) for n in range(len(chain.links))] + [part.exit]
        self._plan(chain.first, Part(ids[0], part.after, (), part.upstream))
        for n, link in enumerate(chain.links):
            here = Part(
                ids[n + 1], (Edge(ids[n], link.when),), part.before if n == len(chain.links) - 1 else (), ids[n]
            )
            self._plan_link(link, here)

    def _plan_link(self, link: Link, part: Part) -> None:
        if link.kind == "then":
            self._plan_call(link.targets[0], part)
        elif link.kind == "after":
            self._plan(link.targets[0], part)
        elif link.kind == "fan":
            self._plan_members(link.targets, part, partial=False)
        else:
            self._plan_each(link.targets[0], part, partial=link.partial)

    def _plan_group(self, group: Group[Any], part: Part) -> None:
        self._plan_members(group.members, part, partial=group.partial)

    def _plan_members(self, members: Sequence[Flow[Any]], part: Part, *, partial: bool) -> None:
        """A join, and one part for each member. Without members the join ends with what it waits for."""
        self.add_join(
            part.exit, Join(open=bool(self.hold), lenient=partial), part.after, part.before,
            members=len(members), partial=partial,
        )  # fmt: skip
        shown = not _are_alike(members) and len(self._nodes) + len(members) <= NODES_SHOWN
        task = last_task(members[0]) if members else ""
        self._show(part.exit, task, part.after, kind="group", count=0 if shown else len(members))
        with self._inside(part.exit, shown=shown):
            for n, member in enumerate(members):
                self._plan(member, Part(member_id(part.exit, n), part.after, (part.exit,), part.upstream))

    def _plan_each(self, step: Step[Any], part: Part, *, partial: bool) -> None:
        """A join that is open, and the job that adds its members when the elements are known, and closes it."""
        expander = derived_id(part.exit, b"each")
        self.add_join(
            part.exit, Join(open=True, lenient=partial), (*part.after, Edge(expander)), part.before,
            members=-1, partial=partial,
        )  # fmt: skip
        call = self._expander(step, part.exit)
        self.add_member(call, expander, FlowPlace(self.flow, part.after, (), {"items": part.upstream}))
        self._show(part.exit, step.task, part.after, kind="each")

    def _expander(self, step: Step[Any], join: bytes) -> Call[Any]:
        from mainspring.flows.expand import expander_call

        (name, source), *more = step.inputs.items()
        if more or source is not UPSTREAM:
            raise InvalidOption("each", step.task, "cannot take the results of nodes", subject="flow.each")
        return expander_call(self.app, step, name, join)

    def _plan_dag(self, dag: Dag, part: Part) -> None:
        """The nodes; the exit is a join of the nodes that no other node waits for."""
        nodes = dag.checked_nodes()
        ids = {node: derived_id(part.exit, b"node", b"%d" % n) for n, node in enumerate(nodes)}
        for node, id in ids.items():
            node.id = id
        waited_for = {parent for node in nodes for parent in node.parents}
        self.add_join(part.exit, Join(open=bool(self.hold)), part.after, part.before, members=0)
        is_whole = part.exit == derived_id(self.flow, b"exit")
        if not is_whole:
            self._show(part.exit, "", part.after, kind="group")
        with self._inside(b"" if is_whole else part.exit):
            for node in nodes:
                after = tuple(Edge(ids[parent], node.when) for parent in node.parents) or part.after
                before = () if node in waited_for else (part.exit,)
                self._plan(node.body, Part(ids[node], after, before))

    def _plan_undos(self) -> None:
        """Compensations: a chain of jobs behind the body, the last part first. They run only if the body ends badly."""
        behind: tuple[Edge, ...] = ()
        for n, (undone, step) in enumerate(reversed(self._undos)):
            id = derived_id(self.flow, b"undo", b"%d" % n)
            after = (Edge(self._body, "failed"), *behind)
            before = (self.flow,) if n == len(self._undos) - 1 else ()
            inputs = dict.fromkeys(step.inputs, undone)
            self.add_member(step, id, FlowPlace(self.flow, after, before, inputs, undoes=True))
            self._show(id, step.task, after, kind="undo", when="ignore")
            behind = (Edge(id, "ignore"),)

    def _note_children(self) -> None:
        """Write into the record of each job which jobs wait for it."""
        children: dict[bytes, list[str]] = {}
        for job in self.jobs:
            for edge in job.after:
                children.setdefault(edge.parent, []).append(job.id.hex())
        for n, job in enumerate(self.jobs):
            found = children.get(job.id)
            if found and job.join is None and len(found) <= MOST_NEXT:
                body = msgspec.json.decode(job.record, type=JobBody)
                record = _encode(msgspec.structs.replace(body, next=tuple(found)))
                self.jobs[n] = msgspec.structs.replace(job, record=record)

    # ---- jobs ---------------------------------------------------------------------------------

    def make_root(self) -> NewJob:
        given = self.settings
        key = given.get("key")
        unique, said = (None, None) if key is None else claim_of(key, ROOT_TASK, dict, ())
        if unique is not None:  # the producer asks for the holder: see start.py
            unique = msgspec.structs.replace(
                unique, conflict="error" if unique.conflict == "return" else unique.conflict
            )
        body = JobBody(tags=given.get("tags", ()), key=said, flow=self.flow.hex(), members=0, code=self._code)
        return NewJob(
            id=self.flow, task=ROOT_TASK, queue=FLOW_QUEUE, expires_in=given.get("time_limit"), unique=unique,
            marks=given.get("tags", ()), join=Join(open=bool(self.hold)), record=_encode(body),
        )  # fmt: skip

    def with_shape(self, root: NewJob, shape: FlowShape) -> NewJob:
        """The root with the shape of its flow in the record."""
        body = msgspec.json.decode(root.record, type=JobBody)
        record = _encode(msgspec.structs.replace(body, shape=msgspec.Raw(encode_shape(shape))))
        return msgspec.structs.replace(root, record=record)

    def batch(self, id: bytes) -> JobBatch:
        """All jobs of this planner as one batch."""
        batch = JobBatch(id=id, jobs=tuple(self.jobs), limits=tuple(self._limits.values()))
        return self.app.tasks.declared_queues.add_settings(batch)

    def add_join(
        self, id: bytes, join: Join, after: tuple[Edge, ...], before: tuple[bytes, ...], *, members: int = 0,
        partial: bool = False, expires_in: int | None = None,
    ) -> None:  # fmt: skip
        body = JobBody(
            flow=self.flow.hex(), after=tuple((edge.parent.hex(), edge.policy) for edge in after),
            before=tuple(each.hex() for each in before), members=members, partial=partial, code=self._code,
        )  # fmt: skip
        self.jobs.append(
            NewJob(
                id=id,
                task=GROUP_TASK,
                queue=FLOW_QUEUE,
                after=after,
                before=before,
                join=join,
                record=_encode(body),
                marks=(flow_mark(self.flow),),
                keep=FLOW_KEEP,
                expires_in=expires_in,
            )
        )

    def add_member(self, call: Call[Any], id: bytes, place: FlowPlace) -> None:
        if self.app.enqueue_middleware:
            call = wrap_call(self.app.enqueue_middleware, call)
        _check_member(call)
        tags = self.settings.get("tags")
        if tags:
            call = call.options(tags=tags)
        self.jobs.append(call.build(self._code)._replace(place=place).job(id_of(id)))
        self._limits.update((limit.name, limit) for limit in call.limits)
        self._count += call.task not in BUILT_IN

    # ---- shape --------------------------------------------------------------------------------

    @contextmanager
    def _inside(self, group: bytes, *, shown: bool = True) -> Iterator[None]:
        """What is planned in this block is in the group; without ``shown``, it is not drawn."""
        before = self._group, self._is_shown
        self._group, self._is_shown = group, self._is_shown and shown
        yield
        self._group, self._is_shown = before

    def _show(
        self, id: bytes, task: str, after: tuple[Edge, ...], *, kind: Any = "job", when: str = "", count: int = 0
    ) -> None:
        if self._is_shown and len(self._nodes) < NODES_SHOWN:
            parents = tuple(edge.parent.hex() for edge in after if edge.parent != self.start)
            when = when or (after[0].policy if after else "fail")
            self._nodes.append(ShapeNode(id.hex(), task, kind, parents, when, self._group.hex(), count))


def plan_flow(flow: Flow[Any], id: bytes, hold: int = 0) -> FlowPlan:
    """The jobs of this expression; ``hold``: it is enqueued in pieces, within this many microseconds."""
    settings = flow.settings if isinstance(flow, PlannedFlow) else {}
    body = flow.body if isinstance(flow, PlannedFlow) else flow
    return FlowPlanner(app_beside(body), id, settings, hold).plan(body)


def last_task(flow: Flow[Any]) -> str:
    """The task whose result is the result of the part; for a group, the task of its first member."""
    if isinstance(flow, PlannedFlow):
        return last_task(flow.body)
    if isinstance(flow, Call):
        return flow.task
    if isinstance(flow, Chain):
        return last_task(flow.links[-1].targets[0])
    if isinstance(flow, Group):
        return last_task(flow.members[0]) if flow.members else GROUP_TASK
    return GROUP_TASK


def decoder_of(flow: Flow[Any]) -> Callable[[bytes], Any]:
    """Decodes the result of a part: for a group, the JSON list of the results."""
    if isinstance(flow, PlannedFlow):
        return decoder_of(flow.body)
    if isinstance(flow, Call):
        return flow.target.decode
    if isinstance(flow, Chain):
        link = flow.links[-1]
        if link.kind in ("then", "after"):
            return decoder_of(link.targets[0])
        members = [decoder_of(each) for each in link.targets]
        return _list_decoder(members, alike=link.kind == "each", partial=False)
    if isinstance(flow, Group):
        return _list_decoder([decoder_of(each) for each in flow.members], alike=False, partial=flow.partial)
    return lambda _: None


_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode


def _list_decoder(members: list[Callable[[bytes], Any]], *, alike: bool, partial: bool) -> Callable[[bytes], Any]:
    one = members[0] if members else bytes
    same = alike or all(each == one for each in members)

    def decode(data: bytes) -> list[Any]:
        found = _raw_list(data)
        if same:
            return [one(bytes(raw)) for raw in found]
        if partial and len(found) < len(members):
            return [msgspec.json.decode(raw) for raw in found]
        return [member(bytes(raw)) for member, raw in zip(members, found, strict=True)]

    return decode


def _are_alike(members: Sequence[Flow[Any]]) -> bool:
    """Whether these are more members of the same tasks than are drawn one by one."""
    return len(members) > ALIKE_SHOWN and len(set(map(_tasks_of, members))) == 1


def _tasks_of(flow: Flow[Any]) -> Any:
    """The tasks of a part and how they are linked: equal for parts that differ only in their arguments."""
    if isinstance(flow, Call):
        return flow.task
    if isinstance(flow, Chain):
        return (_tasks_of(flow.first), *((link.kind, *map(_tasks_of, link.targets)) for link in flow.links))
    if isinstance(flow, Group):
        return frozenset(map(_tasks_of, flow.members))
    return id(flow)


def _has_undo(flow: Flow[Any]) -> bool:
    if isinstance(flow, Step):
        return flow.undo_step is not None
    if isinstance(flow, Chain):
        return _has_undo(flow.first) or any(_has_undo(each) for link in flow.links for each in link.targets)
    if isinstance(flow, Group):
        return any(map(_has_undo, flow.members))
    return isinstance(flow, Dag) and any(_has_undo(node.body) for node in flow.nodes)


def _check_member(call: Call[Any]) -> None:
    """Refuse options that a job of a flow cannot have."""
    if call.own_key is not None:
        hint = 'Give the key to the flow: (a.s() | b).flow(key="...").enqueue().'
        raise InvalidOption(
            "key", call.own_key, "cannot be given to a job of a flow", subject=f"task {call.task!r}", hint=hint
        )
    if call.connection is not None:
        hint = "Give it to the flow: (a.s() | b).flow(connection=connection).enqueue()."
        raise InvalidOption(
            "connection",
            call.connection,
            "cannot be given to a job of a flow",
            subject=f"task {call.task!r}",
            hint=hint,
        )
