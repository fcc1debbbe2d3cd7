"""Batch: an open set of jobs with counts and callbacks. Jobs are added from anywhere until it is closed.

    with app.flows.batch("import of 2026-11-19", on_success=report.s(), on_dead=alert.s()) as batch:
        for row in rows:
            batch.add(import_row.s(row))

The flow of a batch has three joins: the *hold*, which is open until the batch is closed or its time is over; the
*set*, which waits for the hold and for all members; the callbacks, which wait for the set; and the root.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.client import blocking
from mainspring.common.handles import Handle
from mainspring.common.ids import derived_id, id_of, raw_id, raw_ids
from mainspring.errors import InvalidOption, KeyTaken, NotFound
from mainspring.flows.flow import Flow, is_task
from mainspring.flows.plan import FlowPlanner
from mainspring.flows.shape import FlowShape, ShapeNode, member_id
from mainspring.flows.start import PIECE, FlowMembership
from mainspring.jobs.call import Call, checked_calls
from mainspring.jobs.job import Job
from mainspring.jobs.new_job import FlowPlace
from mainspring.jobs.records import Edge, JobBatch, Join

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.jobs.info import JobInfo

R = TypeVar("R")

HOLD = 86_400_000_000
"""Microseconds for which a batch may stay open."""
CALLBACKS = {"on_success": "fail", "on_finished": "ignore", "on_dead": "dead"}
"""The callbacks, and the policies of their edges from the set."""


class BatchCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How the members of a batch stand."""

    total: int
    pending: int
    succeeded: int
    dead: int
    cancelled: int
    closed: bool


class Batch(Handle):
    """An open set of jobs: ``app.flows.batch(...)``. Its id is enough to make the handle again.

    It exists in the store after ``open()``, ``with``, or the first ``add``.
    """

    __slots__ = ("_app", "_exists", "_id", "_outer", "_settings")

    _INSTEAD = "Send batch.id; app.flows.batch_of(id) makes the handle again."
    _PATH = "batch"

    def __init__(
        self, app: Mainspring, id: bytes, settings: dict[str, Any], *, exists: bool, outer: bytes = b""
    ) -> None:
        self._app = app
        self._id = id
        self._settings = settings
        self._exists = exists
        self._outer = outer

    @property
    def id(self) -> UUID:
        """The id of the batch, which is the id of its flow."""
        return id_of(self._id)

    @property
    def description(self) -> str:
        return str(self._settings.get("name", ""))

    # ---- add ----------------------------------------------------------------------------------

    async def aadd(self, call: Flow[R]) -> Job[R]:
        """Add a job, a chain or a group to the batch, and enqueue it now. Raises ``FlowClosed`` after ``close()``."""
        await self.aopen()
        return await _need_call(call).aenqueue_member(self._place())

    add = blocking.twin(aadd)

    async def aadd_many(self, calls: Iterable[Call[R]], *, at: int | None = None) -> list[Job[R]]:
        """Add these calls, in pieces of up to 1,000 jobs: each piece is added as a whole, or not at all.

        ``at`` is the position of the first call among all calls of the producer: 0 for the first one. The ids of the
        jobs follow from the batch and the position. So a producer that was killed can open the batch again by its key,
        start over at any earlier position, and makes no second job. ``job.created`` is False for a job that existed.
        """
        _check_position(at)
        await self.aopen()
        checked = checked_calls(self._app, calls)
        made: list[Job[R]] = []
        for first in range(0, len(checked), PIECE):
            made += await self._add_piece(checked[first : first + PIECE], None if at is None else at + first)
        return made

    add_many = blocking.twin(aadd_many)

    # ---- open and close -----------------------------------------------------------------------

    async def aopen(self) -> Self:
        """Create the batch, if it does not exist. A batch with a key that is open already is continued."""
        if not self._exists:
            try:
                await self._app.client.enqueue(self._plan())
            except KeyTaken as error:
                self._id = error.holder.bytes
            self._exists = True
        return self

    open = blocking.twin(aopen)

    async def aclose(self) -> None:
        """Say that no further job comes from outside. The callbacks run when all members have ended. Idempotent."""
        await self.aopen()
        store = await self._app.client.store()
        await store.close_join(_set_of(self._id))
        if await store.close_join(_hold_of(self._id)) is None:
            raise self._not_found()

    close = blocking.twin(aclose)

    async def acounts(self) -> BatchCounts:
        """How many members there are, and how they stand."""
        store = await self._app.client.store()
        found = await store.joins([_set_of(self._id), _hold_of(self._id)])
        if not found:
            raise self._not_found()
        members, hold = found
        return BatchCounts(
            total=members.total, pending=members.pending, succeeded=members.succeeded, dead=members.dead,
            cancelled=members.cancelled + members.bypassed, closed=not hold.open,
        )  # fmt: skip

    counts = blocking.twin(acounts)

    async def ajoin(self, timeout: Any = None) -> JobInfo:
        """Wait until the batch has ended, with its callbacks, and return the info of its flow."""
        return await Job(self._id, "mainspring.flow", self._app.client, lambda _: None).ajoin(timeout)

    join = blocking.twin(ajoin)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        """Close the batch. After an exception it stays open: add the rest later, close it, or cancel it."""
        if kind is None:
            self.close()

    async def __aenter__(self) -> Self:
        return await self.aopen()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if kind is None:
            await self.aclose()

    def __repr__(self) -> str:
        return f"<Batch {self.description!r} {self.id}>"

    # ---- private ------------------------------------------------------------------------------

    def _not_found(self) -> NotFound:
        hint = "It was deleted, it does not exist yet, or the id is the id of a flow that is no batch."
        return NotFound("batch", str(self.id), hint=hint)

    def _place(self) -> FlowMembership:
        return FlowMembership(raw_id(), self._id, (_set_of(self._id),))

    async def _add_piece(self, calls: list[Call[R]], at: int | None) -> list[Job[R]]:
        planner = FlowPlanner(self._app, self._id, {})
        members, n = _set_of(self._id), len(calls)
        ids = raw_ids(n) if at is None else [member_id(members, at + each) for each in range(n)]
        place = FlowPlace(self._id, before=(members,))
        for id, call in zip(ids, calls, strict=True):
            planner.add_member(call, id, place)
        batch = planner.batch(ids[0]) if at is None else replace(planner.batch(raw_id()), retry=True)
        replies = await self._app.client.enqueue(batch)
        return [
            Job(id, call.task, self._app.client, call.target.decode, created=reply.created)
            for id, call, reply in zip(ids, calls, replies, strict=True)
        ]

    def _plan(self) -> JobBatch:
        planner = FlowPlanner(self._app, self._id, self._settings)
        root, hold, members = self._id, _hold_of(self._id), _set_of(self._id)
        planner.jobs.append(planner.make_root())
        planner.add_join(hold, Join(open=True), (), (), expires_in=self._settings.get("hold", HOLD))
        planner.add_join(members, Join(open=True), (Edge(hold),), (root,))
        nodes = [ShapeNode(members.hex(), "", "batch")]
        for option, policy in CALLBACKS.items():
            call = self._settings.get(option)
            if call is not None:
                id = derived_id(root, option.encode())
                after = (Edge(members, policy),)  # type: ignore[arg-type]  # a policy by its name
                planner.add_member(call, id, FlowPlace(root, after, (root,)))
                nodes.append(ShapeNode(id.hex(), call.task, "job", (members.hex(),), policy))
        shape = FlowShape(tuple(nodes), members.hex(), self.description)
        planner.jobs[0] = planner.with_shape(planner.jobs[0], shape)
        return planner.batch(root)


def _set_of(root: bytes) -> bytes:
    return derived_id(root, b"set")


def _hold_of(root: bytes) -> bytes:
    return derived_id(root, b"hold")


def callback_call(app: Mainspring, wanted: Any, option: str, batch: UUID) -> Call[Any]:
    """A callback as a call: a complete call, or a task that takes the id of the batch."""
    if isinstance(wanted, Call):
        return wanted
    if is_task(wanted):
        call: Call[Any] = wanted.bound_to(app).s(batch)
        return call
    hint = f"{option}=task.s(...), or a task that takes the UUID of the batch."
    raise InvalidOption(option, wanted, "is neither a call nor a task", subject="app.flows.batch", hint=hint)


def _check_position(at: int | None) -> None:
    if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 0):
        hint = "The position of the first call, counted from 0: batch.add_many(calls, at=5000)."
        raise InvalidOption("at", at, "must be a whole number, 0 or greater", subject="batch.add_many", hint=hint)


def _need_call(call: Any) -> Flow[Any]:
    if isinstance(call, Flow):
        return call
    raise InvalidOption("call", call, "is not a call", subject="batch.add", hint="batch.add(task.s(...))")
