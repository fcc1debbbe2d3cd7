"""A task that returns a flow: ``return fetch.s(1) | clean`` lets the flow take the place of the job.

The flow becomes a part of the flow of the job: all that waits for the job waits for the last job of the flow as well,
and the result of the job is the result of that job. The ids follow from the id and the epoch of the job, so an attempt
that is repeated makes no second flow. Only a job of a flow can do that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.common.handles import Handle
from mainspring.common.ids import derived_id
from mainspring.errors import NotOpen
from mainspring.flows.results import ReplacedBy
from mainspring.worker.run.context import FlowPart

if TYPE_CHECKING:
    from mainspring.worker.run.attempt import RunningAttempt


def is_flow(value: Any) -> bool:
    """Whether a body returned a call, a chain or a group."""
    return isinstance(value, Handle) and hasattr(type(value), "aenqueue_member")


def replace(attempt: RunningAttempt, flow: Any) -> ReplacedBy | list[Any]:
    """Enqueue the flow in the place of the job. A group without calls has its result at once."""
    place = _place(attempt)
    return flow.empty_result() if flow.app is None else ReplacedBy(flow.enqueue_member(place).id)


async def areplace(attempt: RunningAttempt, flow: Any) -> ReplacedBy | list[Any]:
    """Async version of :func:`replace`."""
    place = _place(attempt)
    return flow.empty_result() if flow.app is None else ReplacedBy((await flow.aenqueue_member(place)).id)


def _place(attempt: RunningAttempt) -> FlowPart:
    body, claim = attempt.body, attempt.claim
    if body is None or body.flow is None:
        raise NotOpen(
            f"task {claim.task!r} returned a flow, and the job belongs to no flow",
            hint="Enqueue the job as a part of a flow, or enqueue the flow in the task: flow.enqueue().",
        )
    before = tuple(map(bytes.fromhex, (*body.before, *body.next))) or (bytes.fromhex(body.flow),)
    return FlowPart(derived_id(claim.id, b"replaced", b"%d" % claim.epoch), bytes.fromhex(body.flow), before, ())
