"""Invariants of flows: ends of members are counted once, joins end once, jobs wait for their parents.

They are about jobs in their first epoch: of a job that was retried by hand, a store keeps the last epoch only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mainspring.states import FINAL, Action, Reason, State
from mainspring.testing.history._events import FlowEdge, Found, History, JobEvent, JoinCount, lives

MEMBER = "member"
COUNTS = ("succeeded", "dead", "cancelled", "bypassed")


class _FlowLives(NamedTuple):
    """The flows of a history, by job."""

    lives: Mapping[str, list[JobEvent]]
    joins: Mapping[str, JoinCount]
    members: Mapping[str, list[str]]
    parents: Mapping[str, list[FlowEdge]]

    @classmethod
    def of(cls, history: History) -> _FlowLives:
        members: dict[str, list[str]] = {}
        parents: dict[str, list[FlowEdge]] = {}
        for edge in history.edges:
            if edge.policy == MEMBER:
                members.setdefault(edge.child, []).append(edge.parent)
            else:
                parents.setdefault(edge.child, []).append(edge)
        return cls(lives(history), {join.job: join for join in history.joins}, members, parents)

    def last(self, job: str) -> JobEvent | None:
        """The last event of a job in its first epoch; None for any other job."""
        events = self.lives.get(job)
        return events[-1] if events and events[-1].epoch == 1 else None

    def end(self, job: str) -> JobEvent | None:
        """The end of a job in its first epoch."""
        last = self.last(job)
        return last if last is not None and last.state in FINAL else None

    def died(self, job: str) -> bool:
        """Whether the job is dead, or is a join with a dead member."""
        end = self.end(job)
        return self.joins[job].dead > 0 if job in self.joins else end is not None and end.state is State.DEAD

    def counts_as(self, job: str, end: JobEvent) -> str:
        """The count of its joins that the end of a member belongs to."""
        if is_good(end):
            return "bypassed" if end.reason is Reason.BYPASSED else "succeeded"
        return "dead" if self.died(job) else "cancelled"

    def waits_for_the_dead(self, job: str) -> bool:
        """Whether the job waits for a dead parent that may be retried by hand, directly or not."""
        for edge in self.parents.get(job, ()):
            end = self.last(edge.parent)
            if end is not None and end.state is State.DEAD and edge.policy == "wait":
                return True
            if end is not None and end.state is State.BLOCKED and self.waits_for_the_dead(edge.parent):
                return True
        blocked = [each for each in self.members.get(job, ()) if self._is_blocked(each)]
        return any(self.waits_for_the_dead(each) for each in blocked)

    def _is_blocked(self, job: str) -> bool:
        last = self.last(job)
        return last is not None and last.state is State.BLOCKED


def is_good(end: JobEvent) -> bool:
    """Whether the end counts as a success for those that wait."""
    return end.state is State.SUCCEEDED or end.reason is Reason.BYPASSED


def ends_are_counted_once(history: History) -> Found:
    """I30: the end of each member is counted once, however often it was acked or the job was claimed."""
    flows = _FlowLives.of(history)
    for id, join in flows.joins.items():
        members, last = flows.members.get(id, []), flows.last(id)
        counts = {count: getattr(join, count) for count in COUNTS}
        if join.total != len(members):
            yield id, f"has {len(members)} members, and counts {join.total}"
        if sum(counts.values()) > join.total:
            yield id, f"counts {sum(counts.values())} ends of {join.total} members"
        ends = {member: flows.end(member) for member in members}
        if last is None or any(flows.last(member) is None for member in members):
            continue  # retried by hand: the counted ends are not in the history
        in_time = {
            member: end for member, end in ends.items()
            if end is not None and (last.state not in FINAL or end.at <= last.at)
        }  # fmt: skip
        expected = Counter(flows.counts_as(member, end) for member, end in in_time.items())
        if any(counts[count] > expected[count] for count in COUNTS):
            yield id, f"counts {counts}, and its members ended as {dict(expected)}"
        elif (last.state not in FINAL or last.state is State.SUCCEEDED) and sum(counts.values()) < len(in_time):
            yield id, f"counts {sum(counts.values())} ends, and {len(in_time)} of its members have ended"


def joins_end_once(history: History) -> Found:
    """I31: a join ends once, after all of its members, and is never claimed; at the end of the run it has ended."""
    flows = _FlowLives.of(history)
    for id, join in flows.joins.items():
        events = flows.lives.get(id, [])
        ends = Counter(event.epoch for event in events if event.state in FINAL)
        if any(n > 1 for n in ends.values()):
            yield id, "is a join and ended twice"
        if any(event.action is Action.CLAIM for event in events):
            yield id, "is a join and was claimed"
        last = flows.last(id)
        if last is None:
            continue
        members = {member: flows.last(member) for member in flows.members.get(id, [])}
        live = [member for member, event in members.items() if event is not None and event.state not in FINAL]
        late = [member for member, event in members.items() if event is not None and event.at > last.at]
        if last.state is State.SUCCEEDED and (live or late):
            yield id, f"succeeded before its member {(live + late)[0]} had ended"
        waited = [edge for edge in flows.parents.get(id, ()) if flows.end(edge.parent) is None]
        if history.quiet and last.state not in FINAL and not (join.open or live or waited):
            yield id, "has not ended, and all of its members have"


def jobs_wait_for_their_parents(history: History) -> Found:
    """I32: a job starts only after the end of its parents, and as their policies allow; at rest, no job waits."""
    flows = _FlowLives.of(history)
    for id, edges in flows.parents.items():
        last = flows.last(id)
        if last is None:
            continue
        claims = [event.at for event in flows.lives[id] if event.action is Action.CLAIM]
        for edge in edges:
            parent, end = flows.last(edge.parent), flows.end(edge.parent)
            if parent is None:
                continue
            if claims and edge.policy != "dead" and (end is None or end.at > claims[0]):
                yield id, f"was claimed before the end of {edge.parent}"
            elif (claims or last.state is State.SUCCEEDED) and not _allows(flows, edge, end):
                yield id, f"ran after {edge.parent} has ended as {parent.state} ({parent.reason}): {edge.policy}"
    for id, events in flows.lives.items() if history.quiet else ():
        join = flows.joins.get(id)
        is_open = join is not None and join.open
        if events[-1].state is State.BLOCKED and not is_open and not flows.waits_for_the_dead(id):
            yield id, "still waits at rest"


def _allows(flows: _FlowLives, edge: FlowEdge, end: JobEvent | None) -> bool:
    """Whether the child may run after this end of its parent."""
    match edge.policy:
        case "dead":
            return flows.died(edge.parent)
        case "failed":
            return end is None or not is_good(end)
        case "ignore":
            return True
    return end is None or is_good(end)


FLOWS: dict[str, Callable[[History], Found]] = {
    "I30": ends_are_counted_once,
    "I31": joins_end_once,
    "I32": jobs_wait_for_their_parents,
}
