"""A task that returns a flow: ``return fetch.s(1) | clean`` lets the flow take the place of the job.

The flow becomes a part of the flow of the job: all that waits for the job waits for the last job of the flow as well,
and the result of the job is the result of that job. For a job of no flow, it becomes a flow of its own, a child of the
job. The ids follow from the id and the epoch of the job, so an attempt that is repeated makes no second flow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainspring.common.handles import Handle
from mainspring.common.ids import derived_id
from mainspring.flows.results import ReplacedBy
from mainspring.worker.run.context import FlowPart, SpawnedChild

if TYPE_CHECKING:
    from mainspring.worker.run.attempt import RunningAttempt


def is_flow(value: Any) -> bool:
    """Whether a body returned a call, a chain or a group."""
    return isinstance(value, Handle) and hasattr(type(value), "aenqueue_member")


def replace(attempt: RunningAttempt, flow: Any) -> ReplacedBy | list[Any]:
    """Enqueue the flow in the place of the job. A group without calls has its result at once."""
    if flow.app is None:
        return flow.empty_result()  # type: ignore[no-any-return]  # a list
    place = _place(attempt)
    job = flow.enqueue_child(place) if isinstance(place, SpawnedChild) else flow.enqueue_member(place)
    return ReplacedBy(job.id)


async def areplace(attempt: RunningAttempt, flow: Any) -> ReplacedBy | list[Any]:
    """Async version of :func:`replace`."""
    if flow.app is None:
        return flow.empty_result()  # type: ignore[no-any-return]  # a list
    place = _place(attempt)
    if isinstance(place, SpawnedChild):
        return ReplacedBy((await flow.aenqueue_child(place)).id)
    return ReplacedBy((await flow.aenqueue_member(place)).id)


def _place(attempt: RunningAttempt) -> FlowPart | SpawnedChild:
    """The place in the flow of the job, or, for a job of no flow, the identity of a flow that is its child."""
    body, claim = attempt.body, attempt.claim
    id = derived_id(claim.id, b"replaced", b"%d" % claim.epoch)
    if body is None or body.flow is None:
        return SpawnedChild(id, UUID(bytes=claim.id), attempt.trace)
    before = tuple(map(bytes.fromhex, (*body.before, *body.next))) or (bytes.fromhex(body.flow),)
    return FlowPart(id, bytes.fromhex(body.flow), before, (), undoable=body.undoable)
