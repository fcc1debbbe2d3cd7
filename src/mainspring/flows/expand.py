"""``flow.each(task)``: the built-in task that enqueues one job for each element, when the elements are known.

The job waits for the flow before it, like any step. It adds the jobs to the open join of the group, in pieces, and then
closes the join. The ids follow from the join and the number of the element, so an attempt that was killed is repeated
without a second job.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.client import blocking
from mainspring.codec import dumps
from mainspring.common.ids import derived_id, id_of
from mainspring.errors import Discard, UnknownTask
from mainspring.flows.plan import check_member
from mainspring.flows.shape import EACH_TASK, member_id
from mainspring.jobs.call import Call, Step
from mainspring.jobs.new_job import CallTarget, FlowPlace
from mainspring.jobs.query import Query
from mainspring.jobs.records import JobBatch, JobBody, NewJob
from mainspring.options.table import resolve_options
from mainspring.tasks.declaration import TaskDeclaration
from mainspring.tasks.middleware import wrap_call

if TYPE_CHECKING:
    from mainspring.app import Mainspring

PIECE = 500
"""Jobs that are added at once."""

_decode_body = msgspec.json.Decoder(JobBody).decode


class Expansion(msgspec.Struct, frozen=True):
    """The argument of the built-in task: what to enqueue for each element."""

    task: str
    join: str
    parameter: str
    """The parameter that gets the element."""
    arguments: msgspec.Raw
    """The other arguments, as they are stored."""
    options: dict[str, Any]
    """The job options, in normal form."""


def expander_call(app: Mainspring, step: Step[Any], parameter: str, join: bytes) -> Call[Any]:
    """The call of the built-in task for this step; it runs where the jobs of the step run."""
    plan = Expansion(step.task, join.hex(), parameter, msgspec.Raw(dumps(step.arguments)), dict(step.given))
    options = resolve_options("task", {"retries": 20}, subject=f"task {EACH_TASK!r}")
    queue = step.given.get("queue") or step.target.queue
    target = CallTarget.of(EACH_TASK, step.target.kind, options, lambda _: None, queue)
    return Call(app, target, dumps({"plan": plan}), {"retries": 20})


def make_expander(app: Mainspring) -> Callable[..., Any]:
    """The body of the built-in task, for the workers of this app."""

    async def expand(plan: dict[str, Any], items: Any) -> int:
        if not isinstance(items, list):
            kind = type(items).__name__
            raise Discard(f"each({plan['task']}) needs a list, and the result of the flow before it is a {kind}")
        join, client = bytes.fromhex(plan["join"]), app.client
        store = await client.store()
        task: Any = app.tasks.find(plan["task"])
        if task is None:
            raise UnknownTask(plan["task"], app.tasks)
        found = await store.find(Query(ids=(join,)))
        if not found.jobs:
            raise Discard("the flow was deleted")
        body = _decode_body(found.jobs[0].record)
        place = FlowPlace(bytes.fromhex(body.flow or ""), before=(join,), undoable=body.undoable)
        for first in range(0, len(items), PIECE):
            jobs = tuple(
                _member(app, task.target, plan, place, n, item)
                for n, item in enumerate(items[first : first + PIECE], first)
            )
            id = derived_id(join, b"piece", b"%d" % first)
            await client.enqueue(JobBatch(id=id, jobs=jobs, limits=task.limits, retry=True, accepted=True))
        await store.close_join(join)
        return len(items)

    return expand


def _member(app: Mainspring, target: CallTarget, plan: dict[str, Any], place: FlowPlace, n: int, item: Any) -> NewJob:
    arguments = dumps({**plan["arguments"], plan["parameter"]: item})
    call: Call[Any] = Call(app, target, arguments, plan["options"])
    if app.enqueue_middleware:
        call = wrap_call(app.enqueue_middleware, call)
    check_member(call)
    return call.build(app.settings.version)._replace(place=place).job(id_of(member_id(place.before[0], n)))


def declared_expander(app: Mainspring, kind: str) -> TaskDeclaration:
    """The declaration of the built-in task, for workers with async slots or without."""
    expand = make_expander(app)

    def expand_in_thread(plan: dict[str, Any], items: Any) -> int:
        made: int = blocking.run(EACH_TASK, partial(expand, plan, items))
        return made

    return TaskDeclaration.of(expand if kind == "async" else expand_in_thread, {"name": EACH_TASK, "retries": 20})
