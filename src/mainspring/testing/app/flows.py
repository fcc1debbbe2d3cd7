"""Whether a flow was enqueued as expected, and the message if it was not.

The ids of the jobs of a flow follow from the id of the flow and the place of each job. So the expected flow is planned
with the id of a stored one: if both have the same shape, they have the same jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mainspring.errors import InvalidOption, shown
from mainspring.flows.flow import Flow
from mainspring.flows.info import build_flow, shape_of
from mainspring.flows.plan import plan_flow
from mainspring.flows.shape import BUILT_IN, GROUP_TASK, ROOT_TASK
from mainspring.jobs.call import Call, Step
from mainspring.jobs.records import JobBody, JobRow

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_SHOWN = 20
_body_of = msgspec.json.Decoder(JobBody).decode


class _Place(NamedTuple):
    """What a job of a flow is: its task, its arguments, and what it waits for."""

    task: str
    args: Any
    inputs: dict[str, str]
    after: tuple[tuple[str, str], ...]


class ExpectedFlow:
    """An expected flow: an expression as it would be enqueued."""

    def __init__(self, flow: Flow[Any]) -> None:
        if not isinstance(flow, Flow):
            hint = "t.assert_flow(a.s(1) | b)"
            raise InvalidOption("flow", flow, "is not a flow", subject="t.assert_flow", hint=hint)
        if isinstance(flow, Call) and not (isinstance(flow, Step) and flow.undo_step):
            hint = "t.assert_enqueued(task, arguments) looks for one job."
            raise InvalidOption("flow", flow, "is one job, not a flow", subject="t.assert_flow", hint=hint)
        self._flow = flow

    def find(self, rows: Sequence[JobRow]) -> JobRow | None:
        """The root of the newest flow of this shape, among all jobs of the test."""
        stored = {row.id: row for row in rows}
        return next((row for row in reversed(rows) if row.task == ROOT_TASK and self._fits(row, stored)), None)

    def describe_missing(self, rows: Sequence[JobRow]) -> str:
        """The expected jobs, and the jobs of each flow that was enqueued."""
        jobs = {job.id.hex(): _place(job.task, job.record) for job in plan_flow(self._flow, bytes(16)).jobs}
        lines = ["No flow of this shape was enqueued:", *_lines(jobs)]
        roots = [row for row in rows if row.task == ROOT_TASK]
        lines.append("Enqueued were:" if roots else "No flow was enqueued.")
        for root in roots:
            own = [row for row in rows if _body_of(row.record).flow == root.id.hex()]
            lines.append(f"  flow {build_flow(root).name}")
            lines += _lines({row.id.hex(): _place(row.task, row.record) for row in own}, "    ")
        return "\n".join(lines)

    def _fits(self, root: JobRow, stored: dict[bytes, JobRow]) -> bool:
        shape = shape_of(root)
        plan = plan_flow(self._flow, root.id, 1 if shape.start else 0)
        wanted = [job for job in plan.jobs if job.id != root.id]
        if shape.jobs != sum(job.task not in BUILT_IN for job in wanted):
            return False
        found = (stored.get(job.id) for job in wanted)
        return all(
            row is not None and _place(row.task, row.record) == _place(job.task, job.record)
            for row, job in zip(found, wanted, strict=True)
        )


def is_own(row: JobRow) -> bool:
    """Whether the job runs code of the user: no join, and no built-in task."""
    return row.task not in BUILT_IN


def _place(task: str, record: bytes) -> _Place:
    body = _body_of(record)
    return _Place(task, msgspec.json.decode(body.args) if body.args else {}, body.inputs, body.after)


def _lines(jobs: Mapping[str, _Place], indent: str = "  ") -> list[str]:
    """One line for each job, parents first: ``shop.total() after a group``."""
    depths: dict[str, int] = {}
    todo = list(jobs)
    while todo:
        unknown = [parent for parent, _ in jobs[todo[-1]].after if parent in jobs and parent not in depths]
        if unknown:
            todo += unknown
            continue
        id = todo.pop()
        depths[id] = 1 + max((depths[parent] for parent, _ in jobs[id].after if parent in depths), default=0)
    lines = []
    for id, place in jobs.items():
        if place.task not in BUILT_IN:
            given = ", ".join(f"{name}={shown(value)}" for name, value in place.args.items())
            parents = [jobs[parent].task for parent, _ in place.after if parent in jobs]
            names = ", ".join("a group" if parent == GROUP_TASK else parent for parent in parents)
            lines.append((depths[id], f"{indent}{place.task}({given})" + (f" after {names}" if names else "")))
    more = [f"{indent}... and {len(lines) - _MOST_SHOWN} more"] if len(lines) > _MOST_SHOWN else []
    return [text for _, text in sorted(lines)[:_MOST_SHOWN]] + more
